"""Format `folders`: the folder of an image is its label, and an image in several folders has several labels."""

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from dicap.data.sources.files import list_images, same_file
from dicap.errors import DataError
from dicap.photos.readers.copies import checksums
from dicap.photos.readers.finder import is_ignored
from dicap.photos.readers.heads import ANYTHING, SPLIT_NAMES
from dicap.photos.readers.listing import Listing, Row, split_in
from dicap.photos.readers.question import typed
from dicap.settings import Own

NUMBER = re.compile(r"\d+|(?<=[\W_])\w$")  # or a letter, as in `site A`


def read(root: Path, own: Own) -> Listing:
    """`root/<label>/...`, or `root/<train|val|test|unlabeled>/<label>/...`.

    Links (symbolic and hard) to one file, and copies of one name and content, are one image of a split. Its id is the path
    without a link, so that adding a link changes no id. Images in `unlabeled/`, or in no folder of a label, are unlabelled.

    Raises DataError if several folders above a photograph could be its label and `own.label_folder` does not say which one, or
    if some photographs lie in a folder of a split and others do not.
    """
    place = root.resolve()
    paths = [path for path in list_images(root, again=True) if not is_ignored(path, own.ignore)]
    paths.sort(key=lambda path: os.path.realpath(f"{place}/{path}") != f"{place}/{path}")
    parts_of, splits = parted(paths, own.names or ())
    are_split = not {*splits.values()} <= {"unlabeled"}
    first: dict[tuple[str, str, str | None], str] = {}  # the first copy, by name, checksum and split
    groups: dict[object, str] = {}  # by file: rgb/cat/1.png and depth/cat/1.png are of one group
    rows = []
    for path, checksum in zip(paths, checksums([root / path for path in paths]), strict=True):
        parts, split, labels = parts_of[path], splits.get(path), None
        if parts and split != "unlabeled":
            if are_split and (split is None or any(part.lower() in SPLIT_NAMES for part in parts)):
                way = "Move it or leave it out (--ignore); --names train if train is a label"
                raise DataError(f"{root / path}: in no folder train, val, test or unlabeled, unlike others, or in two. {way}")
            if len(parts) > 1 and own.label_folder == "auto":
                way = "say --label-folder first, last or all. Name folders of splits train, val, test"
                way += f"; --ignore {typed(f'*/{parts[-1]}/*')} leaves such folders out"
                raise DataError(f"{root / path}: which folder is the label, {' or '.join(map(repr, parts))}? If one is, {way}")
            labels = frozenset({"first": parts[:1], "last": parts[-1:]}.get(own.label_folder, parts))
            if may_be_split := [part for part in parts if part not in labels and split_in(Path(part, "_"), Path())]:
                text = f"{may_be_split[0]!r} is no label by --label-folder, and may be a split"
                raise DataError(f"{root / path}: {text}: name it train, val, test or unlabeled, or leave it out (--ignore)")
        image = path if checksum is None else first.setdefault((Path(path).name, checksum, split), path)
        group = groups.setdefault(same_file(root / image), f"{split}/{Path(path).parent.name}/{Path(path).stem}")
        rows.append(Row(image, labels, split, group=group if own.label_folder == "last" else None, where=str(root / path)))
    text = "every image lies in one folder, so no image has two labels; link an image into each folder it belongs to"
    are_single = any(row.labels for row in rows) and len(groups) == len(rows)
    return Listing(rows, {"tree": "folders"}, [text] if are_single else [])


def parted(paths: Iterable[str], names: Collection[str] = ()) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return, by image, the folders above it that may be its labels, and its split if a folder above has the name of one.

    A folder around all labelled images is no label: it would not distinguish any images.

    Args:
        names: names of folders that are labels although they are names of splits.
    """
    parts_of, splits = {}, {}
    for path in paths:
        parts_of[path] = parts = [*Path(path).parts[:-1]]
        for part in [part for part in parts if part.lower() in SPLIT_NAMES and part not in names][:1]:
            splits[path] = SPLIT_NAMES[part.lower()]
            parts.remove(part)
    labelled = [parts for path, parts in parts_of.items() if parts and splits.get(path) != "unlabeled"]
    while labelled and min(map(len, labelled)) > 1 and len({parts[0] for parts in labelled}) == 1:
        for parts in labelled:
            del parts[0]
    return parts_of, splits


def of_anything(folders: Collection[str]) -> str | None:
    """A folder whose name does not say what its photographs show: vague, with a word of a split, or numbered like all others."""
    are_numbered = len(folders) > 1 and len({NUMBER.sub("", name.casefold()) for name in folders}) == 1
    vague = (name for name in folders if are_numbered or ANYTHING.fullmatch(name) or split_in(Path(name, "_"), Path()))
    return min(vague, default=None)
