"""Format `folders`: the folder of an image is its label, and an image in several folders has several labels."""

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from unicodedata import normalize

from dicap.data.sources.files import list_images, same_file
from dicap.errors import first_of
from dicap.photos.readers.copies import checksums
from dicap.photos.readers.finder import is_ignored
from dicap.photos.readers.heads import ANYTHING, SPLIT_NAMES
from dicap.photos.readers.listing import Listing, Row, split_in
from dicap.photos.readers.question import Question
from dicap.settings import Own

FEW = 3  # folders that may be splits


def read(root: Path, own: Own) -> Listing:
    """`root/<label>/...`, or `root/<train|val|test|unlabeled>/<label>/...`.

    Links (symbolic and hard) to one file, and copies of one name and content, are one image of a split. Its id is the path
    without a link, so that adding a link changes no id. Images in `unlabeled/`, or in no folder of a label, are unlabelled.

    Raises Question if several folders above a photograph could be its label and `own.label_folder` does not say which one, or if
    some photographs lie in a folder of a split and others do not.
    """
    place = root.resolve()
    paths = [path for path in list_images(root, again=True) if not is_ignored(path, own.ignore)]
    paths.sort(key=lambda path: os.path.realpath(root / path) != str(place / path))
    parts_of, folder_of = parted(paths, own.names or ())
    _ask_of_images_outside(root, parts_of, folder_of)
    named = sorted(folder for folder in {*folder_of.values()} if folder.lower() not in SPLIT_NAMES)
    notes = [f"folders taken for a split train, val or test by their names: {first_of(named, 4)}"] if named else []
    first: dict[tuple[str, str, str | None], str] = {}  # the first copy, by name, checksum and split
    versions: dict[object, tuple[str, Path]] = {}  # group and folder by file: rgb/cat/1 and depth/cat/1 are of one group
    rows = []
    for path, checksum in zip(paths, checksums([root / path for path in paths]), strict=True):
        parts, split = parts_of[path], split_of_folder(folder_of.get(path))
        image = path if checksum is None else first.setdefault((Path(path).name, checksum, split), path)
        labels = None
        if parts and split != "unlabeled":
            if len(parts) > 1 and own.label_folder == "auto":
                text = f"which folder is the label, {' or '.join(map(repr, parts))} (--label-folder first, last or all)?"
                way = "None of them is read as a split: name the folders of splits train, val or test"
                raise Question(f"{root / path}: {text} {way}", label_folder=_likely_label(parts_of.values()))
            labels = frozenset({"first": parts[:1], "last": parts[-1:]}.get(own.label_folder, parts))
        group = None
        if parts and own.label_folder == "last":
            version = f"{split}/{parts[-1]}/{Path(path).stem}", Path(path).parent
            group, _ = versions.setdefault(same_file(root / image), version)
        rows.append(Row(image, labels, split, group=group, where=str(root / path)))
    if any(row.labels for row in rows) and len({same_file(root / row.image) for row in rows}) == len(rows):
        notes += ["every image lies in one folder, so no image has two labels; link an image into each folder it belongs to"]
    if len({group for group, _ in versions.values()}) < len({*versions.values()}):
        notes += ["photographs of one name below several folders, kept on one side of every split"]
    return Listing(rows, {"tree": "folders"}, notes)


def parted(paths: Iterable[str], names: Collection[str] = ()) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Return, by image, the folders above it that may be its labels, and the folder that names its split, if there is one.

    The folder of a split has the name of the split. If every image below two or more folders lies in such a folder, the name may
    also hold a number or more words, as `train2017`. A folder around all labelled images is no label: it would not distinguish
    any images. Neither is a second folder of the split's name if all images of the split lie in it.

    Args:
        names: names of folders that are labels although they are names of splits.
    """
    parts_of = {path: [*Path(path).parts[:-1]] for path in paths}
    within = {path: folder for path, parts in parts_of.items() if (folder := _split_folder(parts))}
    below = [path for path, parts in parts_of.items() if len(parts) > 1]
    splits = {*map(split_of_folder, within.values())}
    if not (below and {*below} <= {*within} and {"train"} < splits - {"unlabeled"} and not {*within.values()} <= {*names}):
        within = {path: folder for path, folder in within.items() if folder.lower() in SPLIT_NAMES}
        of_labels = {folder for folder in within.values() if split_of_folder(folder) != "unlabeled"}
        if of_labels <= {*names} and any(parts and path not in within for path, parts in parts_of.items()):
            within = {path: folder for path, folder in within.items() if folder not in of_labels}
    for name in {*within.values()}:
        named = [parts_of[path] for path, folder in within.items() if folder == name]
        for _ in range(min(parts.count(name) for parts in named)):  # two in train/train/cat; else the second `train` is a label
            for parts in named:
                parts.remove(name)
    labelled = [parts for path, parts in parts_of.items() if parts and split_of_folder(within.get(path)) != "unlabeled"]
    while labelled and min(map(len, labelled)) > 1 and len({parts[0] for parts in labelled}) == 1:
        for parts in labelled:
            del parts[0]
    return parts_of, within


def split_of_folder(folder: str | None) -> str | None:
    """The split that a folder's name says."""
    return split_in(Path(folder, "_"), Path()) if folder else None


def _split_folder(parts: Iterable[str]) -> str | None:
    """The folder above an image that names its split: a whole name is preferred to a part of a name, and then `unlabeled`."""
    named = filter(split_of_folder, parts)
    return min(named, key=lambda part: (part.lower() not in SPLIT_NAMES, split_of_folder(part) != "unlabeled"), default=None)


def _ask_of_images_outside(root: Path, parts_of: dict[str, list[str]], folder_of: dict[str, str]) -> None:
    """Raise Question if some labelled images lie in no folder of train, val or test, and others do, or may do: beside labels."""
    within = {Path(path): folder for path, folder in folder_of.items() if split_of_folder(folder) != "unlabeled"}
    outside = sorted(Path(path) for path, parts in parts_of.items() if parts and path not in folder_of)
    is_labelled = any(parts_of[str(path)] for path in within)
    beside = {path.parents[1] for path in within if path.parents[1:]} & {path.parents[1] for path in outside}
    if outside and within and (is_labelled or beside):
        folders = sorted({*within.values()})
        text = f"{root}: {outside[0]} lies in no folder of a split, unlike others ({first_of(folders, 4)}): leave it out? Or name"
        way = "its folder train, val, test or unlabeled; or where these are labels, name them (--names)"
        above = {folder for path in within for folder in path.parents}
        left = {next((one for one in reversed(path.parents) if one not in above), path).as_posix() for path in outside}
        raise Question(f"{text} {way}", **{"ignore": sorted(left)} if is_labelled else {"names": folders})


def _likely_label(folders: Collection[list[str]]) -> str:
    """Which folder is probably the label: not one of few whose subfolders have equal names, or the names of folders beside it."""
    outermost, innermost = ({parts[k] for parts in folders if len(parts) > -k} for k in (0, -1))
    within = [{parts[1] for parts in folders if len(parts) > 1 and parts[0] == name} for name in outermost]
    alike = len(outermost) <= FEW and all(len(outermost) <= len(names) and names == within[0] for names in within)
    alike |= any(names and names <= outermost for names in within)
    return "first" if of_anything(innermost) else "last" if alike or of_anything(outermost) else "all"


def of_anything(folders: Collection[str]) -> str | None:
    """A folder whose name does not say what its photographs show: a vague word, a split among few folders, or a number."""
    if numbered(folders):
        return min(folders)
    may_be_splits = len(folders) <= FEW or all(map(split_of_folder, folders))
    vague = (name for name in folders if (may_be_splits and split_of_folder(name)) or ANYTHING.fullmatch(name))
    return min(vague, default=None)


def numbered(folders: Collection[str]) -> bool:
    """Whether the names of all folders differ only in a number or a letter."""
    words = {name: (re.findall(r"[^\W\d_]+", normalize("NFC", name.casefold())) or [""])[0] for name in folders}
    return len(words) > 1 and len({*words.values()}) == 1 and words.keys().isdisjoint(words.values())
