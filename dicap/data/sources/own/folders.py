"""A tree of folders: the folder is the label, and an image in several folders has several."""

import re
from pathlib import Path

from dicap.data.sources.files import list_images, same_file
from dicap.data.sources.own.listing import SPLIT_NAMES, Entry, Listing, relative_id
from dicap.errors import DataError
from dicap.files.checksum import sha256

LEVELS = ("auto", "first", "last", "all")
# What people sort photographs by besides what they show: dates, numbers, the camera's own folders.
NO_LABEL = re.compile(
    r"[\d\s._\-:+]+|\d+(apple|canon|nikon|_pana|msdcf|gopro|olymp)\w*|dcim|img_?\d+|(batch|part|day|week)[\s_\-]*\d+",
    re.IGNORECASE,
)


def read(root: Path, level: str = "auto") -> Listing:
    """`root/<label>/...`, or `root/<train|val|test|unlabeled>/<label>/...`.

    Folders that hold everything (`photographs/`), splits and folders of dates and numbers are no labels, where another folder of
    the path can be one. Links (symbolic and hard) to one file, and copies of one name and content, are one image. Images in
    `unlabeled/`, or in no label's folder, are truly unlabelled.

    Args:
        level: which of several folders is the label: `first`, `last`, or `all` (each is one); auto: the user is asked.

    Raises:
        DataError: a photograph lies in several folders that could be its label, and `level` does not say which.
    """
    paths = list_images(root)
    parts_of = {path: list(Path(path).parts[:-1]) for path in paths}
    wrapper = _strip_wrapper(parts_of)
    split_of_path = _strip_splits(parts_of)
    files: dict[object, Path] = {}
    labels: dict[object, set[str]] = {}
    split_of: dict[object, str | None] = {}
    names: dict[tuple[str, int], list[object]] = {}
    dated: set[str] = set()
    for path in paths:
        file, split = root / path, split_of_path[path]
        found: list[str] = []
        if split != "unlabeled" and not _unlabelled(parts_of[path]):
            found, dropped = _labels(parts_of[path], level, root, path)
            dated |= dropped
        key = _key(file, files, names)
        files.setdefault(key, file)
        if split_of.get(key) in (None, "unlabeled"):  # a copy among the unlabelled takes no label and no test image away
            split_of[key] = split
        if found:
            labels.setdefault(key, set()).update(found)
    entries = [
        Entry(file, relative_id(file, root), frozenset(labels[key]) if key in labels else None, split_of[key])
        for key, file in files.items()
    ]
    several = sum(len(found) > 1 for found in labels.values())
    notes = [f"{several} images lie in several folders and have several labels"] if several else []
    if labels and not several:
        notes.append("every image lies in one folder, so no image has two labels; link an image into each folder it belongs to")
    if wrapper:
        notes.append(f"everything lies in {'/'.join(wrapper)}/, which is no label")
    if dated:
        notes.append(f"folders that look like dates or numbers are no labels: {', '.join(sorted(dated)[:5])}")
    return Listing("folders", entries, {"tree": "folders"}, notes)


def _strip_wrapper(parts_of: dict[str, list[str]]) -> list[str]:
    """Take away folders that hold everything, if there are others in them; returns them."""
    wrapper = []
    while all(len(parts) > 1 for parts in parts_of.values()) and len({parts[0] for parts in parts_of.values()}) == 1:
        wrapper.append(next(iter(parts_of.values()))[0])
        for parts in parts_of.values():
            del parts[0]
    return wrapper


def _strip_splits(parts_of: dict[str, list[str]]) -> dict[str, str | None]:
    """Take away a level of folders that are all splits (train and test, or more); returns the split of each path."""
    for level in range(2):
        deep = {path: parts for path, parts in parts_of.items() if len(parts) > level}
        found = {path: SPLIT_NAMES.get(parts[level].lower()) for path, parts in deep.items()}
        flat = [parts for parts in parts_of.values() if 0 < len(parts) <= level and not _unlabelled(parts)]
        if {"train", "test"} & set(found.values()) and None not in found.values() and not flat:
            for parts in deep.values():
                del parts[level]
            return dict.fromkeys(parts_of) | found
    return dict.fromkeys(parts_of)


def _unlabelled(parts: list[str]) -> bool:
    return any(SPLIT_NAMES.get(name.lower()) == "unlabeled" for name in parts)


def _labels(parts: list[str], level: str, root: Path, path: str) -> tuple[list[str], set[str]]:
    """The labels that the folders of one path say, and those folders that say none."""
    telling = [name for name in parts if not NO_LABEL.fullmatch(name)]
    if len(parts) == 1:
        telling = parts  # digits sorted into 0/ to 9/
    if (len(telling) > 1 and level == "auto") or (not telling and len(parts) > 1):
        shown = " or ".join(repr(name) for name in (telling or parts))
        raise DataError(
            f"{root}: {path}: which folder is the label, {shown}? Set own.label_folder to first, last or all "
            "(init-data --label-folder)"
        )
    chosen = {"first": telling[:1], "last": telling[-1:]}.get(level, telling)
    return chosen, set(parts) - set(telling)


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
        if sha256(files[twin]) == sha256(file):
            return twin
    twins.append(key)
    return key
