"""The one path of every format: rows that say something of an image, the files they mean, and one item an image."""

import json
import posixpath
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
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


@dataclass(frozen=True)
class Row:
    """What one place of the labels says of one image.

    Attributes:
        image: the file, as it is written there.
        labels: names of its labels; None: not labelled.
        split: train, val, test or unlabeled; None where none is said.
        absent: names that are known not to be there, where nothing is known of the others; None: all but the labels.
        group: what it has in common with others that belong on the same side of every split.
        empty: whether nothing is said of it, which may mean that it has no label (`own.empty`).
        where: the place, for messages.
        folders: what the name may be relative to, beside the root.
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
    """The labels of a folder, as a reader of one format found them.

    Attributes:
        rows: what is said, in the order of the files.
        source: facts about where it came from.
        notes: lines a user should know.
        separated: the cells in which `;` separates names, joined; None: nothing separates names, or what does is said.
    """

    rows: list[Row]
    source: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    separated: str | None = None


def to_raw(root: Path, listing: Listing, own: Own, looking: bool = False) -> RawSet:
    """The rows as a raw set: an item an image, classes sorted by name, val counted as test where there is no test, else as train.

    A name that is said to be absent, or stands only at images that are missing, is no class.

    Args:
        looking: whether classes may be new, that is, none of `own.names`.

    Raises:
        DataError: rows contradict each other, no image has a label, a label's name cannot be written in a table, or it is none of
            `own.names`.
    """
    rows, files, notes = _one_each(root, listing, own)
    of_folders: list[str] = []
    if own.format != "folders":
        rows, of_folders = _with_splits_of_folders(rows)
    rows, of_empty = _with_empty(rows, own.empty, bool(of_folders))
    notes = [*listing.notes, *of_empty, *notes, *of_folders]
    val = "train" if any(row.split == "test" for row in rows) else "test"
    if count := sum(row.split == "val" for row in rows):
        notes.append(f"{count} images of split val count as {val}")
    if count := sum(row.split == "unlabeled" and bool(row.labels) for row in rows):
        notes.append(f"{count} images of split unlabeled have labels, which were ignored")
    leaves = {file.parent: linked_folder(file, root) for file in files if own.format != "folders"}
    images = FileImages(Path(), files, [leaves.get(file.parent) for file in files], upright=True)
    labelled = [(row, file) for row, file in zip(rows, files, strict=True) if row.labels and row.split != "unlabeled"]
    named = {name for row, _ in labelled for name in row.labels or ()}
    shown = {name for row, file in labelled for name in row.labels or () if file.is_file()} or named
    classes, lost = sorted(shown), sorted(named - shown)
    if not classes:
        raise DataError(f"{root}: none of {len(rows)} images has a label; label some, then try again")
    if lost:
        notes.append(f"names that only missing images have, which are no classes: {first_of(lost, 8)}")
    check_names(root, classes)
    if not looking and own.names is not None and (new := sorted({*classes} - {*own.names, *(own.new_classes or ())})):
        where = next(row.where for row in rows if new[0] in (row.labels or ()))
        text = f"{first_of(list(map(repr, new)), 3)}: no such class was there when init-data looked; correct it, or run"
        raise DataError(f"{where}: {text} `dicap-stage init-data {root}` again (--ignore leaves a file or folder out)")
    if strange := sorted({name for row in rows for name in row.absent or ()} - {*classes}):
        shown = first_of(strange, 8)
        notes.append(f"{len(strange)} names are said to be absent and are nowhere a label, so they are no classes: {shown}")
    number = {name: i for i, name in enumerate(classes)}
    items = []
    for row in rows:
        told = (None, None) if row.split == "unlabeled" else (row.labels, row.absent)
        labels, absent = (None if some is None else tuple(sorted(number[one] for one in some & number.keys())) for some in told)
        if labels is None or absent == () == labels:  # nothing is known of it
            labels = absent = None
        split = "unlabeled" if labels is None else val if row.split == "val" else row.split or "train"
        items.append(Item(row.image, row.image, split, labels, absent=absent, group=row.group))
    return RawSet(OWN, classes, items, images, listing.source, notes)


def _one_each(root: Path, listing: Listing, own: Own) -> tuple[list[Row], list[Path], list[str]]:
    """One row for each image, named by its path below the root, its file, and notes.

    Raises DataError where a name could be that of several files, leaves the folder or is an address, or rows contradict.
    """
    finder = Finder(root, [(row.image, row.folders) for row in listing.rows], moved=own.format == "labelstudio")
    located = [(row, _located(root, row, finder)) for row in listing.rows]
    if located and not any(file.is_file() for _, file in located) and (images := list_images(root, required=False)):
        row, _ = located[0]
        text = f"{row.image!r} is not below {root}, nor another that is named; there is {images[0]}"
        way = "put images there, write names as they are (with leading zeros), or name their column (init-data --image)"
        raise DataError(f"{row.where}: image: {text}; {way}")
    of_file: dict[object, list[tuple[Row, Path]]] = {}
    parted = Counter(
        mark for mark, split in {(same_file(file), row.split) for row, file in located} if split not in (None, "unlabeled")
    )
    for row, file in located:  # of links in several splits each is an image, as its copies would be
        mark = same_file(file)
        of_file.setdefault(file if parted[mark] > 1 else mark, []).append((row, file))
    rows, files, several, repeated = [], [], 0, []
    for same in of_file.values():
        same.sort(key=lambda pair: pair[0].labels is None)
        row, file = first, _ = same[0]
        # Rows of one file that say different things of it, one of which has not its very name, which may mean another file.
        spelled = [file.as_posix().endswith(posixpath.normpath(one.image.replace("\\", "/"))) for one, file in same]
        differ = not all(spelled) and len({(one.labels, one.absent, one.split, one.group) for one, _ in same}) > 1
        for other, _ in same[1:]:
            if differ and other.image != first.image:
                text = f"{other.image!r} is that of {first.where} ({first.image!r}) by another spelling, with other words"
                raise DataError(f"{other.where}: image {text}; one of the two may be missing: write the names as they are")
            if other.labels is not None or other.split not in (None, "unlabeled"):
                row = _united(row, other, own)
        rows.append(replace(row, image=relative_id(file, root), labels=_composed(row.labels), absent=_composed(row.absent)))
        files.append(file)
        several += row.labels != first.labels
        repeated += [rows[-1].image] if len(same) > 1 and row.labels == first.labels else []
    notes = [f"rows and links that repeat an image, counted once (the first: {repeated[0]})"] if repeated else []
    notes += [f"{several} images stand on several rows; their labels were joined"] if several else []
    return rows, files, notes + finder.notes()


def _united(first: Row, other: Row, own: Own) -> Row:
    """What two rows say of one image. Raises DataError where they contradict each other."""
    place = f"{other.where}: image {other.image!r} is that of {first.where} ({first.image!r}) too"
    for what in ("split", "group"):
        if getattr(first, what) != getattr(other, what):
            raise DataError(f"{place}, with another {what}; give it one")
    if other.labels is None:
        return first
    if (first.labels, first.absent) != (other.labels, other.absent) and own.format != "folders" and own.rows != "label":
        if own.format != "table":
            raise DataError(f"{place}, with other labels; keep one, or leave the other file out (init-data --ignore)")
        text = f"{place}, with other labels; keep one with all labels in it (`a;b`); or is each row one label of its image?"
        raise Question(text, rows="label")
    for one, more in ((first, other), (other, first)):
        if one.labels == frozenset() and one.absent is None and more.labels and not one.empty:
            raise DataError(f"{place}, where it has labels and shows none of the classes; keep one of them")
    labels = (first.labels or frozenset()) | (other.labels or frozenset())
    absent = None if first.absent is None or other.absent is None else first.absent | other.absent
    if both := sorted(labels & (absent or frozenset())):
        raise DataError(f"{place}, and shows {both[0]!r} by one row and not by another; keep one")
    return replace(first, labels=labels, absent=absent)


def _located(root: Path, row: Row, finder: Finder) -> Path:
    """The file that a row means. Raises DataError, also where one found by its name alone is among those of another split."""
    try:
        file = finder.find(row.image, *row.folders)
    except DataError as error:
        raise DataError(f"{row.where}: image: {error}") from None
    path = posixpath.normpath(file.relative_to(root).as_posix()) if file.is_relative_to(root) else str(file)
    if not inside(root, path):
        raise DataError(f"{row.where}: image: {row.image!r} leaves the folder {root}; move the images below it")
    if "://" in row.image and not file.is_file():
        raise DataError(f"{row.where}: image: {row.image!r} is an address; download the images and name their files")
    lies, named = split_in(file.parent / "_", root), Path("/", row.image.replace("\\", "/")).parent / "_"
    said = split_in(named, Path("/")) or split_in(Path(row.where), root)
    if row.image in finder.elsewhere and None not in (lies, said) and lies != said:
        text = f"{row.image!r} of split {said} is not there, and {relative_id(file, root)} is of split {lies}"
        raise DataError(f"{row.where}: image: {text}; put the images of {said} there, or write the names as they are")
    return root / path


def _with_splits_of_folders(rows: list[Row]) -> tuple[list[Row], list[str]]:
    """The rows with the splits that the images' folders name (`train`, `test_images`), where none is said; and notes if so.

    Labelled images beside these folders are of train: a test split that somebody made stays as it is.
    """
    splits = [split_in(Path(row.image).parent / "_", Path()) if row.split is None else None for row in rows]
    named = {*splits} - {None}
    beside = [row.labels is not None and row.split is None and split is None for row, split in zip(rows, splits, strict=True)]
    said = any(row.split not in (None, "unlabeled") and (row.empty or row.labels is not None) for row in rows)
    if said or not named or (len(named) == 1 and not any(beside)):
        return rows, []
    first = rows[beside.index(True)] if any(beside) else rows[0]
    if named == {"train"}:
        if any(part.lower() in SPLIT_NAMES for row in rows for part in Path(row.image).parts[:-1]):
            text = f"{first.image} lies beside a folder of split train, and no test split is said: which split is it of?"
            raise DataError(f"{first.where}: {text} Write a column split, or name its folder train, val, test or unlabeled")
        return rows, []
    notes = ["no split is said: each image has that of the folder it lies in (train, val, test)"]
    if count := sum(beside):
        notes.append(f"images beside these folders, taken to train: {count}, such as {first.image}")
    splits = ["train" if is_beside else split for is_beside, split in zip(beside, splits, strict=True)]
    return [replace(row, split=split) if split else row for row, split in zip(rows, splits, strict=True)], notes


def _with_empty(rows: list[Row], empty: str, in_folders: bool) -> tuple[list[Row], list[str]]:
    """The rows with what an image means of which nothing is said (`own.empty`), and notes.

    Without a split it is not labelled, but where the format lists labelled images alone. Nobody looked at it where none of the
    classes is said of other images, and in a split or a file in which no image has a label. Where the splits are those of
    folders (`in_folders`), most of the images are so, or all of a split are said to show none, that is a Question.
    """
    labelled = [row for row in rows if row.split != "unlabeled" and (row.labels is not None or (row.empty and row.split))]
    said = [row for row in labelled if row.absent is None]
    parts = {row: {row.split or row.where, row.where} for row in said}
    sizes = Counter(part for of_row in parts.values() for part in of_row)
    labelled_parts = {part for row in said if row.labels for part in parts[row]}
    idle = set()  # rows of which no other of the same split or file has a label
    if any(row.labels for row in labelled):
        idle = {row for row, of_row in parts.items() if any(sizes[part] > 1 for part in of_row - labelled_parts)}
    bare = [row for row in said if row.empty and row not in idle]
    none = [row for row in said if not row.empty and not row.labels]
    told = len(said) < len(labelled) or any(row not in idle for row in none)
    asked = [row for row in none if row in idle] or [row for row in bare if in_folders and row.labels is None]
    if not asked and not told and len(said) > len(bare) > (len(said) - len(idle)) / 2:
        asked = bare
    if empty == "auto" and asked:
        images = "images in folders of splits" if in_folders else f"of {len(said)} images"
        text = f"nothing is said of {len(asked)} {images} (the first: {asked[0].image})"
        raise Question(f"{asked[0].where}: {text}: none of the classes (--empty none), or not labelled?", empty="unlabeled")
    gone = set() if empty == "none" else idle | {row for row in bare if told or empty == "unlabeled"}
    labels = {row: None if row in gone else row.labels or frozenset() for row in said}
    rows = [replace(row, labels=labels.get(row, row.labels)) for row in rows]
    kept = sum(row.empty for row in rows if row.labels is not None)
    taken = (len(gone), "be not labelled", "none"), (kept, "show none of the classes", "unlabeled")
    text = "images of which nothing is said, taken to {1}: {0} (own.empty: {2} reads them otherwise)"
    rows = [replace(row, split="unlabeled") if row.labels is None else row for row in rows]
    return rows, [text.format(*one) for one in taken if one[0]]


def is_ignored(name: str, ignored: Iterable[str] | None) -> bool:
    """Whether a file is named as saying nothing: by its path below the folder, a folder above it, its ending (`.`: none), or a
    pattern such as `*_mask.png`.
    """
    path = Path(name)
    ways = {name, path.suffix.lower() or ".", *map(str, path.parents)} - ({"."} if path.suffix else set())
    return any(one.rstrip("/") in ways or one.lower() in ways or fnmatchcase(name, one) for one in ignored or ())


def check_names(where: object, classes: Iterable[str]) -> None:
    """Refuse names of classes that the table of imported labels could not hold. Raises DataError."""
    for name in classes:
        if name in ("", "-", "*") or ";" in name or has_control(name):
            raise DataError(
                f"{where}: class {name!r}: no name is empty, `-` or `*`, or holds `;` or control characters; rename it"
            )


def has_control(text: str) -> bool:
    """Whether a text holds a control character, such as the end of a line, or a byte that is no letter of UTF-8."""
    return any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text)


def read_json(path: Path) -> Any:
    """The content of a file of annotations. Raises DataError."""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else error
        raise DataError(f"{path}: not readable as JSON ({why}); export it again, or move it out of the folder") from None


def split_of(text: str, where: str) -> str | None:
    """The split that a word says; None where it is empty. Raises DataError for any other word."""
    if text and text.casefold() not in SPLIT_NAMES:
        raise DataError(f"{where}: split: found {text!r}, allowed are train, val, test, unlabeled")
    return SPLIT_NAMES.get(text.casefold())


def split_in(path: Path, base: Path) -> str | None:
    """The split that the name of a file of annotations or a folder above it says, as `instances_train2017.json` does."""
    return next((SPLIT_NAMES[word] for word in words_of(path, base) if word in SPLIT_NAMES), None)


def words_of(path: Path, base: Path) -> list[str]:
    """The words in a file's name and those of the folders above it, without numbers."""
    parts = [path.stem, *(path.parent.relative_to(base).parts if path.is_relative_to(base) else ())]
    return [word.rstrip("0123456789") for part in parts for word in re.split("[ _.-]", part.lower())]


def _composed(names: frozenset[str] | None) -> frozenset[str] | None:
    """Names as tables hold them: without blanks around, and as NFC (some systems write an accent as a letter of its own)."""
    return None if names is None else frozenset(unicodedata.normalize("NFC", name).strip() for name in names)


def relative_id(file: Path, root: Path) -> str:
    """An image's name: its path below the root, as text that can be written."""
    return readable(file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name)
