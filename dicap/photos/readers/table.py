"""`table`: anybody's own images, listed in CSV or Parquet files; each column has the role that the settings give it."""

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from unicodedata import normalize

from dicap.data.sources.base import inside
from dicap.errors import DataError
from dicap.files.checksum import sha256
from dicap.photos.readers import sheet as sheets
from dicap.photos.readers.listing import SPLIT_NAMES, Entry, Finder, Listing, has_control, split_in
from dicap.photos.readers.sheet import Labels, Sheet, read_sheets
from dicap.settings import Own

DOCUMENTED = "labels.csv", ("image", "labels", "split", "absent", "group")  # what is read without `init-data`
SINGLE = ("image", "labels", "split", "group", "value", "absent", "open")  # roles of one column each
SAID = ("train", "val", "test")  # splits of which an image has labels, perhaps none of the classes


@dataclass
class Row:
    """An image as a row lists it: its name there, the split if one is said, and its labels (None: not labelled).

    `absent`: classes that it is said not to show; None where that is all but its labels.
    """

    number: int
    image: str
    split: str | None
    group: str | None
    labels: list[str] | None
    absent: list[str] | None = None
    empty: bool = False  # nothing is said of its labels
    silent: bool = False  # the cell of absent classes is empty

    @property
    def said(self) -> tuple[str | None, tuple[str, ...], tuple[str, ...] | None]:
        """What it says of its image, to be compared."""
        return self.split, tuple(self.labels or ("",)), None if self.absent is None else tuple(self.absent)


@dataclass
class Listed:
    """All rows of all tables, and what a user should know about how they were read."""

    sheet: Sheet
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    none: bool = False  # somewhere `-` says none of the classes, or a column of absent classes says something


def read(root: Path, own: Own) -> Listing:
    """Read the table, or several as one, as the settings say: nothing is guessed.

    A row with labels is a training image where no split is said, and one without is not labelled. With a column of labels, the
    classes are the names found, and all classes but a row's labels are absent, unless

    - a column `absent` says which are; nothing is known of the others. There `-` means none, and `*` all but the labels;
    - a column of values says of each row's label whether it is there (1) or absent (0); nothing is known of the others.

    With columns of classes, 1 says that the class is there, 0 that it is absent; what -1 and an empty cell say `own.minus` and
    `own.blank` say. Where all of them are empty the row is not labelled.

    Raises:
        DataError: a file or one of its rows is not as described; names the line. A column has no role.
    """
    sheet = read_sheets([root / name for name in own.files or [DOCUMENTED[0]]])
    if own.format is None:
        own = documented(sheet, own)
    if not sheet.rows:
        raise DataError(f"{sheet.path}: no rows; list the images, one a row")
    check_columns(sheet, own)
    listed = _listed(sheet, own, root)
    _interpret_empty(listed, own.empty)
    _interpret_absent(listed, own.empty_absent)
    labels = {name for row in listed.rows if row.split != "unlabeled" for name in row.labels or ()}
    absent = {name for row in listed.rows for name in row.absent or ()}
    if own.absent and absent and not absent & labels:
        raise DataError(f"{sheet.path}: column absent: {min(absent)!r} is no label of any row, nor is any other name; correct it")
    source = {
        "table": ", ".join(own.files or [DOCUMENTED[0]]),
        "sha256": sha256(sheet.path),
        "read": {**sheet.facts, **roles_of(own)},
    }
    return Listing(sheet.path, _merge(listed, root, own.rows == "label"), source, listed.notes)


def documented(sheet: Sheet, own: Own) -> Own:
    """The one form that is read without `init-data`. Raises DataError where the table is of another."""
    strange = [head for head in sheet.header if head not in DOCUMENTED[1]]
    if strange or not {"image", "labels"} <= {*sheet.header}:
        raise DataError(
            f"{sheet.path}: found the columns {', '.join(sheet.header) or 'nothing'}; without `dicap-stage init-data`, which "
            "looks what they are, only image, labels and perhaps split, absent, group are read"
        )
    return own.model_copy(update={"format": "table", **{head: head for head in sheet.header}})


def roles_of(own: Own) -> dict[str, str]:
    """The columns in words, for the user."""
    words = {"images": own.image, "split": own.split, "labels": own.labels, "absent": own.absent, "value": own.value}
    words |= {"group": own.group, "not labelled": own.open}
    found = {what: f"column {head}" for what, head in words.items() if head is not None}
    if own.classes is not None:
        found["labels"] = f"{len(own.classes)} columns of 0 and 1"
    return found | ({"not used": ", ".join(own.ignore)} if own.ignore else {})


def check_columns(sheet: Sheet, own: Own) -> None:
    """Refuse a role whose column is not there, and a column without a role. Raises DataError."""
    used = [*filter(None, (getattr(own, key) for key in SINGLE)), *(own.classes or ())]
    lost = [head for head in used if sheet.column(head) is None]
    if lost or own.image is None or (own.labels is None) == (own.classes is None):
        what = f"column {lost[0]} is missing" if lost else "one column of images, and one of labels or some of classes are needed"
        raise DataError(f"{sheet.path}: {what} (found {', '.join(sheet.header) or 'nothing'}); run `dicap-stage init-data` again")
    if new := [head for head in sheet.header if head not in used and head not in (own.ignore or ())]:
        raise DataError(
            f"{sheet.path}: column {new[0]} has no role; run `dicap-stage init-data` again, with --ignore {new[0]!r} if it says "
            "nothing about labels"
        )


def _listed(sheet: Sheet, own: Own, base: Path) -> Listed:
    listed, n = Listed(sheet), len(sheet.rows)
    image = sheet.column(own.image or "")
    assert image is not None
    names: list[list[str] | None]
    absent: list[list[str] | None] = [None] * n
    if own.classes is not None:
        names, absent = _of_classes(sheet, own)
    else:
        names = Labels(sheet, sheet.column(own.labels or "") or 0, own.separator, words=own.words).read()
        if own.value is not None:
            names, absent = _of_values(sheet, own, names)
        elif own.absent is not None:
            absent = read_absent(sheet, sheet.column(own.absent) or 0, names, own.separator)
            listed.none = any(cell is not None for cell in absent)
        listed.none |= [] in names
    of_file = {path: split_in(path, base) for path, _ in sheet.places} if own.files and len(own.files) > 1 else {}
    splits = [of_file.get(path) or "" for path, _ in sheet.places] if own.split is None else _cells(sheet, own.split)
    groups = [""] * n if own.group is None else _cells(sheet, own.group)
    unlabelled = [False] * n if own.open is None else [mark == 1 for mark in marks(sheet, own.open)]
    for number, cells in enumerate(zip(sheet.texts(image), splits, groups, names, absent, strict=True)):
        file, said, group, found, gone = cells
        spelled = str(sheet.rows[number][image]) if file else ""  # a name may begin with a blank
        row = Row(number, spelled, SPLIT_NAMES.get(said.casefold()), group or None, [] if gone and found is None else found)
        if said and row.split is None:
            raise sheet.error(number, f"split: found {said!r}, allowed are train, val, test, unlabeled")
        if not file or has_control(file):
            raise sheet.error(number, f"column image: found {file!r}; name a file")
        if unlabelled[number]:
            row.labels, row.split = None, "unlabeled"
        row.empty = row.labels is None
        if own.classes is not None or own.value is not None:
            row.absent = gone
        elif found != [] and gone != [sheets.OTHERS]:  # else all classes are known
            row.absent, row.silent = gone, gone is None and own.absent is not None
        listed.rows.append(row)
    if own.split is not None and not all(splits) and any(splits):
        listed.notes.append(f"{sheet.path.name}: {splits.count('')} rows name no split: they train if they have labels")
    return listed


def _cells(sheet: Sheet, head: str) -> list[str]:
    column = sheet.column(head)
    assert column is not None
    return sheet.texts(column)


def marks(sheet: Sheet, head: str) -> list[int | None]:
    """The values of a column of 0 and 1 (also true and false, yes and no), -1 and empty cells (None). Raises DataError."""
    found: list[int | None] = []
    for row, text in enumerate(_cells(sheet, head)):
        value = text.casefold()
        if value and value not in sheets.MARKS:
            raise sheet.error(
                row, f"column {head} is {text!r}; write 1 (there), 0 (absent), or nothing or -1 where it is not known"
            )
        found.append(1 if value in sheets.YES else 0 if value in sheets.NO else -1 if value else None)
    return found


def _of_classes(sheet: Sheet, own: Own) -> tuple[list[list[str] | None], list[list[str] | None]]:
    """The labels and the absent classes (None: all others) of each row of a table with a column a class."""
    classes = own.classes or []
    columns = [marks(sheet, name) for name in classes]
    plain = [normalize("NFC", name) for name in classes]
    labels: list[list[str] | None] = []
    absent: list[list[str] | None] = []
    for row, values in enumerate(zip(*columns, strict=True)):
        if all(value is None for value in values):
            labels.append(None)
            absent.append(None)
            continue
        for value, name in zip(values, classes, strict=True):
            if value == -1 and own.minus == "auto":
                raise sheet.error(
                    row, f"column {name} is -1: is the class absent, or is it unknown? {_options('minus', 'absent', 'unknown')}"
                )
            in_file = sheet.rows[row][sheet.column(name) or 0] is not None or sheet.literal
            if value is None and own.blank == "auto" and in_file:
                raise sheet.error(
                    row,
                    f"column {name} is empty: is the class absent, or is it unknown? {_options('blank', 'absent', 'unknown')}",
                )
        unknown = {name for value, name in zip(values, plain, strict=True)
                   if (value == -1 and own.minus == "unknown") or (value is None and own.blank != "absent")}  # fmt: skip
        here = sorted(name for value, name in zip(values, plain, strict=True) if value == 1)
        labels.append(here)
        absent.append(sorted({*plain} - unknown - {*here}) if unknown else None)
    return labels, absent


def _of_values(sheet: Sheet, own: Own, names: list[list[str] | None]) -> tuple[list[list[str] | None], list[list[str] | None]]:
    """The labels and the absent classes of each row, of which a column says whether its label is there."""
    labels: list[list[str] | None] = []
    absent: list[list[str] | None] = []
    for row, (found, value) in enumerate(zip(names, marks(sheet, own.value or ""), strict=True)):
        if value is None or not found:
            raise sheet.error(
                row, f"column {own.value} is a value of a label; write both, 1 where the label is there, 0 where not"
            )
        if value == -1 and own.minus == "auto":
            raise sheet.error(row, f"column {own.value} is -1: absent, or unknown? {_options('minus', 'absent', 'unknown')}")
        gone = value == 0 or (value == -1 and own.minus == "absent")
        labels.append(found if value == 1 else [])
        absent.append(found if gone else [])
    return labels, absent


def _options(key: str, *values: str) -> str:
    """How a question is answered."""
    return f"Set own.{key} to {' or '.join(values)} (init-data --{key.replace('_', '-')})"


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
    absent = Labels(sheet, column, separator, names, what="absent", words="class").read()
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
        raise listed.sheet.error(
            doubtful[0].number,
            f"labels: empty, as in {len(doubtful)} of {said} rows of split train or test: none of the classes, or not labelled? "
            "Set own.empty to none or to unlabeled (init-data --empty)",
        )
    for row in doubtful:
        row.labels = [] if none else None
        row.absent = None
    if doubtful:
        meaning = "show none of the classes" if none else "be not labelled"
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
        raise listed.sheet.error(
            doubtful[0].number,
            f"absent: empty, as in {len(doubtful)} rows with labels: are the classes that are no labels absent, or unknown? Set "
            "own.empty_absent to absent or to unknown (init-data --empty-absent)",
        )
    for row in doubtful:
        row.absent = [] if meaning == "unknown" else None


def _merge(listed: Listed, base: Path, joined: bool) -> list[Entry]:
    """An entry for each image: identical rows are one, and where every row holds one label of its image, they are joined.

    What is nowhere keeps its name, and `convert` says that it is missing.
    """
    sheet = listed.sheet
    finder = Finder(base, ((row.image, (sheet.places[row.number][0].parent,)) for row in listed.rows))
    groups: dict[str, list[Row]] = {}
    for row in listed.rows:  # one file under two spellings could be in train and in test
        groups.setdefault(_locate(row, sheet, finder, base), []).append(row)
    several = repeated = 0
    entries = []
    for path, rows in groups.items():
        first, known = rows[0], [row for row in rows if row.labels is not None]
        other = next((row for row in rows if row.said != first.said or row.group != first.group), None)
        one_group = len({row.group for row in rows}) == 1 == len({row.split for row in rows})
        if other is not None and not (joined and one_group):
            remedy = "keep one row, with all labels in it (`a;b`), or say that a row is one label (init-data --rows label)"
            remedy = "give it one split" if first.split != other.split else remedy if one_group else "give it one group"
            place = sheet.place(first.number).removeprefix(f"{sheet.path}: ")
            raise sheet.error(other.number, f"image: {other.image!r} stands on {place} already, with other values; {remedy}")
        none = [row for row in rows if row.labels == [] and not row.empty and row.absent is None]
        if none and any(row.labels for row in known):
            raise sheet.error(none[0].number, f"image: {none[0].image!r} has labels on another row; keep one of them")
        labels = frozenset(name for row in known for name in row.labels or ()) if known else None
        absent = None if first.absent is None else frozenset(name for row in rows for name in row.absent or ())
        if labels and absent and (both := sorted(labels & absent)):
            raise sheet.error(
                rows[-1].number, f"image: {first.image!r} shows {both[0]!r} by one row and not by another; keep one"
            )
        entries.append(Entry(base / path, path, labels, first.split, absent, first.group))
        several += other is not None
        repeated += 0 if other is not None else len(rows) - 1
    if repeated:
        listed.notes.append(f"rows that repeat an earlier one, counted once: {repeated}")
    if several:
        listed.notes.append(f"{several} images stand on several rows with a label each; their labels were joined")
    listed.notes += finder.notes()
    return entries


def _locate(row: Row, sheet: Sheet, finder: Finder, base: Path) -> str:
    """The path below `base` of the file that a row means."""
    try:
        file = finder.find(row.image, sheet.places[row.number][0].parent)
    except DataError as error:
        raise sheet.error(row.number, re.sub(r"^.*?: ", "image: ", str(error), count=1)) from None
    path = posixpath.normpath(file.relative_to(base).as_posix()) if file.is_relative_to(base) else str(file)
    if not inside(base, path):
        raise sheet.error(row.number, f"image: {row.image!r} leaves the folder of the table; move the images below it")
    if "://" in row.image and not file.is_file():
        raise sheet.error(row.number, f"image: {row.image!r} is an address; download the images and name their files")
    return path
