"""Label Studio's exports, JSON and JSON-MIN: choices, boxes, polygons and taxonomies become labels of the image."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from dicap.data.sources.own.listing import Entry, Finder, Listing, relative_id
from dicap.errors import DataError

# Of a task in JSON-MIN: what is not a label.
FACTS = {"id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time"}


def find(root: Path) -> Path | None:
    """The export in a folder, or the file itself."""
    places = [root] if root.is_file() else sorted(root.glob("*.json"))
    return next((path for path in places if _is_export(path)), None)


def read(root: Path, path: Path) -> Listing:
    """A task with an annotation is labelled (perhaps with nothing); one without, or only skipped, is truly unlabelled.

    Of several annotations of a task the last one counts. Paths on the server are matched with the files below the folder by
    name, with or without the eight letters that an upload puts before it.
    """
    base = root if root.is_dir() else root.parent
    finder, entries = Finder(base), []
    tasks = json.loads(path.read_text(encoding="utf-8-sig"))
    texts = sorted({key for task in tasks if isinstance(task, dict) for key in _texts(task)})
    if len(texts) > 1:
        raise DataError(f"{path}: which of {', '.join(texts)} is the answer? Export the project as JSON instead of JSON-MIN")
    for number, task in enumerate(tasks, 1):
        try:
            address = _image(task)
        except (KeyError, TypeError, AttributeError):
            raise DataError(f"{path}: task {number} names no image; export the project as JSON or JSON-MIN") from None
        file = _file(address, finder)
        entries.append(Entry(file, relative_id(file, base), _labels(task)))
    return Listing("labelstudio", entries, {"export": path.name}, finder.notes())


def _is_export(path: Path) -> bool:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        return isinstance(content, list) and bool(content) and isinstance(_image(content[0]), str)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _image(task: dict[str, Any]) -> str:
    data = task.get("data", task)
    if isinstance(data.get("image"), str):
        return data["image"]
    return next(value for key, value in data.items() if key not in FACTS and isinstance(value, str) and _looks_like_path(value))


def _looks_like_path(value: str) -> bool:
    return _is_image(unquote(urlsplit(value).query or urlsplit(value).path)) or _is_image(value)


def _is_image(name: str) -> bool:
    from dicap.data.sources.files import ENDINGS

    return Path(name).suffix.lower() in ENDINGS


def _file(address: str, finder: Finder) -> Path:
    parts = urlsplit(address)
    name = parse_qs(parts.query).get("d", [unquote(parts.path)])[0]
    if not _is_image(name):  # a `#`, `?` or `&` of the name itself, which not every program escapes
        name = address.partition("?d=")[2] or address
    file = finder.find(name)
    upload = re.fullmatch("[0-9a-f]{8}-(.+)", Path(name).name)
    return finder.find(upload[1]) if upload and not file.is_file() else file


def _labels(task: dict[str, Any]) -> frozenset[str] | None:
    if "data" in task or "annotations" in task:
        done = [a for a in task.get("annotations") or [] if not a.get("was_cancelled")]
        return frozenset(_names([entry.get("value") for entry in done[-1].get("result") or []])) if done else None
    image = _image(task)
    answers = [value for key, value in task.items() if key not in FACTS and value != image]
    return frozenset(_names(answers)) if "annotation_id" in task or answers else None


def _texts(task: dict[str, Any]) -> set[str]:
    """The keys of a task in JSON-MIN that hold one text: a choice, or a fact of the image such as its camera."""
    if "data" in task or "annotations" in task:
        return set()
    return {key for key, value in task.items() if key not in FACTS and isinstance(value, str) and not _looks_like_path(value)}


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
