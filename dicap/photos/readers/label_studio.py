"""Label Studio's export as JSON: choices, boxes, polygons and taxonomies become labels of the image."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from dicap.data.sources.files import is_image_name, list_images
from dicap.errors import DataError
from dicap.photos.readers.listing import Listing, Row, read_json
from dicap.settings import Own


def is_export(path: Path) -> bool:
    """Whether a file is a list of tasks with images, perhaps one as JSON-MIN, which `read` refuses. Raises DataError: no JSON."""
    content = read_json(path)
    try:
        return isinstance(content, list) and isinstance(_image(content[0].get("data", content[0])), str)
    except (IndexError, TypeError, AttributeError, StopIteration, ValueError):
        return False


def read(root: Path, own: Own) -> Listing:
    """A task with an annotation is labelled (perhaps with nothing); one without, or only skipped, is truly unlabelled.

    Of several annotations of a task that differ, the ground truth counts, else the newest by its time; without times
    `own.answers` says which. Paths on the server are matched with the files below the folder by name, with or without the eight
    letters that an upload puts before it.
    """
    here = {Path(path).name for path in list_images(root, required=False)}
    rows, differ = [], 0
    for path in (root / name for name in own.files or ()):
        for number, task in enumerate(read_json(path), 1):
            where = f"{path}: task {number}"
            try:
                answers = [a for a in task.get("annotations") or [] if not a.get("was_cancelled")]
                said = [frozenset(_names([entry.get("value") for entry in a.get("result") or []])) for a in answers]
                image = _file(_image(task["data"]), here)
                rows.append(Row(image, _chosen(answers, said, own.answers, where), where=where))
                differ += len({*said}) > 1
            except DataError:
                raise
            except (KeyError, TypeError, AttributeError, StopIteration, ValueError):  # the last: an address that is none
                raise DataError(
                    f"{where} names no image, or holds no answers; export the project as JSON, not as JSON-MIN"
                ) from None
    word = "all" if own.answers == "all" else "the ground truth, the newest or the last"
    notes = [f"tasks with several answers that differ, of which {word} count: {differ}"] if differ else []
    return Listing(rows, {"export": ", ".join(own.files or ())}, notes, moved=True)


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


def _image(data: dict[str, Any]) -> str:
    """The address of a task's image, under whatever key."""
    if isinstance(data.get("image"), str):
        return data["image"]
    texts = [value for value in data.values() if isinstance(value, str)]
    return next(t for t in texts if is_image_name(unquote(urlsplit(t).query or urlsplit(t).path)) or is_image_name(t))


def _file(address: str, here: set[str]) -> str:
    """The file of an address; without the letters of an upload where none by the whole name is here."""
    parts = urlsplit(address)
    name = parse_qs(parts.query).get("d", [unquote(parts.path)])[0]
    if not is_image_name(name):  # a `#`, `?` or `&` of the name itself, which not every program escapes
        name = address.partition("?d=")[2] or address
    upload = re.fullmatch("[0-9a-f]{8}-(.+)", Path(name).name)
    return name if upload is None or upload[0] in here else upload[1]


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
