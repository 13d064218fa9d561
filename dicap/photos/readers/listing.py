"""The path that every format shares: rows about images, the files that the rows mean, and one item for each image."""

import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dicap.data.sources.base import FileImages, Item, RawSet, inside
from dicap.data.sources.files import linked_folder, list_images, readable, same_file
from dicap.errors import DataError, first_of
from dicap.photos.readers.finder import Finder
from dicap.photos.readers.heads import SPLIT_NAMES
from dicap.photos.readers.question import Question
from dicap.settings import Own
from dicap.settings.catalogue import OWN

ASSIGNED = ("train", "val", "test")  # splits of labelled images


@dataclass(frozen=True)
class Row:
    """What one entry of the labels says about one image.

    Attributes:
        image: the file's name as the entry has it.
        labels: names of its labels; None: not labelled.
        split: train, val, test or unlabeled; None if the entry names no split.
        absent: classes that are known to be absent, while all others are unknown; None: all classes but the labels are absent.
        group: value that images share if they must stay on one side of every split.
        empty: whether the entry says nothing, which may mean that the image has no label (`own.empty`).
        where: place of the entry, for messages.
        folders: folders that the name may be relative to, beside the root.
    """

    image: str
    labels: frozenset[str] | None
    split: str | None = None
    absent: frozenset[str] | None = None
    group: str | None = None
    empty: bool = False
    where: str = ""
    folders: tuple[Path, ...] = ()


@dataclass
class Listing:
    """The labels of a folder, as the reader of one format returns them.

    Attributes:
        rows: entries in the order of the files.
        source: facts about the origin of the labels.
        notes: lines for the user.
    """

    rows: list[Row]
    source: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def to_raw(root: Path, listing: Listing, own: Own, looking: bool = False) -> RawSet:
    """Turn the rows into a raw set: an item for each image, classes sorted by name.

    The split val counts as test if no image is of split test, else as train. A name is no class if every row calls it absent or
    if only missing images have it.

    Args:
        looking: whether classes may be new, that is, not among `own.names`.

    Raises DataError if rows contradict each other, no image has a label, or a label cannot be written in a table or is new.
    """
    rows, files, notes = _one_each(root, listing, own)
    rows, in_folders = (rows, False) if own.format == "folders" else _with_splits_of_folders(rows)
    rows, of_empty = _with_empty(rows, own.empty, in_folders)
    notes = [*listing.notes, *of_empty, *notes]
    if own.split is not None and (count := sum(row.split is None for row in listing.rows)):
        notes.append(f"{count} rows name no split: they train if they have labels")
    if in_folders:
        notes.append("the labels name no split: each image is of the split that its folder names (train, val, test)")
    val = "train" if any(row.split == "test" for row in rows) else "test"
    if count := sum(row.split == "val" for row in rows):
        notes.append(f"{count} images of split val count as {val}")
    if count := sum(row.split == "unlabeled" and bool(row.labels) for row in rows):
        notes.append(f"{count} images of split unlabeled have labels, which are ignored")
    labelled = [(row, file.is_file()) for row, file in zip(rows, files, strict=True) if row.labels and row.split != "unlabeled"]
    if not labelled:
        raise DataError(f"{root}: none of {len(rows)} images has a label; label some, then try again")
    here = [row for row, is_here in labelled if is_here] or [row for row, _ in labelled]
    places = {name: row.where for row in reversed(here) for name in row.labels or ()}
    number = {name: i for i, name in enumerate(sorted(places))}
    for name in number:
        check_names(root if own.format == "folders" else places[name], [name])
    if not looking and own.names is not None and (new := sorted({*places} - {*own.names, *(own.new_classes or ())})):
        text = f"{first_of(list(map(repr, new)), 3)}: no such class was there when init-data looked; correct it, or look again"
        raise Question(f"{places[new[0]]}: {text} (--ignore leaves a file or folder out)")
    if lost := sorted({name for row in rows for name in {*(row.labels or ()), *(row.absent or ())}} - {*places}):
        notes.append(f"names that no labelled image here has, so they are no classes: {first_of(lost, 8)}")
    items = []
    for row in rows:
        known = row.labels, row.absent
        labels, absent = (None if names is None else tuple(sorted(number[n] for n in names & number.keys())) for names in known)
        if row.split == "unlabeled" or labels is None or absent == () == labels:  # nothing is known of the image
            labels = absent = None
        split = "unlabeled" if labels is None else val if row.split == "val" else row.split or "train"
        items.append(Item(row.image, row.image, split, labels, absent=absent, group=row.group))
    leaves = {file.parent: linked_folder(file, root) for file in files if own.format != "folders"}
    images = FileImages(Path(), files, [leaves.get(file.parent) for file in files], upright=True)
    return RawSet(OWN, list(number), items, images, listing.source, notes)


def _one_each(root: Path, listing: Listing, own: Own) -> tuple[list[Row], list[Path], list[str]]:
    """Return one row for each image, named by its path below the root, the files of the images, and notes.

    Raises DataError if a name could mean several files or leaves the folder, if no image is there, or if rows contradict each
    other; Question if the labels of several rows may count.
    """
    finder = Finder(root, [(row.image, row.folders) for row in listing.rows], own.ignore)
    located = [(row, file, same_file(file)) for row in listing.rows for file in [_located(root, row, finder)]]
    splits_of = Counter(mark for mark, split in {(mark, row.split) for row, _, mark in located} if split in ASSIGNED)
    of_file: dict[object, list[tuple[Row, Path]]] = {}
    for row, file, mark in located:
        labels, absent = (names and frozenset(map(composed, names)) for names in (row.labels, row.absent))
        pair = replace(row, labels=labels, absent=absent), file
        # Links to one file from several splits are several images, as copies are.
        of_file.setdefault(file if splits_of[mark] > 1 else mark, []).append(pair)
    rows, files = [], []
    for pairs in of_file.values():
        pairs.sort(key=lambda pair: pair[0].labels is None)
        file = pairs[0][1]
        rows.append(replace(_joined([row for row, _ in pairs], own), image=readable(file.relative_to(root).as_posix())))
        files.append(file)
    if files and not any(map(Path.is_file, files)) and (images := list_images(root, required=False)):
        row = listing.rows[0]
        text = f"neither {row.image!r} nor any other image that is named lies below {root}; {images[0]} does"
        way = "put images there, write names as they are (with leading zeros), or name their column (init-data --image)"
        raise DataError(f"{row.where}: image: {text}; {way}")
    repeated = 0 if own.rows == "label" else len(listing.rows) - len(rows)
    notes = [f"rows or links that repeat an image, counted once: {repeated}"] if repeated else []
    return rows, files, notes + finder.notes()


def _located(root: Path, row: Row, finder: Finder) -> Path:
    """The file that a row means. Raises DataError, also if it is not in its place and lies in a folder of another split."""
    try:
        file = finder.find(row.image, *row.folders)
    except DataError as error:
        raise DataError(f"{row.where}: image: {error}") from None
    path = os.path.relpath(file, root)
    if not inside(root, path):
        raise DataError(f"{row.where}: image: {row.image!r} leaves the folder {root}; move the images below it")
    if row.image not in finder.elsewhere:
        return root / path
    meant, found = split_in(Path(row.where), root), split_in(file.parent / "_", root)
    if None not in (meant, found) and meant != found:
        text = f"{row.image!r} of split {meant} is missing, and {path} is of split {found}"
        raise DataError(f"{row.where}: image: {text}; put the images of {meant} there, or write the names as they are")
    return root / path


def _joined(rows: list[Row], own: Own) -> Row:
    """Join the rows of one image, the first of which has labels if any has.

    Raises DataError if they contradict each other, or name the image differently and differ; Question if each row of a table may
    be one label.
    """
    first, *others = rows
    for other in others:
        if own.format == "folders" and other.labels is None:
            continue
        place = f"{other.where}: image {other.image!r} is that of {first.where} ({first.image!r}) too"
        for key in ("split", "group"):
            if getattr(first, key) != getattr(other, key):
                raise DataError(f"{place}, with another {key}; give it one")
        is_label = own.format == "folders" or (own.rows == "label" and other.image == first.image)
        if is_label or (first.labels, first.absent) == (other.labels, other.absent):
            continue
        if own.format != "table" or other.image != first.image:
            raise DataError(f"{place}, with other labels; write names as they are, and keep one row or file (init-data --ignore)")
        text = f"{place}, with other labels; keep one with all labels in it (`a;b`); or is each row one label of its image?"
        raise Question(text, rows="label")
    labels, gone = (frozenset[str]().union(*(getattr(row, key) or () for row in rows)) for key in ("labels", "absent"))
    says_none = any(row.labels == frozenset() and row.absent is None and not row.empty for row in rows)
    if both := sorted(labels if says_none else labels & gone):
        raise DataError(f"{rows[-1].where}: image {first.image!r} shows {both[0]!r} by one row and not by another; keep one")
    return replace(first, labels=None if first.labels is None else labels, absent=None if first.absent is None else gone)


def _with_splits_of_folders(rows: list[Row]) -> tuple[list[Row], bool]:
    """Take splits from the names of folders (`train`, `test_images`) if the labels name none and several folders do.

    Return the rows, and whether splits were taken. Raises DataError if labelled images lie outside of these folders.
    """
    splits = [split_in(Path(row.image).parent / "_", Path()) for row in rows]
    named = {split: row for row, split in zip(rows, splits, strict=True) if row.labels is not None and row.split is None}
    if len(named) < 2 or any(row.split in ASSIGNED for row in rows):
        return rows, False
    if None in named:
        outside, within = named.pop(None), next(iter(named.values()))
        text = f"{outside.image} lies in no folder of a split, unlike {within.image}: which split is it of? Write a column split"
        raise DataError(f"{outside.where}: {text}, or name its folder train, val, test or unlabeled")
    return [replace(row, split=row.split or split) for row, split in zip(rows, splits, strict=True)], True


def _with_empty(rows: list[Row], empty: str, in_folders: bool) -> tuple[list[Row], list[str]]:
    """Decide what an empty row means (`own.empty`): no class is there, or the image is not labelled. Return the rows and notes.

    An empty row without a split is not labelled, unless the format lists labelled images only. Raises Question if cells are empty
    and splits are taken from folders (`in_folders`), if most rows are empty, if other rows say explicitly that classes are
    absent, or if no image of a split or a file has a label.
    """
    said = [row for row in rows if row.split != "unlabeled" and (row.labels is not None or (row.empty and row.split))]
    sizes = Counter(part for row in said for part in {row.split, row.where})
    filled = {part for row in said if row.labels or row.absent for part in (row.split, row.where)}
    lacking = {row for row in said if row.absent is None and any(sizes[part] > 1 for part in {row.split, row.where} - filled)}
    blank = {row for row in said if row.empty and not row.labels}
    bare = blank | lacking
    is_explicit = any(row.absent is not None or (not row.labels and not row.empty) for row in said)
    in_doubt = is_explicit or 2 * len(blank) > len(said) or (in_folders and any(row.labels is None for row in blank))
    is_open = lacking or (blank and in_doubt)
    if empty == "auto" and is_open and any(row.labels for row in said):
        row = next(row for row in said if row in bare)
        text = f"{len(bare)} of {len(said)} images have no label (the first: {row.image})"
        raise Question(f"{row.where}: {text}: none of the classes (--empty none), or not labelled?", empty="unlabeled")
    labels = None if empty == "unlabeled" else frozenset[str]()
    rows = [replace(row, labels=labels) if row in bare else row for row in rows]
    rows = [replace(row, split="unlabeled") if row.labels is None else row for row in rows]
    text = f"images without any label, taken to show none of the classes: {len(blank)} (own.empty reads them otherwise)"
    return rows, [text] if blank and empty == "auto" else []


def check_names(where: object, classes: Iterable[str]) -> None:
    """Raise DataError for a class whose name the table of imported labels could not hold."""
    for name in classes:
        controls = {unicodedata.category(letter) for letter in name} & {"Cc", "Cs"}
        if name in ("", "-", "*") or name[0] == "[" or ";" in name or controls:
            text = "no name may be empty, `-` or `*`, begin with `[`, or hold `;` or control characters"
            way = "rename it" if name else "write the class, or take the object, tag or answer out"
            raise DataError(f"{where}: class {name!r}: {text}; {way}")


def read_json(path: Path) -> Any:
    """The content of a file of annotations. Raises DataError."""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else error
        raise DataError(f"{path}: not readable as JSON ({why}); export it again, or move it out of the folder") from None


def split_of(text: str, where: str) -> str | None:
    """The split that a word names; None for an empty word. Raises DataError for any other word."""
    if text and text.casefold() not in SPLIT_NAMES:
        raise DataError(f"{where}: split: found {text!r}, allowed are train, val, test, unlabeled")
    return SPLIT_NAMES.get(text.casefold())


def split_in(path: Path, base: Path) -> str | None:
    """The split in the name of a file of annotations, as `instances_train2017.json`, or of a folder above the file."""
    return next((SPLIT_NAMES[word] for word in words_of(path, base) if word in SPLIT_NAMES), None)


def words_of(path: Path, base: Path) -> list[str]:
    """The words in the names of a file and of the folders above it, without numbers."""
    parts = [path.stem, *(path.parent.relative_to(base).parts if path.is_relative_to(base) else ())]
    return [word.rstrip("0123456789") for part in parts for word in re.split("[ _.-]", part.lower())]


def composed(name: object) -> str:
    """A name without surrounding blanks and in NFC, as tables hold it; some systems write an accent as a letter of its own."""
    return unicodedata.normalize("NFC", str(name).strip())
