"""The path that every format shares: rows about images, the files that the rows mean, and one item for each image."""

import json
import posixpath
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dicap.data.sources.base import FileImages, Item, RawSet, inside
from dicap.data.sources.files import is_image_name, linked_folder, list_images, readable, same_file
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
    rows, of_folders = (rows, []) if own.format == "folders" else _with_splits_of_folders(rows)
    rows, of_empty = _with_empty(rows, own.empty, bool(of_folders))
    notes = [*listing.notes, *of_empty, *notes, *of_folders]
    val = "train" if any(row.split == "test" for row in rows) else "test"
    if count := sum(row.split == "val" for row in rows):
        notes.append(f"{count} images of split val count as {val}")
    if count := sum(row.split == "unlabeled" and bool(row.labels) for row in rows):
        notes.append(f"{count} images of split unlabeled have labels, which are ignored")
    leaves = {file.parent: linked_folder(file, root) for file in files if own.format != "folders"}
    images = FileImages(Path(), files, [leaves.get(file.parent) for file in files], upright=True)
    labelled = [(row, file) for row, file in zip(rows, files, strict=True) if row.labels and row.split != "unlabeled"]
    places = {name: row.where for row, _ in reversed(labelled) for name in row.labels or ()}
    shown = {name for row, file in labelled for name in row.labels or () if file.is_file()} or {*places}
    classes, lost = sorted(shown), sorted(places.keys() - shown)
    if not classes:
        raise DataError(f"{root}: none of {len(rows)} images has a label; label some, then try again")
    if lost:
        notes.append(f"names that only missing images have, so they are no classes: {first_of(lost, 8)}")
    for name in sorted(places.keys() & {*classes, ""}):
        check_names(root if own.format == "folders" else places[name], [name])
    if not looking and own.names is not None and (new := sorted({*classes} - {*own.names, *(own.new_classes or ())})):
        text = f"{first_of(list(map(repr, new)), 3)}: no such class was there when init-data looked; correct it, or run"
        raise DataError(f"{places[new[0]]}: {text} `dicap-stage init-data {root}` again (--ignore leaves a file or folder out)")
    if unused := sorted({name for row in rows for name in row.absent or ()} - {*classes}):
        text = f"{len(unused)} names that rows call absent and no image has as a label, so they are no classes"
        notes.append(f"{text}: {first_of(unused, 8)}")
    number = {name: i for i, name in enumerate(classes)}
    items = []
    for row in rows:
        known = row.labels, row.absent
        labels, absent = (None if names is None else tuple(sorted(number[n] for n in names & number.keys())) for names in known)
        if row.split == "unlabeled" or labels is None or absent == () == labels:  # nothing is known of the image
            labels = absent = None
        split = "unlabeled" if labels is None else val if row.split == "val" else row.split or "train"
        items.append(Item(row.image, row.image, split, labels, absent=absent, group=row.group))
    return RawSet(OWN, classes, items, images, listing.source, notes)


def _one_each(root: Path, listing: Listing, own: Own) -> tuple[list[Row], list[Path], list[str]]:
    """Return one row for each image, named by its path below the root, the files of the images, and notes.

    Raises DataError if a name could mean several files, leaves the folder or is an address, or if rows contradict each other.
    """
    finder = Finder(root, [(row.image, row.folders) for row in listing.rows], own.ignore, moved=own.format == "labelstudio")
    located = [(row, _located(root, row, finder)) for row in listing.rows]
    if located and not any(file.is_file() for _, file in located) and (images := list_images(root, required=False)):
        row, _ = located[0]
        text = f"neither {row.image!r} nor any other image that is named lies below {root}; {images[0]} does"
        way = "put images there, write names as they are (with leading zeros), or name their column (init-data --image)"
        raise DataError(f"{row.where}: image: {text}; {way}")
    have_endings = 2 * sum(is_image_name(row.image.strip()) for row, _ in located) > len(located)
    for row, file in located:
        if have_endings and not is_image_name(row.image.strip()) and not file.is_file():  # as a last row `Total`
            text = f"{row.image!r} is no name of an image, unlike others, and no such file is there"
            raise DataError(f"{row.where}: image: {text}; take the row out, or write the file's name")
    of_file: dict[object, list[tuple[Row, Path]]] = {}
    splits_of = Counter(mark for mark, split in {(same_file(file), row.split) for row, file in located} if split in ASSIGNED)
    for row, file in located:  # links to one file from several splits are several images, as copies would be
        mark = same_file(file)
        of_file.setdefault(file if splits_of[mark] > 1 else mark, []).append((row, file))
    rows, files, joined, repeated, spelled = [], [], 0, [], []
    for pairs in of_file.values():
        pairs.sort(key=lambda pair: pair[0].labels is None)
        row, file = first, _ = pairs[0]
        # If rows of one file differ, and one row spells the file's name otherwise, that row may mean another file.
        odd = [one.image for one, file in pairs if not file.as_posix().endswith(_normal(one.image))]
        differ = odd and len({(one.labels, one.absent, one.split, one.group) for one, _ in pairs}) > 1
        named = not have_endings and file.with_suffix("").as_posix().endswith(_normal(odd[0])) if odd else True
        if not named and odd[0] not in finder.elsewhere:
            spelled += [f"{odd[0]!r} is {relative_id(file, root)!r}"] * file.is_file()
        for other, _ in pairs[1:]:
            if differ and other.image != first.image:
                text = f"{other.image!r} is read as {first.image!r} of {first.where}, which says something else"
                raise DataError(f"{other.where}: image: {text}; one of the files may be missing: write the names as they are")
            if other.labels is not None or other.split in ASSIGNED:
                row = _united(row, other, own)
        labels, absent = (names and frozenset(map(composed, names)) for names in (row.labels, row.absent))
        rows.append(replace(row, image=relative_id(file, root), labels=labels, absent=absent))
        files.append(file)
        joined += row.labels != first.labels
        repeated += [rows[-1].image] if len(pairs) > 1 and row.labels == first.labels else []
    notes = [f"rows and links that repeat an image, counted once (the first: {repeated[0]})"] if repeated else []
    notes += [f"{joined} images stand on several rows; their labels were joined"] if joined else []
    notes += [f"images whose files spell their names otherwise: {len(spelled)} ({spelled[0]})"] if spelled else []
    return rows, files, notes + finder.notes()


def _united(first: Row, other: Row, own: Own) -> Row:
    """Join two rows of one image. Raises DataError if they contradict each other."""
    place = f"{other.where}: image {other.image!r} is that of {first.where} ({first.image!r}) too"
    for key in ("split", "group"):
        if getattr(first, key) != getattr(other, key):
            raise DataError(f"{place}, with another {key}; give it one")
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
    """The file that a row means. Raises DataError, also if only the file's name matches and the file is of another split."""
    try:
        file = finder.find(row.image, *row.folders)
    except DataError as error:
        raise DataError(f"{row.where}: image: {error}") from None
    path = posixpath.normpath(file.relative_to(root).as_posix()) if file.is_relative_to(root) else str(file)
    if not inside(root, path):
        raise DataError(f"{row.where}: image: {row.image!r} leaves the folder {root}; move the images below it")
    if "://" in row.image and not file.is_file():
        raise DataError(f"{row.where}: image: {row.image!r} is an address; download the images and name their files")
    found, named = split_in(file.parent / "_", root), Path("/", row.image.replace("\\", "/")).parent / "_"
    meant = split_in(named, Path("/")) or split_in(Path(row.where), root)
    if row.image in finder.elsewhere and None not in (found, meant) and found != meant:
        text = f"{row.image!r} of split {meant} is missing, and {relative_id(file, root)} is of split {found}"
        raise DataError(f"{row.where}: image: {text}; put the images of {meant} there, or write the names as they are")
    return root / path


def _with_splits_of_folders(rows: list[Row]) -> tuple[list[Row], list[str]]:
    """Take splits from the names of folders (`train`, `test_images`) if the labels name none. Return the rows and notes.

    Labelled images outside these folders are of split train: a test split that a person made stays as it is.
    """
    splits = [split_in(Path(row.image).parent / "_", Path()) if row.split is None else None for row in rows]
    named = {*splits} - {None}
    outside = [row for row, split in zip(rows, splits, strict=True) if row.labels is not None and row.split is split is None]
    if not named or (len(named) == 1 and not outside):
        return rows, []
    if any(row.split in ASSIGNED and (row.empty or row.labels is not None) for row in rows):
        return rows, []
    if named == {"train"}:
        if any(part.lower() in SPLIT_NAMES for row in rows for part in Path(row.image).parts[:-1]):
            text = f"{outside[0].image} lies beside a folder of split train, and no test split is named: which split is it of?"
            raise DataError(f"{outside[0].where}: {text} Write a column split, or name its folder train, val, test or unlabeled")
        return rows, []
    notes = ["the labels name no split: each image is of the split that its folder names (train, val, test)"]
    if outside:
        notes.append(f"images outside these folders, taken to train: {len(outside)}, such as {outside[0].image}")
    named_splits = dict.fromkeys(outside, "train") | {row: split for row, split in zip(rows, splits, strict=True) if split}
    return [replace(row, split=named_splits.get(row, row.split)) for row in rows], notes


def _with_empty(rows: list[Row], empty: str, in_folders: bool) -> tuple[list[Row], list[str]]:
    """Decide what an empty row means (`own.empty`): no class is there, or the image is not labelled. Return the rows and notes.

    An empty row without a split is not labelled, unless the format lists labelled images only. An empty row is also not labelled
    if other rows say explicitly that no class is there, or if no image of its split or file has a label. Raises Question if
    splits are taken from folders (`in_folders`), if most rows are empty, or if all rows of a split say that no class is there.
    """
    labelled = [row for row in rows if row.split != "unlabeled" and (row.labels is not None or (row.empty and row.split))]
    whole = [row for row in labelled if row.absent is None]  # rows that say something of every class
    parts = {row: {row.split or row.where, row.where} for row in whole}
    sizes = Counter(part for of_row in parts.values() for part in of_row)
    labelled_parts = {part for row in whole if row.labels for part in parts[row]}
    unlabelled = set()  # rows whose split or file has no label at all
    if any(row.labels for row in labelled):
        unlabelled = {row for row, of_row in parts.items() if any(sizes[part] > 1 for part in of_row - labelled_parts)}
    bare = [row for row in whole if row.empty and row not in unlabelled]
    negatives = [row for row in whole if not row.empty and not row.labels]
    is_explicit = len(whole) < len(labelled) or any(row not in unlabelled for row in negatives)
    doubtful = [row for row in negatives if row in unlabelled] or [row for row in bare if in_folders and row.labels is None]
    if not doubtful and not is_explicit and len(whole) > len(bare) > (len(whole) - len(unlabelled)) / 2:
        doubtful = bare
    if empty == "auto" and doubtful:
        images = "images in folders of splits" if in_folders else f"of {len(whole)} images"
        text = f"{len(doubtful)} {images} have no label (the first: {doubtful[0].image})"
        raise Question(f"{doubtful[0].where}: {text}: none of the classes (--empty none), or not labelled?", empty="unlabeled")
    unlabelled = set() if empty == "none" else unlabelled | {row for row in bare if is_explicit or empty == "unlabeled"}
    labels = {row: None if row in unlabelled else row.labels or frozenset() for row in whole}
    rows = [replace(row, labels=labels.get(row, row.labels)) for row in rows]
    kept = sum(row.empty for row in rows if row.labels is not None)
    readings = (len(unlabelled), "be not labelled", "none"), (kept, "show none of the classes", "unlabeled")
    text = "images without any label, taken to {1}: {0} (own.empty: {2} reads them otherwise)"
    rows = [replace(row, split="unlabeled") if row.labels is None else row for row in rows]
    return rows, [text.format(*reading) for reading in readings if reading[0]]


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


def _normal(name: str) -> str:
    """A name as a path with forward slashes."""
    return posixpath.normpath(name.replace("\\", "/"))


def composed(name: object) -> str:
    """A name without surrounding blanks and in NFC, as tables hold it; some systems write an accent as a letter of its own."""
    return unicodedata.normalize("NFC", str(name).strip())


def relative_id(file: Path, root: Path) -> str:
    """An image's id: its path below the root, as text that can be written."""
    return readable(file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name)
