"""Format `table`: images listed in CSV or Parquet files; the settings give each column its role."""

from pathlib import Path

from dicap.errors import DataError
from dicap.files.checksum import sha256
from dicap.photos.readers.listing import Listing, Row, split_in, split_of
from dicap.photos.readers.names import says_nothing
from dicap.photos.readers.question import Question, typed
from dicap.photos.readers.sheet import MARKS, NO, NONE, OTHERS, YES, Names, Sheet, read_names, read_sheet
from dicap.settings import Own

DOCUMENTED, DOCUMENTED_HEADS = "labels.csv", ("image", "labels", "split", "absent", "group")  # what is read without `init-data`
SINGLE = ("image", "labels", "split", "group", "value", "absent", "open")  # roles of one column each


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
        way = f"run `dicap-stage init-data` again, with --ignore {typed(new[0])} if it says nothing about labels"
        raise DataError(f"{sheet.path}: column {new[0]} has no role; {way}")
    if own.image is None or (own.labels is None) == (not own.classes):
        raise sheet.lacks("of images, of labels or of a class", "run `dicap-stage init-data` again")
    if own.value is not None and own.rows == "image":
        text = f"with --value {typed(own.value)} each row is one label of its image"
        raise DataError(f"{sheet.path}: {text}; leave out --rows image, or --value")
    rows = rows_of(sheet, own, root)
    without = sum(row.split is None for row in rows)
    is_partly = own.split is not None and 0 < without < len(rows)
    notes = [f"{sheet.path.name}: {without} rows name no split: they train if they have labels"] * is_partly
    names = {name for row in rows if row.split != "unlabeled" for name in row.labels or ()}
    absent = {name for row in rows for name in row.absent or ()}
    if own.absent and absent and not absent & names:
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
    names_of = read_names(sheet, own.labels, own.separator)
    is_of_names = own.labels is not None and own.value is None
    said = _absent(sheet, own, names_of) if is_of_names else _marked(sheet, own, names_of)
    files = [Path(place.rpartition(": ")[0]) for place in sheet.cells.index]
    splits = sheet.texts(own.split)
    if own.split is None and len({*files}) > 1:
        splits = [split_in(file, root) or "" for file in files]
        if any(splits) and not all(splits):
            way = "rename it to train, val, test or unlabeled"
            raise DataError(f"{files[splits.index('')]}: names no split, unlike other files; {way}")
    rows = []
    groups = sheet.texts(own.group)
    no_groups = {name for name in {*groups} if name == NONE or says_nothing(name, {*groups})}
    is_open = [""] * len(groups) if own.open is None else marks(sheet, own.open)
    for i, (image, (names, gone), where) in enumerate(zip(sheet.raw(own.image), said, sheet.cells.index, strict=True)):
        split = "unlabeled" if is_open[i] == "1" else split_of(splits[i], where)
        if not image.strip():
            raise sheet.error(i, f"column image: found {image!r}; name a file, in several tables under the same head")
        if groups[i] in no_groups:
            text = f"group: {groups[i]!r} would make one group of all rows that have it"
            raise sheet.error(i, f"{text}; leave the cell empty if the group is not known, or write another name")
        empty = names is None and not gone
        is_unlabelled = is_open[i] == "1" or (empty and (own.labels is not None or own.blank != "absent"))
        known = None if empty or gone is None or (is_of_names and names == []) else frozenset(gone)
        present = None if is_unlabelled else frozenset(names or ())
        rows.append(Row(image, present, split, known, groups[i] or None, empty, where, (files[i].parent,)))
    return rows


def marks(sheet: Sheet, head: str) -> list[str | None]:
    """The cells of a column as `1` (also true, yes), `0`, `-1` or empty; None where the row's file lacks it. Raises DataError."""
    values: list[str | None] = []
    for row, (text, cell) in enumerate(zip(sheet.texts(head), sheet.cells[head], strict=True)):
        value = text.casefold()
        if value and value not in MARKS:
            others = [one for one in sheet.texts(head) if one.casefold() not in ("", *MARKS)]
            ways = ", or take the row of totals out", f"; or is it a count: --ignore {typed(head)}"
            way = ways[len(others) > 1] if text.isdigit() else ""
            text = f"column {head} is {text!r}; write 1 (there), 0 (absent), or leave it empty (--blank unknown)"
            raise sheet.error(row, f"{text}{way}")
        values.append(None if cell is None else "1" if value in YES else "0" if value in NO else value[:2])
    return values


def _marked(sheet: Sheet, own: Own, names_of: Names) -> list[tuple[list[str] | None, list[str] | None]]:
    """The labels and the absent classes (None: all but the labels) of each row, from columns of 0 and 1.

    The columns are those of classes; or the column of values alone (`own.value`), which refers to the names of its row.
    """
    heads = own.classes or [str(own.value)]
    columns = [marks(sheet, head) for head in heads]
    usual = "unknown" if any("0" in column for column in columns) else "absent"
    meanings = {"1": "here", "0": "absent", "-1": own.minus, "": own.blank, None: "unknown"}
    said: list[tuple[list[str] | None, list[str] | None]] = []
    for where, names, *values in zip(sheet.cells.index, names_of, *columns, strict=True):
        if own.value is None and not any(values):
            said.append((None, None))
            continue
        sides: dict[str, set[str]] = {"here": set(), "absent": set(), "unknown": set()}
        for head, value in zip(heads, values, strict=True):
            if (meaning := meanings[value]) == "auto":
                key, what = ("minus", "-1") if value == "-1" else ("blank", "empty")
                text = f"column {head} is {what}: is the class absent, or is it unknown (--{key} absent or unknown)?"
                raise Question(f"{where}: {text}", **{key: usual})
            sides[meaning].update([head] if own.value is None else names or [])
        is_whole = own.value is None and not sides["unknown"]
        said.append((sorted(sides["here"]), None if is_whole else sorted(sides["absent"])))
    return said


def _absent(sheet: Sheet, own: Own, names_of: Names) -> list[tuple[list[str] | None, list[str] | None]]:
    """The labels of each row and the names in its cell of absent classes; None for all but the labels.

    Raises DataError if a row names a class both as a label and as absent; Question if its cell is empty beside labels.
    """
    said = []
    absent = read_names(sheet, own.absent, own.separator, "absent")
    for row, (names, gone) in enumerate(zip(names_of, absent, strict=True)):
        if both := sorted({*(names or ())} & {*(gone or ())}):
            raise sheet.error(row, f"absent: {both[0]!r} is among the labels of this row too; take it out of one of the two")
        if own.absent is not None and names and gone is None:
            if own.empty_absent == "auto":
                text = "absent: empty beside labels: are the other classes unknown (`-`), or absent (`*`; --empty-absent absent)?"
                raise Question(f"{sheet.cells.index[row]}: {text}", empty_absent="unknown")
            gone = [] if own.empty_absent == "unknown" else None
        said.append((names or [], None) if gone and OTHERS in gone else (names, gone))
    return said
