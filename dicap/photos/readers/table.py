"""`table`: anybody's own images, listed in a CSV or Parquet file with a column of images and one of labels, or one a class."""

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dicap.data.sources.base import inside
from dicap.data.sources.files import files_ending
from dicap.errors import DataError
from dicap.files.checksum import sha256
from dicap.photos.readers import sheet as sheets
from dicap.photos.readers.listing import SPLIT_NAMES, Entry, Finder, Listing, has_control, split_in
from dicap.photos.readers.sheet import Labels, Sheet, one_hot, plain, read_sheet
from dicap.settings.catalogue import FORMATS

NAMES = ("labels.csv", "labels.parquet")
REPEATED = 0.1  # share of images on several rows above which a row is one label of an image, not the image
SAID = ("train", "val", "test")  # splits of which an image has labels, perhaps none of the classes


@dataclass
class Row:
    """An image as a table lists it: its name there, the split if one is said, and its labels (None: not labelled).

    `absent`: classes that it is said not to show; None where that is all but its labels.
    """

    sheet: Sheet
    number: int
    image: str
    split: str | None
    labels: list[str] | None
    absent: list[str] | None = None
    empty: bool = False  # the cell of labels is empty
    silent: bool = False  # the cell of absent classes is empty

    @property
    def said(self) -> tuple[str | None, tuple[str, ...], tuple[str, ...] | None]:
        """What it says of its image, to be compared."""
        return self.split, tuple(self.labels or ("",)), None if self.absent is None else tuple(self.absent)

    def error(self, text: str) -> DataError:
        """An error of this row."""
        return self.sheet.error(self.number, text)


@dataclass
class Listed:
    """All rows of all tables, and what a user should know about how they were read."""

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    none: bool = False  # somewhere `-` says none of the classes, or a column of absent classes says something


def read(root: Path, *, separator: str = "auto", empty: str = "auto", empty_absent: str = "auto") -> Listing:
    """Read the table, or the tables of several splits.

    `root` is the folder that holds labels.csv or labels.parquet, another table with heads one knows, or a table for each split;
    or the file itself. Columns are found by their heads (`dicap.photos.readers.sheet`). Without a column of splits, or where
    its cell is empty, a row with labels is a training image, and one without is not labelled. The classes are the names found.

    With a column `absent` beside that of labels, a row says which classes are there and which are not; nothing is known of its
    other classes. `-` among the labels still says that all are absent; in `absent` it says that no class is known to be, and `*`
    that all but the labels are.

    Args:
        separator: what separates names in a cell; auto: `;`, and a question where something else might.
        empty: what an empty cell of labels means in a row of split train or test: `none` of the classes, `unlabeled`, or
            `auto`: unlabelled where `-` says none in the same table, or another column says what is absent, else none of the
            classes.
        empty_absent: what an empty cell of `absent` says of the classes that a row with labels does not name: they are `unknown`
            or `absent`; `auto`: a question.

    Raises:
        DataError: a file or one of its rows is not as described; names the line.
    """
    paths = find(root)
    base = root if root.is_dir() else root.parent
    listed = Listed()
    for path in paths:
        _read_one(path, split_in(path, base) if len(paths) > 1 else None, separator, listed)
    if not listed.rows:
        raise DataError(f"{paths[0]}: no rows; list the images, one a row")
    _interpret_empty(listed, empty)
    _interpret_absent(listed, empty_absent)
    labels = {name for row in listed.rows if row.split != "unlabeled" for name in row.labels or ()}
    absent = {name for row in listed.rows for name in row.absent or ()}
    if absent and not absent & labels:
        raise DataError(f"{paths[0]}: column absent: {min(absent)!r} is no label of any row, nor is any other name; correct it")
    source = {"table": ", ".join(path.relative_to(base).as_posix() for path in paths), "sha256": sha256(paths[0])}
    return Listing(paths[0], _merge(listed, base), source | {"read": listed.facts}, listed.notes)


def find(root: Path) -> list[Path]:
    """The tables of a folder: labels.csv or labels.parquet; else the one with a head one knows; else one for each split.

    Raises:
        DataError: there is none, or more than one could be meant.
    """
    if root.is_file():
        return [root]
    found = [root / name for name in NAMES if (root / name).is_file()]
    if len(found) > 1:
        raise DataError(f"{root}: expected {' or '.join(NAMES)} and both are there; set data_root to the file itself")
    found = found or candidates(root)
    if len(found) > 1 and any(split_in(path, root) is None for path in found):
        names = ", ".join(path.relative_to(root).as_posix() for path in found[:4])
        raise DataError(f"{root}: several tables could be meant ({names}); set data_root to one of them")
    if not found:
        raise DataError(f"{root}: expected {' or '.join(NAMES)} and neither is there; set data_root to the file itself")
    return found


def candidates(root: Path) -> list[Path]:
    """Files in a folder or in one of its folders that begin as a table of images does."""
    return [path for path in files_ending(root, FORMATS["table"]) if sheets.looks_like_labels(path)]


def _read_one(path: Path, default: str | None, separator: str, listed: Listed) -> None:
    """Add the rows of a table, in a set of several of the split `default`."""
    sheet = read_sheet(path)
    image, labels, split = _columns(sheet)
    absent: list[list[str] | None] = [None] * len(sheet.rows)
    has_absent = False
    if labels is None:
        classes, names, left_out = one_hot(sheet, [c for c in (image, split) if c is not None])
        if not classes:
            found = ", ".join(sheet.header) or "nothing"
            raise DataError(
                f"{path}: column labels is missing (found {found}); expected image, labels, or a column of 0 and 1 a class"
            )
        listed.facts["labels"] = f"{len(classes)} columns of 0 and 1"
    else:
        names, column = Labels(sheet, labels, separator).read(), sheet.column(sheets.ABSENT)
        listed.facts["labels"] = f"column {sheet.header[labels]}"
        others = [c for c, name in enumerate(sheet.header) if name and c not in (image, labels, split, column)]
        left_out = [sheet.header[c] for c in others]
        if more := [sheet.header[c] for c in others if _more_labels(sheet, c, names)]:
            raise DataError(
                f"{path}: column {more[0]} holds more labels; put all labels of an image into one column, with `;` between, or "
                "take that column out"
            )
        if has_absent := column is not None:
            absent = read_absent(sheet, column, names, separator)
            listed.facts["absent"] = f"column {sheet.header[column]}"
        listed.none |= any(cell is not None for cell in absent) or sheets.NONE in sheet.texts(labels)
    if left_out:
        shown = ", ".join(left_out[:8]) + (" ..." if len(left_out) > 8 else "")
        listed.notes.append(f"{path.name}: columns that were passed over: {shown}")
    listed.facts["images"] = f"column {sheet.header[image]}"
    listed.facts["split"] = "not said" if split is None else f"column {sheet.header[split]}"
    listed.facts |= sheet.facts
    splits = sheet.texts(split) if split is not None else [default or ""] * len(sheet.rows)
    for number, (file, said, found, gone) in enumerate(zip(sheet.texts(image), splits, names, absent, strict=True)):
        spelled = str(sheet.rows[number][image]) if file else ""  # a name may begin with a blank
        row = Row(sheet, number, spelled, SPLIT_NAMES.get(said.casefold()), [] if gone and found is None else found)
        if said and row.split is None:
            raise row.error(f"split: found {said!r}, allowed are train, val, test, unlabeled")
        if not file or has_control(file):
            raise row.error(f"column image: found {file!r}; name a file")
        row.empty = row.labels is None
        if found != [] and gone != [sheets.OTHERS]:  # else all classes are known
            row.absent, row.silent = gone, gone is None and has_absent
        listed.rows.append(row)
    if split is not None and not all(splits) and any(splits):
        listed.notes.append(f"{path.name}: {sum(not said for said in splits)} rows name no split: they train if they have labels")


def _columns(sheet: Sheet) -> tuple[int, int | None, int | None]:
    """Columns of images, of labels (None: perhaps one a class) and of splits (None: there is none)."""
    image = sheet.column(sheets.IMAGE)
    if image is None:
        found = ", ".join(sheet.header) or "nothing"
        raise DataError(
            f"{sheet.path}: column image is missing (found {found}); name the columns image, labels and perhaps split"
        )
    labels = sheet.column(sheets.LABEL)
    if labels is not None and sheets.plain(sheet.header[labels]) != "labels":
        rivals = [name for name in sheet.header if sheets.plain(name) in sheets.LABEL]
        if len(rivals) > 1:
            raise DataError(f"{sheet.path}: columns {' and '.join(rivals)} could be the labels; name the right one `labels`")
        if {text.casefold() for text in sheet.texts(labels)} <= sheets.MARKS and len(sheet.header) > 3:
            labels = None  # a class by the name of `class`, among others
    split = sheet.column(sheets.SPLIT)
    if split is not None and sheets.plain(sheet.header[split]) != sheets.SPLIT[0]:
        values = {text.casefold() for text in sheet.texts(split)} - {""}
        split = split if not values or values & set(SPLIT_NAMES) else None  # a misspelt split among others is complained of
    for c, name in enumerate(sheet.header):
        values = {text.casefold() for text in sheet.texts(c)} - {""}
        if split is None and c not in (image, labels) and len(values) > 1 and values <= set(SPLIT_NAMES):
            raise DataError(f"{sheet.path}: column {name} holds splits; name it `split`")
        head = plain(name) if None in (labels, split) else ""
        says = head.removeprefix("is_") in SPLIT_NAMES and head != "train"  # which may be a class, as in Pascal VOC
        if says and values and values <= {*sheets.YES, *sheets.NO}:
            raise DataError(
                f"{sheet.path}: column {name} of 0 and 1 says the split; write a column `split` of train and test in its place"
            )
    return image, labels, split


def _more_labels(sheet: Sheet, column: int, labels: list[list[str] | None]) -> bool:
    """Whether a column beside that of labels holds labels too: by its head, or as all its cells are names of labels."""
    texts = {text for text in sheet.texts(column) if text}
    words = any(not re.fullmatch(r"[\d.]+", text) and text.casefold() not in sheets.MARKS for text in texts)
    numbered = re.fullmatch(rf"({'|'.join(sheets.LABEL)})[_.]?\d+", plain(sheet.header[column]))
    return bool(numbered) or (words and texts <= {name for names in labels for name in names or ()})


def read_absent(
    sheet: Sheet, column: int, present: list[list[str] | None], separator: str = "auto", known: Iterable[str] | None = ()
) -> list[list[str] | None]:
    """The names of each row's cell of absent classes, sorted; [] for `-`, [OTHERS] for `*`, None for an empty cell.

    Args:
        present: the labels of each row, None where it has none.
        known: more names of classes, which are no question; None: every text is a name.

    Raises:
        DataError: a row says of a class that it is there and that it is not; names the row and the class.
    """
    names = None if known is None else {name for names in present for name in names or ()} | set(known)
    absent = Labels(sheet, column, separator, names, what="absent").read()
    for row, (here, gone) in enumerate(zip(present, absent, strict=True)):
        both = sorted({*(here or ())} & {*(gone or ())})
        if both:
            raise sheet.error(row, f"absent: {both[0]!r} is among the labels of this row too; take it out of one of the two")
    return [[sheets.OTHERS] if gone and sheets.OTHERS in gone else gone for gone in absent]


def _interpret_empty(listed: Listed, empty: str) -> None:
    """What an empty cell of labels means, row by row."""
    doubtful = [row for row in listed.rows if row.empty and row.split in SAID]
    none = not listed.none if empty == "auto" else empty == "none"
    said = sum(row.split in SAID for row in listed.rows)
    if empty == "auto" and none and any(row.labels for row in listed.rows) and 2 * len(doubtful) > said:
        raise doubtful[0].error(
            f"labels: empty, as in {len(doubtful)} of {said} rows of split train or test: none of the classes, or not labelled? "
            "Set own.empty to none or to unlabeled (init-data --empty)"
        )
    for row in doubtful:
        row.labels = [] if none else None
        row.absent = None
    if doubtful:
        meaning = "show none of the classes" if none else "are not labelled"
        other = "unlabeled" if none else "none"
        listed.notes.append(
            f"{len(doubtful)} rows of split train or test have an empty cell of labels: taken to {meaning} "
            f"(own.empty: {other} reads them otherwise)"
        )
    open_ = sum(row.empty and not row.split for row in listed.rows)
    if open_:
        listed.notes.append(f"rows with neither split nor labels, taken as not labelled: {open_}")


def _interpret_absent(listed: Listed, meaning: str) -> None:
    """What an empty cell of absent classes means, row by row."""
    doubtful = [row for row in listed.rows if row.silent and row.labels]
    if doubtful and meaning == "auto":
        raise doubtful[0].error(
            f"absent: empty, as in {len(doubtful)} rows with labels: are the classes that are no labels absent, or unknown? Set "
            "own.empty_absent to absent or to unknown (init-data --empty-absent)"
        )
    for row in doubtful:
        row.absent = [] if meaning == "unknown" else None


def _merge(listed: Listed, base: Path) -> list[Entry]:
    """An entry for each image: identical rows are one, and where every row holds one label of many, they are joined.

    What is nowhere keeps its name, and `convert` says that it is missing.
    """
    finder, groups = Finder(base), {}
    for row in listed.rows:  # one file under two spellings could be in train and in test
        groups.setdefault(_locate(row, finder, base), []).append(row)
    different = {path for path, rows in groups.items() if len({row.said for row in rows}) > 1}
    single = all(row.absent is None and len(row.labels or ()) <= 1 for row in listed.rows)
    joined = single and len(different) > 1 and len(different) >= REPEATED * len(groups)
    entries = []
    for path, rows in groups.items():
        first, known = rows[0], [row.labels for row in rows if row.labels is not None]
        other = next((row for row in rows if row.said != first.said), None)
        if other is not None and (not joined or len({row.split for row in rows}) > 1):
            remedy = "give it one split" if first.split != other.split else "keep one row, with all labels in it (`a;b`)"
            place = f"{first.sheet.where} {first.sheet.lines[first.number]}"
            raise other.error(f"image: {other.image!r} stands on {place} already, with other values; {remedy}")
        none = [row for row in rows if row.labels == [] and not row.empty]
        if none and any(known):
            raise none[0].error(f"image: {none[0].image!r} has labels on another row; keep one of them")
        labels = frozenset(name for names in known for name in names) if known else None
        absent = None if first.absent is None else frozenset(first.absent)
        entries.append(Entry(base / path, path, labels, first.split, absent))
    repeated = sum(len(rows) - 1 for path, rows in groups.items() if path not in different)
    if repeated:
        listed.notes.append(f"rows that repeat an earlier one, counted once: {repeated}")
    if different:
        listed.notes.append(f"{len(different)} images stand on several rows with a label each; their labels were joined")
    listed.notes += finder.notes()
    return entries


def _locate(row: Row, finder: Finder, base: Path) -> str:
    """The path below `base` of the file that a row means."""
    file = finder.find(row.image, row.sheet.path.parent)
    path = posixpath.normpath(file.relative_to(base).as_posix()) if file.is_relative_to(base) else str(file)
    if not inside(base, path):
        raise row.error(f"image: {row.image!r} leaves the folder of the table; move the images below it")
    if "://" in row.image and not file.is_file():
        raise row.error(f"image: {row.image!r} is an address; download the images and name their files")
    return path
