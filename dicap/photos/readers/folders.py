"""A tree of folders: the folder is the label, and an image in several folders has several."""

import os
from pathlib import Path

from dicap.data.sources.files import list_images, same_file
from dicap.errors import DataError
from dicap.files.checksum import sha256
from dicap.photos.readers.listing import SPLIT_NAMES, Entry, Listing, is_ignored, relative_id
from dicap.settings import Own


def read(root: Path, own: Own) -> Listing:
    """`root/<label>/...`, or `root/<train|val|test|unlabeled>/<label>/...`.

    Links (symbolic and hard) to one file, and copies of one name and content, are one image, whose id is the path without a link:
    a link more makes no other image of it. Images in `unlabeled/`, or in no label's folder, are truly unlabelled. What lies in
    several splits is of the last of train, val and test.

    Folders that `own.ignore` names, and that of `own.unlabeled_root`, are no label's.

    Raises:
        DataError: a photograph lies in several folders that could be its label, and `own.label_folder` does not say which.
    """
    level, place = own.label_folder, root.resolve()
    paths = [path for path in list_images(root, again=True) if not is_ignored(path, own.ignore)]
    if own.unlabeled_root is not None and place in (aside := Path(own.unlabeled_root).resolve()).parents:
        paths = [path for path in paths if not (place / path).is_relative_to(aside)]
    paths.sort(key=lambda path: os.path.realpath(root / path) != str(place / path))
    parts_of = {path: list(Path(path).parts[:-1]) for path in paths}
    split_of_path = _strip_splits(parts_of)
    files: dict[object, Path] = {}
    labels: dict[object, set[str]] = {}
    splits: dict[object, set[str | None]] = {}
    names: dict[tuple[str, int], list[object]] = {}
    for path in paths:
        file, split, parts = root / path, split_of_path[path], parts_of[path]
        key = _key(file, files, names)
        files.setdefault(key, file)
        splits.setdefault(key, set()).add(split)
        if not parts or split == "unlabeled" or _unlabelled(parts):
            continue
        if len(parts) > 1 and level == "auto":
            shown = " or ".join(map(repr, parts))
            raise DataError(
                f"{root}: {path}: which folder is the label, {shown}? Set own.label_folder to first, last or all "
                "(init-data --label-folder)"
            )
        labels.setdefault(key, set()).update({"first": parts[:1], "last": parts[-1:]}.get(level, parts))
    order = ("test", "val", "train", "unlabeled")  # a copy among the unlabelled takes no test image away
    entries = [
        Entry(
            file,
            relative_id(file, root),
            frozenset(labels[key]) if key in labels else None,
            next((split for split in order if split in splits[key]), None),
        )
        for key, file in sorted(files.items(), key=lambda one: one[1])
    ]
    several = sum(len(found) > 1 for found in labels.values())
    notes = [f"{several} images lie in several folders and have several labels"] if several else []
    if twice := [file.name for key, file in files.items() if len(splits[key] - {None, "unlabeled"}) > 1]:
        notes.append(f"images in several of train, val and test, counted in the last of these: {len(twice)} ({twice[0]})")
    if labels and not several:
        notes.append("every image lies in one folder, so no image has two labels; link an image into each folder it belongs to")
    return Listing(root, entries, {"tree": "folders"}, notes)


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
