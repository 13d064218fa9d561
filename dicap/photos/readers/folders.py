"""A tree of folders: the folder is the label, and an image in several folders has several."""

import os
import re
from collections.abc import Collection
from pathlib import Path
from unicodedata import normalize

from dicap.data.sources.files import list_images, same_file
from dicap.errors import first_of
from dicap.photos.readers.copies import checksums
from dicap.photos.readers.heads import ANYTHING, SPLIT_NAMES
from dicap.photos.readers.listing import Listing, Row, is_ignored
from dicap.photos.readers.question import Question
from dicap.settings import Own


def read(root: Path, own: Own) -> Listing:
    """`root/<label>/...`, or `root/<train|val|test|unlabeled>/<label>/...`.

    Links (symbolic and hard) to one file, and copies of one name and content, are one image of a split, whose id is the path
    without a link: a link more makes no other image of it. Images in `unlabeled/`, or in no label's folder, are truly unlabelled.

    Raises:
        Question: a photograph lies in several folders that could be its label, and `own.label_folder` does not say which; or in
            no folder of a split, where others do.
    """
    place = root.resolve()
    paths = [path for path in list_images(root, again=True) if not is_ignored(path, own.ignore)]
    paths.sort(key=lambda path: os.path.realpath(root / path) != str(place / path))
    parts_of = {path: list(Path(path).parts[:-1]) for path in paths}
    split_of = _take_splits(root, parts_of, own)
    notes, around, deepest = [], *({parts[k] for parts in parts_of.values() if len(parts) > -k} for k in (0, -1))
    likely = "first" if of_anything(deepest) else "last" if len(around) == 1 or of_anything(around) else "all"
    first: dict[tuple[str, str, str | None], str] = {}  # of the copies of one name and split
    rows = []
    for path, checksum in zip(paths, checksums([root / path for path in paths]), strict=True):
        parts, split = parts_of[path], split_of[path]
        image = path if checksum is None else first.setdefault((Path(path).name, checksum, split), path)
        labels = None
        if parts and split != "unlabeled":
            if len(parts) > 1 and own.label_folder == "auto":
                text = f"which folder is the label, {' or '.join(map(repr, parts))} (--label-folder first, last or all)?"
                raise Question(f"{root / path}: {text}", label_folder=likely)
            labels = frozenset({"first": parts[:1], "last": parts[-1:]}.get(own.label_folder, parts))
        rows.append(Row(image, labels, split, where=str(root / path)))
    if any(row.labels for row in rows) and len({same_file(root / row.image) for row in rows}) == len(rows):
        notes += ["every image lies in one folder, so no image has two labels; link an image into each folder it belongs to"]
    return Listing(rows, {"tree": "folders"}, notes)


def of_anything(folders: Collection[str]) -> str | None:
    """A folder that may hold photographs of anything: by its name, or where all are named alike but for a number or a letter."""
    words = {name: (re.findall(r"[^\W\d_]+", normalize("NFC", name.casefold())) or [""])[0] for name in sorted(folders)}
    alike = len(words) > 1 and len({*words.values()}) == 1 and words.keys().isdisjoint(words.values())
    return next((name for name in words if alike or ANYTHING.fullmatch(name)), None)


def _take_splits(root: Path, parts_of: dict[str, list[str]], own: Own) -> dict[str, str | None]:
    """Take the folder that names the split away from those above each image; returns the splits.

    Raises Question where some labelled images lie in a folder of train, val or test, others do not, and `own.names` is silent.
    """
    folder_of: dict[str, str] = {}
    for path, parts in parts_of.items():
        for part in sorted(parts, key=lambda part: SPLIT_NAMES.get(part.lower()) != "unlabeled"):  # which counts at any place
            if part.lower() in SPLIT_NAMES:
                folder_of.setdefault(path, part)
    within = {path: part for path, part in folder_of.items() if SPLIT_NAMES[part.lower()] != "unlabeled"}
    beside = sorted(path for path, parts in parts_of.items() if parts and path not in folder_of)
    if within and beside:
        if not {*within.values()} <= {*(own.names or ())}:
            above = {folder for path in within for folder in Path(path).parents}
            left = {next((one for one in reversed(Path(path).parents) if one not in above), Path(path)) for path in beside}
            named = first_of(sorted({*within.values()}), 4)
            text = f"{root}: {beside[0]} lies in no folder of a split, as others do ({named}): is it left out? Or name its folder"
            way = "train, val, test or unlabeled; or where these are labels, name them (--names)"
            raise Question(f"{text} {way}", ignore=sorted(one.as_posix() for one in left))
        folder_of = {path: part for path, part in folder_of.items() if path not in within}
    for path, part in folder_of.items():
        parts_of[path].remove(part)
    return dict.fromkeys(parts_of) | {path: SPLIT_NAMES[part.lower()] for path, part in folder_of.items()}
