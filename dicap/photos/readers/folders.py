"""A tree of folders: the folder is the label, and an image in several folders has several."""

import os
from pathlib import Path

from dicap.data.sources.files import list_images, same_file
from dicap.errors import first_of
from dicap.photos.readers.copies import checksums
from dicap.photos.readers.heads import SPLIT_NAMES
from dicap.photos.readers.listing import Listing, Row, is_ignored
from dicap.photos.readers.question import Question
from dicap.settings import Own


def read(root: Path, own: Own) -> Listing:
    """`root/<label>/...`, or `root/<train|val|test|unlabeled>/<label>/...`.

    Links (symbolic and hard) to one file, and copies of one name and content, are one image, whose id is the path without a link:
    a link more makes no other image of it. Images in `unlabeled/`, or in no label's folder, are truly unlabelled.

    Folders that `own.ignore` names, and that of `own.unlabeled_root`, are no label's.

    Raises:
        Question: a photograph lies in several folders that could be its label, and `own.label_folder` does not say which.
    """
    place = root.resolve()
    paths = [path for path in list_images(root, again=True) if not is_ignored(path, own.ignore)]
    if own.unlabeled_root is not None and place in (aside := Path(own.unlabeled_root).resolve()).parents:
        paths = [path for path in paths if not (place / path).is_relative_to(aside)]
    paths.sort(key=lambda path: os.path.realpath(root / path) != str(place / path))
    parts_of = {path: list(Path(path).parts[:-1]) for path in paths}
    split_of = _strip_splits(parts_of)
    notes = []
    tops = {parts[0]: SPLIT_NAMES.get(parts[0].lower()) for parts in parts_of.values() if len(parts) > 1}
    if not any(split_of.values()) and {"train", "test"} & {*tops.values()}:
        others = sorted({parts[0] for parts in parts_of.values() if parts and parts[0].lower() not in SPLIT_NAMES})
        notes = [f"folders of splits are read as labels, since there are others beside them: {first_of(others, 4)}"]
        if own.label_folder == "auto":
            raise Question(f"{root}: {notes[0]}; is it left out?", ignore=others)
    first: dict[tuple[str, str], str] = {}  # of the copies of one name
    rows = []
    for path, checksum in zip(paths, checksums([root / path for path in paths]), strict=True):
        parts, split = parts_of[path], split_of[path]
        image = path if checksum is None else first.setdefault((Path(path).name, checksum), path)
        labels = None
        if parts and split != "unlabeled" and not _unlabelled(parts):
            labels = frozenset(_labels(parts, own.label_folder, root / path))
        rows.append(Row(image, labels, split, where=str(root / path)))
    if any(row.labels for row in rows) and len({same_file(root / row.image) for row in rows}) == len(rows):
        notes += ["every image lies in one folder, so no image has two labels; link an image into each folder it belongs to"]
    return Listing(rows, {"tree": "folders"}, notes, joined=True)


def _labels(parts: list[str], level: str, path: Path) -> list[str]:
    """Those of the folders above an image that are its labels."""
    if len(parts) > 1 and level == "auto":
        raise Question(
            f"{path}: which folder is the label, {' or '.join(map(repr, parts))} (--label-folder first, last or all)?",
            label_folder="all",
        )
    return {"first": parts[:1], "last": parts[-1:]}.get(level, parts)


def _strip_splits(parts_of: dict[str, list[str]]) -> dict[str, str | None]:
    """Take away a level of folders that are all splits (train and test, or more); returns the split of each path.

    Images of labels without folders of splits are of train, where both train and test are beside them.
    """
    for level in range(max(map(len, parts_of.values()), default=0)):
        deep = {path: parts for path, parts in parts_of.items() if len(parts) > level}
        splits = {path: SPLIT_NAMES.get(parts[level].lower()) for path, parts in deep.items()}
        flat = [parts for parts in parts_of.values() if 0 < len(parts) <= level and not _unlabelled(parts)]
        said = {"train", "test"} & {*splits.values()}
        if None not in splits.values() and (len(said) == 2 or (said and not flat)):
            for parts in deep.values():
                del parts[level]
            beside = {path: "train" for path, parts in parts_of.items() if parts and path not in deep and not _unlabelled(parts)}
            return dict.fromkeys(parts_of) | beside | splits
    return dict.fromkeys(parts_of)


def _unlabelled(parts: list[str]) -> bool:
    return any(SPLIT_NAMES.get(name.lower()) == "unlabeled" for name in parts)
