"""Label Studio's export as JSON: choices, boxes, polygons and taxonomies become labels of the image."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from dicap.data.sources.files import files_ending, is_image_name
from dicap.errors import DataError
from dicap.photos.readers.listing import Entry, Finder, Listing, read_json, relative_id
from dicap.settings.catalogue import FORMATS


def find(root: Path) -> Path | None:
    """The export in a folder, or the file itself."""
    places = [root] if root.is_file() else files_ending(root, FORMATS["labelstudio"], ("*",))
    return next((path for path in places if _is_export(path)), None)


def read(root: Path, path: Path) -> Listing:
    """A task with an annotation is labelled (perhaps with nothing); one without, or only skipped, is truly unlabelled.

    Of several annotations of a task the last one counts. Paths on the server are matched with the files below the folder by
    name, with or without the eight letters that an upload puts before it.
    """
    base = root if root.is_dir() else root.parent
    finder, entries, differ = Finder(base), [], 0
    for number, task in enumerate(read_json(path), 1):
        try:
            address, done = _image(task["data"]), [a for a in task.get("annotations") or [] if not a.get("was_cancelled")]
            said = [frozenset(_names([entry.get("value") for entry in answer.get("result") or []])) for answer in done]
        except (KeyError, TypeError, AttributeError, StopIteration):
            raise DataError(
                f"{path}: task {number} names no image, or holds no answers; export the project as JSON, not as JSON-MIN"
            ) from None
        labels, differ = said[-1] if said else None, differ + (len({*said}) > 1)
        file = _file(address, finder)
        entries.append(Entry(file, relative_id(file, base), labels))
    notes = [f"tasks with several answers that differ, of which the last counts: {differ}"] if differ else []
    return Listing(root, entries, {"export": path.name}, finder.notes() + notes)


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


def _file(address: str, finder: Finder) -> Path:
    parts = urlsplit(address)
    name = parse_qs(parts.query).get("d", [unquote(parts.path)])[0]
    if not is_image_name(name):  # a `#`, `?` or `&` of the name itself, which not every program escapes
        name = address.partition("?d=")[2] or address
    file = finder.find(name)
    upload = re.fullmatch("[0-9a-f]{8}-(.+)", Path(name).name)
    return finder.find(upload[1]) if upload and not file.is_file() else file


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
