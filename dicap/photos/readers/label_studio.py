"""Label Studio's export as JSON: choices, boxes, polygons and taxonomies become labels of the image."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from dicap.data.sources.files import is_image_name
from dicap.errors import DataError
from dicap.photos.readers.listing import Entry, Finder, Listing, read_json, relative_id
from dicap.settings import Own
from dicap.settings.catalogue import FORMATS


def find(root: Path, kind: str, paths: Iterable[Path]) -> list[Path]:
    """The exports among the files; those in folders are other annotations."""
    return [path for path in paths if path.suffix.lower() in FORMATS["labelstudio"] and path.parent == root and _is_export(path)]


def read(root: Path, own: Own) -> Listing:
    """A task with an annotation is labelled (perhaps with nothing); one without, or only skipped, is truly unlabelled.

    Of several annotations of a task that differ, the ground truth counts, else the newest by its time; without times
    `own.answers` says which. Paths on the server are matched with the files below the folder by name, with or without the eight
    letters that an upload puts before it.
    """
    tasks: list[tuple[Path, str, frozenset[str] | None]] = []
    differ = 0
    for path in (root / name for name in own.files or ()):
        for number, task in enumerate(read_json(path), 1):
            try:
                answers = [a for a in task.get("annotations") or [] if not a.get("was_cancelled")]
                said = [frozenset(_names([entry.get("value") for entry in a.get("result") or []])) for a in answers]
                tasks.append((path, _image(task["data"]), _chosen(answers, said, own.answers, f"{path}: task {number}")))
                differ += len({*said}) > 1
            except (KeyError, TypeError, AttributeError, StopIteration):
                raise DataError(
                    f"{path}: task {number} names no image, or holds no answers; export the project as JSON, not as JSON-MIN"
                ) from None
    finder = Finder(root)  # the folders are the server's
    files = [_file(address, finder) for _, address, _ in tasks]
    entries = [Entry(file, relative_id(file, root), labels) for file, (_, _, labels) in zip(files, tasks, strict=True)]
    word = "all" if own.answers == "all" else "the ground truth, the newest or the last"
    notes = [f"tasks with several answers that differ, of which {word} count: {differ}"] if differ else []
    return Listing(root, entries, {"export": ", ".join(own.files or ())}, finder.notes() + notes)


def _chosen(answers: list[dict[str, Any]], said: list[frozenset[str]], way: str, task: str) -> frozenset[str] | None:
    """What the answers of a task say. Raises DataError where they differ and nothing tells which counts."""
    if len({*said}) < 2:
        return said[0] if said else None
    if way == "all":
        return frozenset().union(*said)
    true = [labels for answer, labels in zip(answers, said, strict=True) if answer.get("ground_truth")]
    times = [str(answer.get("updated_at") or answer.get("created_at") or "") for answer in answers]
    if len({*true}) == 1:
        return true[0]
    if all(times) and times.count(max(times)) == 1:
        return said[times.index(max(times))]
    if way == "auto":
        raise DataError(
            f"{task}: {len(said)} answers that differ, and no times of them: set own.answers to last, or to all for any's "
            "(init-data --answers)"
        )
    return said[-1]


def _is_export(path: Path) -> bool:
    """Whether a file is a list of tasks with images, perhaps one as JSON-MIN, which `read` refuses."""
    try:
        content = read_json(path)
        return isinstance(content, list) and isinstance(_image(content[0].get("data", content[0])), str)
    except (DataError, IndexError, TypeError, AttributeError, StopIteration):
        return False


def _image(data: dict[str, Any]) -> str:
    """The address of a task's image, under whatever key."""
    if isinstance(data.get("image"), str):
        return data["image"]
    texts = [value for value in data.values() if isinstance(value, str)]
    return next(t for t in texts if is_image_name(unquote(urlsplit(t).query or urlsplit(t).path)) or is_image_name(t))


def _spellings(address: str) -> list[str]:
    """The names by which the file of an address may go: as it is, and without the letters of an upload."""
    parts = urlsplit(address)
    name = parse_qs(parts.query).get("d", [unquote(parts.path)])[0]
    if not is_image_name(name):  # a `#`, `?` or `&` of the name itself, which not every program escapes
        name = address.partition("?d=")[2] or address
    upload = re.fullmatch("[0-9a-f]{8}-(.+)", Path(name).name)
    return [name, *([upload[1]] if upload else [])]


def _file(address: str, finder: Finder) -> Path:
    files = [finder.find(name) for name in _spellings(address)]
    return next((file for file in files if file.is_file()), files[-1])


def _names(value: Any) -> Iterator[str]:
    """The label names in a result: strings under keys that hold labels."""
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, list):
        for part in value:
            yield from _names(part)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key in ("choices", "taxonomy") or key.endswith("labels"):
                yield from _names(part)
