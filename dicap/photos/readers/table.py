"""Format `table`: images listed in CSV or Parquet files; the settings give each column its role."""

from collections.abc import Iterator
from pathlib import Path

from dicap.errors import DataError
from dicap.files.checksum import sha256
from dicap.photos.readers.listing import Listing, Row, split_in, split_of
from dicap.photos.readers.names import says_nothing
from dicap.photos.readers.question import Question, typed
from dicap.photos.readers.sheet import MARKS, NO, NONE, OTHERS, YES, Sheet, read_names, read_sheet
from dicap.settings import Own

DOCUMENTED, DOCUMENTED_HEADS = "labels.csv", ("image", "labels", "split", "absent", "group")  # what is read without `init-data`
SINGLE = ("image", "labels", "split", "group", "value", "absent", "open")  # roles of one column each
Names = frozenset[str] | None


def read(root: Path, own: Own) -> Listing:
    """Read one table, or several as one, as the settings say: nothing is guessed.

    Without a split, a row with labels is a training image, and a row without labels is not labelled. All classes but a row's
    labels are absent; but with a column `absent`, a column of values or columns of classes, only the classes that these name are
    known. If all columns of classes are empty, the row is empty where a blank means absent (`own.empty`), else not labelled.

    Raises DataError if a column has no role, or for a faulty row; Question if the meaning of -1 or of an empty cell is open.
    """
    files = own.files or []
    sheet = read_sheet(*(root / name for name in files))
    if new := [head for head in without_role(sheet, own) if any(sheet.texts(head))]:
        raise Question(f"{sheet.path}: column {new[0]} has no role; does it say nothing about labels?", ignore=new)
    if own.image is None or (own.labels is None) == (not own.classes):
        raise sheet.lacks("of images, of labels or of a class", "run `dicap-stage init-data` again")
    rows = rows_of(sheet, own, root)
    notes = []
    labels = {name for row in rows if row.split != "unlabeled" for name in row.labels or ()}
    absent = {name for row in rows for name in row.absent or ()}
    if without := [head for head in own.classes or () if sheet.cells[head].isna().any()]:
        notes.append(f"columns that one of the tables lacks, so the classes are unknown there: {', '.join(without)}")
    if unseen := [head for head in own.classes or () if head not in labels]:
        notes.append(f"columns without a 1, so they are no classes: {', '.join(unseen)}")
    if own.absent is not None and absent and absent.isdisjoint(labels):
        text = f"{min(absent)!r} is no label of any row, nor is any other name in this column"
        raise DataError(f"{sheet.path}: column absent: {text}; correct it")
    roles = {key: f"column {head}" for key in SINGLE if (head := getattr(own, key)) is not None}  # for the user
    if own.classes is not None:
        roles["labels"] = f"{len(own.classes)} columns of 0 and 1 ({', '.join(own.classes)}; --ignore leaves one out)"
    roles |= {"not used": ", ".join(own.ignore)} if own.ignore else {}
    source = {"table": ", ".join(files), "sha256": sha256(sheet.path), "read": roles}
    return Listing(rows, source, notes)


def without_role(sheet: Sheet, own: Own) -> list[str]:
    """The columns that have no role. Raises DataError if the column of a role is missing."""
    used = [*filter(None, (getattr(own, key) for key in SINGLE)), *(own.classes or ())]
    if lost := [head for head in used if head not in sheet.header]:
        raise sheet.lacks(lost[0], "name one that is there, or run `dicap-stage init-data` again")
    return [head for head in sheet.header if head not in {*used, *(own.ignore or ())}]


def rows_of(sheet: Sheet, own: Own, root: Path) -> list[Row]:
    """The rows of images. Errors as in `read`."""
    said = _of_names(sheet, own) if own.labels is not None and own.value is None else _of_marks(sheet, own)
    files = [Path(place.rpartition(": ")[0]) for place in sheet.cells.index]
    splits = sheet.texts(own.split)
    if own.split is None and len({*files}) > 1:
        splits = [split_in(file, root) or "" for file in files]
        if any(splits) and not all(splits):
            way = "rename it to train, val, test or unlabeled"
            raise DataError(f"{files[splits.index('')]}: names no split, unlike other files; {way}")
    groups = sheet.texts(own.group)
    no_groups = {name for name in {*groups} if name == NONE or says_nothing(name, {*groups})}
    is_open = [""] * len(groups) if own.open is None else marks(sheet, own.open)
    rows = []
    for i, (image, where, (labels, absent)) in enumerate(zip(sheet.raw(own.image), sheet.cells.index, said, strict=True)):
        if not image.strip():
            raise sheet.error(i, f"column image: found {image!r}; name a file, in several tables under the same head")
        if groups[i] in no_groups:
            text = f"group: {groups[i]!r} would make one group of all rows that have it"
            raise sheet.error(i, f"{text}; leave the cell empty, or write another name")
        empty, split = labels is None, split_of(splits[i], where)
        if empty and own.classes and own.blank == "absent":
            labels = frozenset()
        if is_open[i] == "1":
            labels, split = None, "unlabeled"
        rows.append(Row(image, labels, split, absent, groups[i] or None, empty, where, (files[i].parent,)))
    return rows


def _of_names(sheet: Sheet, own: Own) -> Iterator[tuple[Names, Names]]:
    """The labels of each row (None: it says nothing) and its absent classes (None: all others), by cells of names.

    Raises DataError if a row names a class as a label and as absent; Question for an empty cell of absent classes beside labels.
    """
    absent = read_names(sheet, own.absent, own.separator, "absent")
    for row, names in enumerate(read_names(sheet, own.labels, own.separator)):
        gone = absent[row]
        if both := sorted({*(names or ())} & {*(gone or ())}):
            raise sheet.error(row, f"absent: {both[0]!r} is among the labels of this row too; take it out of one of the two")
        if own.absent is not None and names and gone is None:
            if own.empty_absent == "auto":
                text = "absent: empty beside labels: are the other classes unknown (`-`), or absent (`*`; --empty-absent absent)?"
                raise Question(f"{sheet.cells.index[row]}: {text}", empty_absent="unknown")
            gone = [OTHERS] if own.empty_absent == "absent" else []
        if names is None and not gone:
            yield None, None
        else:
            is_whole = own.absent is None or names == [] or OTHERS in (gone or ())
            yield frozenset(names or ()), None if is_whole else frozenset(gone or ())


def _of_marks(sheet: Sheet, own: Own) -> Iterator[tuple[Names, Names]]:
    """The same by columns of 0 and 1: one for each class, or one of values for the names in each row.

    Raises DataError for another cell; Question if the meaning of -1 or of an empty cell is open.
    """
    heads = own.classes or [str(own.value)]
    columns = [marks(sheet, head) for head in heads]
    usual = "unknown" if any("0" in column for column in columns) else "absent"
    meanings = {"1": "here", "0": "absent", "-1": own.minus, "": own.blank, None: "unknown"}
    names_of = read_names(sheet, own.labels, own.separator)
    for where, names, *values in zip(sheet.cells.index, names_of, *columns, strict=True):
        if own.value is None and not any(values):
            yield None, None
            continue
        sides: dict[str, set[str]] = {"here": set(), "absent": set(), "unknown": set()}
        for head, value in zip(heads, values, strict=True):
            if (meaning := meanings[value]) == "auto":
                key, what = ("minus", "-1") if value == "-1" else ("blank", "empty")
                text = f"column {head} is {what}: is the class absent, or is it unknown (--{key} absent or unknown)?"
                raise Question(f"{where}: {text}", **{key: usual})
            sides[meaning].update([head] if own.value is None else names or ())
        is_whole = own.value is None and not sides["unknown"]
        yield frozenset(sides["here"]), None if is_whole else frozenset(sides["absent"])


def marks(sheet: Sheet, head: str) -> list[str | None]:
    """The cells of a column as `1` (also true, yes), `0`, `-1` or empty; None where the row's file lacks it. Raises DataError."""
    values: list[str | None] = []
    for row, (text, cell) in enumerate(zip(sheet.texts(head), sheet.cells[head], strict=True)):
        value = text.casefold()
        if value and value not in MARKS:
            way = f"leave it empty (--blank unknown); if it is no class, --ignore {typed(head)}"
            raise sheet.error(row, f"column {head} is {text!r}; write 1 (there), 0 (absent), or {way}")
        values.append(None if cell is None else "1" if value in YES else "0" if value in NO else value[:2])
    return values
