"""The one path of every format: rows that say something of an image, the files they mean, and one item an image."""

import csv
import io
import json
import os
import posixpath
import shlex
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dicap.data.sources.base import FileImages, Item, RawSet, inside
from dicap.data.sources.files import linked_folder, list_images, readable, same_file
from dicap.errors import DataError, first_of
from dicap.settings import Own
from dicap.settings.catalogue import OWN

SPLIT_WORDS = {
    "train": ("train", "training", "trainval"),
    "test": ("test", "testing"),
    "val": ("val", "valid", "validation", "dev"),
    "unlabeled": ("unlabeled", "unlabelled"),
}
LONGEST = 255  # bytes of a file's name, on most disks
SPLIT_NAMES = {word: split for split, words in SPLIT_WORDS.items() for word in words}


@dataclass(frozen=True)
class Row:
    """What one place of the labels says of one image.

    Attributes:
        image: the file, as it is written there.
        labels: names of its labels; None: not labelled.
        split: train, val, test or unlabeled; None where none is said.
        absent: names that are known not to be there, where nothing is known of the others; None: all but the labels.
        group: what it has in common with others that belong on the same side of every split.
        empty: whether the labels are none because nothing is said of them.
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
        joined: whether the labels of one image stand in several rows in any case.
        moved: whether the names are those of another machine, even where some are found here.
        literal: whether a missing value is no text, so that the text `NA` is a name.
    """

    rows: list[Row]
    source: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    joined: bool = False
    moved: bool = False
    literal: bool = False


def to_raw(root: Path, listing: Listing, own: Own) -> RawSet:
    """The rows as a raw set: an item an image, classes sorted by name, val counted as test where there is no test, else as train.

    A name that is said to be absent, or stands at missing images, and is no label of an image that is here is no class.

    Raises:
        DataError: rows contradict each other, no image has a label, a label's name cannot be written in a table, or it is none of
            `own.names`.
    """
    rows, files, notes = _one_each(root, listing, own)
    rows = [replace(row, labels=_composed(row.labels), absent=_composed(row.absent)) for row in rows]
    rows = [replace(row, split="unlabeled") if row.labels is None and row.split else row for row in rows]
    if own.format != "folders":
        rows, more = _with_splits_of_folders(rows)
        notes += more
    notes = [*listing.notes, *notes]
    val = "train" if any(row.split == "test" for row in rows) else "test"
    if count := sum(row.split == "val" for row in rows):
        notes.append(f"{count} images of split val count as {val}")
    if count := sum(row.split == "unlabeled" and bool(row.labels) for row in rows):
        notes.append(f"{count} images of split unlabeled have labels, which were ignored")
    named = {name for row in rows if row.split != "unlabeled" for name in row.labels or ()}
    here = [row for row, file in zip(rows, files, strict=True) if file.is_file() and row.split != "unlabeled"]
    classes = sorted({name for row in here for name in row.labels or ()} or named)
    if not classes:
        raise DataError(f"{root}: none of {len(rows)} images has a label; label some, then try again")
    if lost := sorted(named - {*classes}):
        notes.append(f"names that only missing images have, which are no classes: {first_of(lost, 8)}")
    check_names(root, classes)
    if own.names is not None and (new := sorted({*classes} - {*own.names, *(own.new_classes or ())})):
        where = next(row.where for row in rows if new[0] in (row.labels or ()))
        raise DataError(
            f"{where}: {first_of(list(map(repr, new)), 3)}: no such class was there when init-data looked; correct it, or run "
            f"`dicap-stage init-data {root}` again, with --ignore for a file or folder that says nothing about labels"
        )
    if strange := sorted({name for row in rows for name in row.absent or ()} - {*classes}):
        shown = ", ".join(strange[:8]) + (" ..." if len(strange) > 8 else "")
        notes.append(f"{len(strange)} names are said to be absent and are nowhere a label, so they are no classes: {shown}")
    number = {name: i for i, name in enumerate(classes)}
    items = []
    for row in rows:
        labels = absent = None
        if row.labels is not None and row.split != "unlabeled":
            labels = tuple(sorted(number[name] for name in row.labels if name in number))
            absent = None if row.absent is None else tuple(sorted(number[name] for name in row.absent if name in number))
        if absent == () == labels:  # nothing is known of it
            labels = absent = None
        split = "unlabeled" if labels is None else val if row.split == "val" else row.split or "train"
        items.append(Item(row.image, row.image, split, labels, absent=absent, group=row.group))
    leaves = {file.parent: linked_folder(file, root) for file in files if own.format != "folders"}
    images = FileImages(Path(), files, [leaves.get(file.parent) for file in files], upright=True)
    return RawSet(OWN, classes, items, images, listing.source, notes)


def _one_each(root: Path, listing: Listing, own: Own) -> tuple[list[Row], list[Path], list[str]]:
    """One row a file, whose `image` is its name in the set, with the file: links to it and rows that repeat it are one.

    A file that is nowhere keeps its name, and `convert` says that it is missing. A row without labels says at most a split beside
    others.

    Raises:
        DataError: a name could mean several files, leaves the folder or is an address; rows of one file contradict each other.
    """
    finder = Finder(root, ((row.image, row.folders) for row in listing.rows), listing.moved)
    located = [(row, _located(root, row, finder)) for row in listing.rows]
    for row, file in located:
        if finder.is_elsewhere(row.image):
            _check_split(root, row, file)
    if located and not any(file.is_file() for _, file in located) and (images := list_images(root, required=False)):
        row = located[0][0]
        raise DataError(
            f"{row.where}: image: {row.image!r} is not below {root}, nor another that is named; there is {images[0]}. Put images "
            "there, write names as they are (a spreadsheet takes away leading zeros), or name their column (init-data --image)"
        )
    of_file: dict[object, list[tuple[Row, Path]]] = {}
    for row, file in located:
        of_file.setdefault(same_file(file), []).append((row, file))
    rows, files, several, repeated = [], [], 0, []
    for found in of_file.values():
        known = [(row, file) for row, file in found if row.labels is not None] or found[:1]
        first, file = known[0]
        row = first
        bare = [(row, file) for row, file in found if row.labels is None and row.split not in (None, "unlabeled")]
        for other, _ in known[1:] + bare:
            row = _united(row, other, listing.joined, own)
        rows.append(replace(row, image=relative_id(file, root)))
        files.append(file)
        if row.labels != first.labels:
            several += 1
        elif len(found) > 1:
            repeated.append(rows[-1].image)
    notes = [f"rows and links that repeat an image, counted once (the first: {repeated[0]})"] if repeated else []
    notes += [f"{several} images stand on several rows; their labels were joined"] if several else []
    return rows, files, notes + finder.notes()


def _check_split(root: Path, row: Row, file: Path) -> None:
    """Refuse a file that was found by its name alone among those of another split than the row's name or file says."""
    lies, named = split_in(file.parent / "_", root), Path("/", row.image.replace("\\", "/")).parent / "_"
    said = split_in(named, Path("/")) or split_in(Path(row.where), root)
    if None not in (lies, said) and lies != said:
        raise DataError(
            f"{row.where}: image: {row.image!r} of split {said} is not there; {relative_id(file, root)} is of split {lies}; put "
            f"the images of {said} there, or write the names as they are"
        )


def _united(first: Row, other: Row, joined: bool, own: Own) -> Row:
    """What two rows say of one image. Raises DataError where they contradict each other."""
    place = f"{other.where}: image {other.image!r} is that of {first.where} ({first.image!r}) too"
    for what in ("split", "group"):
        if getattr(first, what) != getattr(other, what):
            raise DataError(f"{place}, with another {what}; give it one")
    if other.labels is None:
        return first
    same = (first.labels, first.absent) == (other.labels, other.absent)
    if not same and not joined and own.rows != "label":
        other_way = "or leave the other file out (init-data --ignore)"
        if own.format in (None, "table"):
            other_way = "or, if each row is one label of its image, set own.rows to label (init-data --rows label)"
        raise DataError(f"{place}, with other labels; keep one with all labels in it (`a;b`), {other_way}")
    for one, more in ((first, other), (other, first)):
        if one.labels == frozenset() and one.absent is None and more.labels and not one.empty:
            raise DataError(f"{place}, where it has labels and shows none of the classes; keep one of them")
    labels = (first.labels or frozenset()) | (other.labels or frozenset())
    absent = None if None in (first.absent, other.absent) else first.absent | other.absent  # type: ignore[operator]
    if both := sorted(labels & (absent or frozenset())):
        raise DataError(f"{place}, and shows {both[0]!r} by one row and not by another; keep one")
    return replace(first, labels=labels, absent=absent)


def _located(root: Path, row: Row, finder: "Finder") -> Path:
    """The file that a row means. Raises DataError."""
    try:
        file = finder.find(row.image, *row.folders)
    except DataError as error:
        raise DataError(f"{row.where}: image: {error}") from None
    path = posixpath.normpath(file.relative_to(root).as_posix()) if file.is_relative_to(root) else str(file)
    if not inside(root, path):
        raise DataError(f"{row.where}: image: {row.image!r} leaves the folder {root}; move the images below it")
    if "://" in row.image and not file.is_file():
        raise DataError(f"{row.where}: image: {row.image!r} is an address; download the images and name their files")
    return root / path


def _with_splits_of_folders(rows: list[Row]) -> tuple[list[Row], list[str]]:
    """The rows with the splits that the images' folders name, where none is said and all lie in such folders; and a note."""
    found = [split_in(Path("/", row.image).parent / "_", Path("/")) for row in rows]
    if any(row.split is not None for row in rows) or not {"train"} < {*found} <= {"train", "val", "test"}:
        return rows, []
    note = "no split is said: each image has that of the folder it lies in (train, val, test)"
    return [replace(row, split=split) for row, split in zip(rows, found, strict=True)], [note]


def is_ignored(name: str, ignored: Iterable[str] | None) -> bool:
    """Whether a file is named as saying nothing: by its path below the folder, a folder above it, or its ending (`.`: none)."""
    path = Path(name)
    ways = {name, path.suffix.lower() or ".", *map(str, path.parents)} - ({"."} if path.suffix else set())
    return any(one.rstrip("/") in ways or one.lower() in ways for one in ignored or ())


def check_names(where: object, classes: Iterable[str]) -> None:
    """Refuse names of classes that the table of imported labels could not hold. Raises DataError."""
    for name in classes:
        if name in ("", "-", "*") or ";" in name or has_control(name):
            raise DataError(
                f"{where}: class {name!r}: no name, `-`, `*`, `;` and control characters mean something else in tables; rename it"
            )


def as_read(options: Mapping[str, str | list[str]]) -> str:
    """The end of a question: the options of `init-data` that say the reading which would be chosen."""
    words = " ".join(f"--{key.replace('_', '-')} {typed(listed(value))}" for key, value in options.items() if value)
    return f" -- as it would be read: init-data {words}"


def typed(text: str) -> str:
    """A text as a shell takes it; what cannot be seen by its number."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(one if one.isalnum() else f"\\U{ord(one):08x}" for one in text) + "'"


def listed(value: str | list[str]) -> str:
    """Values as the options of `init-data` take them: a comma between, those that hold one in quotes."""
    if isinstance(value, str):
        return value
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(value)
    return text.getvalue()


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


def split_in(path: Path, base: Path) -> str | None:
    """The split that the name of a file of annotations or a folder above it says, as `instances_train2017.json` does."""
    return next((SPLIT_NAMES[word] for word in words_of(path, base) if word in SPLIT_NAMES), None)


def words_of(path: Path, base: Path) -> list[str]:
    """The words in a file's name and those of the folders above it, without numbers."""
    words = path.stem.lower().replace("-", "_").replace(".", "_").split("_")
    words += [part.lower() for part in path.parent.relative_to(base).parts] if path.is_relative_to(base) else []
    return [word.rstrip("0123456789") for word in words]


def _composed(names: frozenset[str] | None) -> frozenset[str] | None:
    """Names as tables hold them: without blanks around, and as NFC (some systems write an accent as a letter of its own)."""
    return None if names is None else frozenset(unicodedata.normalize("NFC", name).strip() for name in names)


class Finder:
    """Finds the file that an annotation means, which is often not where the annotation says it is.

    Capitals, composed or decomposed accents, blanks around, backslashes and a missing ending do not matter. Where no file of the
    list is in its place, the folders are those of another machine: then an image below the root is meant as whose path the name
    ends, or whose path ends as the name. Where some are in place, the others are missing: one by the name of another folder's may
    be another photograph.

    Args:
        root: the folder of the data set.
        wanted: the names, each with the folders that it may be relative to, beside the root.
        moved: whether the folders are those of another machine in any case.
    """

    def __init__(self, root: Path, wanted: Iterable[tuple[str, tuple[Path, ...]]], moved: bool = False) -> None:
        self._root = root
        self._elsewhere: dict[str, str] = {}
        self._moved = moved or not any(self._is_in_place(name, folders) for name, folders in wanted)

    def find(self, name: str, *folders: Path) -> Path:
        """The file `name` below one of the folders or the root; one that is nowhere as it was meant, and is missing.

        Raises:
            DataError: it is no name of a file, or more than one file could be meant.
        """
        if (file := self._in_place(name, folders)) is not None:
            return file
        meant = name.strip().replace("\\", "/")
        parts = _plain(meant).split("/")
        if ".." in parts:
            return (folders or (self._root,))[0] / meant
        found: list[str] = []
        if self._moved:
            found = self._tails.get("/".join(parts), [])
            found = found or next(filter(None, (self._whole("/".join(parts[k:])) for k in range(1, len(parts)))), [])
        if not found:
            return self._root / meant.lstrip("/")
        self._elsewhere[name] = self._only(name, found)
        return self._root / self._elsewhere[name]

    @staticmethod
    def _at(folder: Path, name: str) -> Path | None:
        """The file of a name, or of the name without blanks around or with slashes, in a folder."""
        spellings = (name, name.strip(), name.strip().replace("\\", "/").lstrip("/"))
        return next((folder / one for one in spellings if os.path.isfile(folder / one)), None)

    def is_elsewhere(self, name: str) -> bool:
        """Whether the file was found by the end of its path alone."""
        return name in self._elsewhere

    def notes(self) -> list[str]:
        """A line if images were found elsewhere than where they were said to be."""
        first = next(iter(self._elsewhere.items()), None)
        count = len(self._elsewhere)
        return [f"images found under another name: {count} ({first[0]} is {readable(first[1])})"] if first else []

    def _is_in_place(self, name: str, folders: Iterable[Path]) -> bool:
        try:
            return self._in_place(name, folders) is not None
        except DataError:  # which `find` raises of the row in question
            return False

    def _in_place(self, name: str, folders: Iterable[Path]) -> Path | None:
        try:
            is_name = "\0" not in name and len(os.fsencode(name.rpartition("/")[2])) <= LONGEST
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON can hold
            is_name = False
        if not is_name:
            raise DataError(f"{name[:60]!r} is no name of a file; correct it")
        simple = name.strip().replace("\\", "/").lstrip("/")
        if ".." in simple.split("/"):
            return None
        if os.path.isabs(name) and os.path.isfile(name):  # whose folder may be named by way of a link
            file = Path(os.path.realpath(Path(name).parent), Path(name).name)
            return self._root / os.path.relpath(file, os.path.realpath(self._root))
        places = [*folders, self._root]
        if (file := self._at(places[0], name)) is not None:  # where such annotations have their images; else it has to be plain
            return file
        files = [file for folder in places[1:] if (file := self._at(folder, name)) is not None]
        if files:
            found = [os.path.relpath(file, self._root) for file in {same_file(file): file for file in files}.values()]
            if files[0].parent == (self._root / simple).parent:
                found += [image for image in self._tails.get(_plain(simple), ()) if image not in found]
            return self._root / self._only(name, found)
        for folder in places:
            if found := self._whole(_plain(os.path.relpath(folder / simple, self._root))):
                return self._root / self._only(name, found)
        return None

    def _only(self, name: str, found: list[str]) -> str:
        if len(found) > 1:
            raise DataError(f"{name!r} could be {readable(found[0])} or {readable(found[1])}; write its folder and ending too")
        return found[0]

    def _whole(self, path: str) -> list[str]:
        """The images whose path this is, but for its spelling."""
        return [image for image in self._tails.get(path, ()) if image.count("/") == path.count("/")]

    @cached_property
    def _tails(self) -> dict[str, list[str]]:
        """The images below the root by each end of their paths, as `b/c.jpg` and `b/c` of `a/b/c.jpg`."""
        found: dict[str, list[str]] = {}
        for image in list_images(self._root, required=False):
            parts = _plain(image).split("/")
            for k in range(len(parts)):
                tail = "/".join(parts[k:])
                for spelled in {tail, tail.removesuffix(Path(tail).suffix)}:
                    found.setdefault(spelled, []).append(image)
        return found


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def relative_id(file: Path, root: Path) -> str:
    """An image's name: its path below the root, as text that can be written."""
    return readable(file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name)
