"""A tree of folders: the folder is the label, and an image in several folders has several."""

import hashlib
from pathlib import Path

from dicap.data.sources.files import list_images, same_file
from dicap.data.sources.listing import SPLIT_NAMES, Entry, Listing


def read(root: Path) -> Listing:
    """`root/<label>/...`, or `root/<train|val|test|unlabeled>/<label>/...`.

    Links (symbolic and hard) to one file, and copies of one name and content, are one image. Images in `unlabeled/`, or in no
    label's folder, are truly unlabelled.
    """
    top = {path.split("/")[0].lower() for path in list_images(root) if "/" in path}
    splits = bool(top & {"train", "training", "test"}) and top <= set(SPLIT_NAMES)
    files: dict[object, Path] = {}
    labels: dict[object, set[str]] = {}
    split_of: dict[object, str | None] = {}
    names: dict[tuple[str, int], list[object]] = {}
    for path in list_images(root):
        file, parts = root / path, path.split("/")
        split = SPLIT_NAMES[parts.pop(0).lower()] if splits and len(parts) > 1 else None
        label = parts[0] if len(parts) > 1 else None
        if label is not None and SPLIT_NAMES.get(label.lower()) == "unlabeled":
            label = None
        key = _key(file, files, names)
        files.setdefault(key, file)
        split_of.setdefault(key, split)
        if label is not None and split != "unlabeled":
            labels.setdefault(key, set()).add(label)
    entries = [
        Entry(file, file.relative_to(root).as_posix(), frozenset(labels[key]) if key in labels else None, split_of[key])
        for key, file in files.items()
    ]
    several = sum(len(found) > 1 for found in labels.values())
    notes = [f"{several} images lie in several folders and have several labels"] if several else []
    if labels and not several:
        notes.append("every image lies in one folder, so no image has two labels; link an image into each folder it belongs to")
    return Listing("folders", entries, {"tree": "folders"}, notes)


def _key(file: Path, files: dict[object, Path], names: dict[tuple[str, int], list[object]]) -> object:
    """The identity of an image: its file, or an earlier one of the same name, size and content."""
    key = same_file(file)
    if key in files:
        return key
    try:
        size = file.stat().st_size
    except OSError:
        return key
    twins = names.setdefault((file.name, size), [])
    for twin in twins:
        if _digest(files[twin]) == _digest(file):
            return twin
    twins.append(key)
    return key


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
