"""`table`: anybody's own images, listed in CSV or Parquet files; each column has the role that the settings give it."""

from collections.abc import Iterable
from pathlib import Path
from unicodedata import normalize

from dicap.errors import DataError
from dicap.files.checksum import sha256
from dicap.photos.readers import sheet as sheets
from dicap.photos.readers.listing import SPLIT_NAMES, Listing, Row, has_control, split_in, typed
from dicap.photos.readers.sheet import Labels, Sheet, read_sheets
from dicap.settings import Own

DOCUMENTED = "labels.csv", ("image", "labels", "split", "absent", "group")  # what is read without `init-data`
SINGLE = ("image", "labels", "split", "group", "value", "absent", "open")  # roles of one column each
SAID = ("train", "val", "test")  # splits of which an image has labels, perhaps none of the classes


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
    files = own.files or [DOCUMENTED[0]]
    sheet = read_sheets([root / name for name in files])
    if own.format is None:
        own = own.model_copy(update={head: head for head in sheet.header if head in DOCUMENTED[1]})
    if sheet.cells.empty:
        raise DataError(f"{sheet.path}: no rows; list the images, one a row")
    check_columns(sheet, own)
    labels, absent = _labels(sheet, own)
    rows, notes = _rows(sheet, own, root, labels, absent)
    names = {name for row in rows if row.split != "unlabeled" for name in row.labels or ()}
    gone = {name for row in rows for name in row.absent or ()}
    if own.absent and gone and not gone & names:
        raise DataError(f"{sheet.path}: column absent: {min(gone)!r} is no label of any row, nor is any other name; correct it")
    source = {"table": ", ".join(files), "sha256": sha256(sheet.path), "read": roles_of(own)}
    return Listing(rows, source, notes, literal=sheet.literal)


def roles_of(own: Own) -> dict[str, str]:
    """The columns in words, for the user."""
    found = {key: f"column {head}" for key in SINGLE if (head := getattr(own, key)) is not None}
    if own.classes is not None:
        found["labels"] = f"{len(own.classes)} columns of 0 and 1"
    return found | ({"not used": ", ".join(own.ignore)} if own.ignore else {})


def check_columns(sheet: Sheet, own: Own) -> None:
    """Refuse a role whose column is not there, and a column without a role. Raises DataError."""
    used = [*filter(None, (getattr(own, key) for key in SINGLE)), *(own.classes or ())]
    lost = [head for head in used if head not in sheet.header]
    if lost or own.image is None or (own.labels is None) == (own.classes is None):
        what = f"column {lost[0]} is missing" if lost else "one column of images, and one of labels or some of classes are needed"
        raise DataError(f"{sheet.path}: {what} (found {', '.join(sheet.header) or 'nothing'}); run `dicap-stage init-data` again")
    if new := [head for head in sheet.header if head not in used and head not in (own.ignore or ())]:
        raise DataError(
            f"{sheet.path}: column {new[0]} has no role; run `dicap-stage init-data` again, with --ignore {typed(new[0])} if it "
            "says nothing about labels"
        )


Names = list[list[str] | None]  # of each row, sorted; [] for `-` (none), None where nothing is said


def _labels(sheet: Sheet, own: Own) -> tuple[Names, Names]:
    """The labels of each row, and the classes that are known to be absent (None: all others, or an empty cell)."""
    absent: Names = [None] * len(sheet.places)
    if own.labels is None:
        return _marked(sheet, own, own.classes or [], None)
    labels = Labels(sheet, own.labels, own.separator).read()
    if own.value is not None:
        return _marked(sheet, own, [own.value], labels)
    if own.absent is not None:
        absent = read_absent(sheet, own.absent, labels, own.separator)
    return labels, absent


def _rows(sheet: Sheet, own: Own, root: Path, labels: Names, absent: Names) -> tuple[list[Row], list[str]]:
    """The rows of images, and notes."""
    n, rows, notes = len(sheet.places), [], []
    splits = [""] * n
    if own.split is not None:
        splits = sheet.texts(own.split)
    elif len({*sheet.files}) > 1:
        splits = [split_in(path, root) or "" for path in sheet.files]
    groups = [""] * n if own.group is None else sheet.texts(own.group)
    unlabelled = [False] * n if own.open is None else [mark == 1 for mark in marks(sheet, own.open)]
    images = sheet.raw(own.image or "")  # a name may begin with a blank
    for i, (image, split, names, gone) in enumerate(zip(images, splits, labels, absent, strict=True)):
        if split and split.casefold() not in SPLIT_NAMES:
            raise sheet.error(i, f"split: found {split!r}, allowed are train, val, test, unlabeled")
        if not image.strip() or has_control(image.strip()):
            raise sheet.error(i, f"column image: found {image.strip()!r}; name a file")
        if own.absent is not None and names and gone is None and own.empty_absent == "auto":
            raise sheet.error(
                i,
                "absent: empty beside labels: are the classes that are no labels absent, or unknown? Set own.empty_absent to "
                "absent or to unknown (init-data --empty-absent)",
            )
        if own.absent is not None and names and gone is None and own.empty_absent == "unknown":
            gone = []
        split = "unlabeled" if unlabelled[i] else SPLIT_NAMES.get(split.casefold())
        bare = names is None and not gone and split in SAID
        whole = bare or gone is None or gone == [sheets.OTHERS] or (own.labels is not None and own.value is None and names == [])
        known = None if whole else frozenset(gone or ())
        said = frozenset(names or ()) if names is not None or gone or bare else None
        place, folders = sheet.places[i], (sheet.files[i].parent,)
        rows.append(Row(image, None if unlabelled[i] else said, split, known, groups[i] or None, bare, place, folders))
    if own.split is not None and not all(splits) and any(splits):
        notes.append(f"{sheet.path.name}: {splits.count('')} rows name no split: they train if they have labels")
    if open_ := sum(row.labels is None and row.split is None for row in rows):
        notes.append(f"rows with neither split nor labels, taken as not labelled: {open_}")
    return rows, notes


def marks(sheet: Sheet, head: str) -> list[int | None]:
    """The values of a column of 0 and 1 (also true and false, yes and no), -1 and empty cells (None). Raises DataError."""
    found: list[int | None] = []
    for row, text in enumerate(sheet.texts(head)):
        value = text.casefold()
        if value and value not in sheets.MARKS:
            raise sheet.error(
                row,
                f"column {head} is {text!r}; write 1 (there), 0 (absent), or nothing or -1 where it is not known; a column that "
                f"is no class is left out by init-data --ignore {typed(head)}",
            )
        found.append(1 if value in sheets.YES else 0 if value in sheets.NO else -1 if value else None)
    return found


def _marked(sheet: Sheet, own: Own, heads: list[str], labels: Names | None) -> tuple[Names, Names]:
    """The labels and the absent classes (None: all others) of each row, of which columns say whether they are there.

    Args:
        heads: the columns, of one class each; or the one column of a value.
        labels: what a value is of, row by row; None: the columns are classes.
    """
    columns = [marks(sheet, head) for head in heads]
    nowhere = [[cell is None and not sheet.literal for cell in sheet.cells[head]] for head in heads]  # not in the row's file
    classes = [[normalize("NFC", head)] for head in heads]
    present: Names = []
    absent: Names = []
    for row, (values, missing) in enumerate(zip(zip(*columns, strict=True), zip(*nowhere, strict=True), strict=True)):
        if labels is None and all(value is None for value in values):
            present.append(None)
            absent.append(None)
            continue
        here: set[str] = set()
        gone: set[str] = set()
        of = classes if labels is None else [labels[row] or []]
        for head, value, lost, names in zip(heads, values, missing, of, strict=True):
            meaning = {1: "here", 0: "absent", -1: own.minus, None: "unknown" if lost else own.blank}[value]
            if meaning == "auto":
                key, what = ("minus", "-1") if value == -1 else ("blank", "empty")
                raise sheet.error(
                    row,
                    f"column {head} is {what}: is the class absent, or is it unknown? Set own.{key} to absent or unknown "
                    f"(init-data --{key})",
                )
            if meaning == "here":
                here.update(names)
            elif meaning == "absent":
                gone.update(names)
        whole = labels is None and len(here | gone) == len(heads)
        present.append(sorted(here))
        absent.append(None if whole else sorted(gone))
    return present, absent


def read_absent(sheet: Sheet, head: str, present: Names, separator: str = "auto", known: Iterable[str] | None = ()) -> Names:
    """The names of each row's cell of absent classes, sorted; [] for `-`, [OTHERS] for `*`, None for an empty cell.

    Args:
        present: the labels of each row, None where it has none.
        known: more names of classes, which are no question; None: every text is a name.

    Raises:
        DataError: a row says of a class that it is there and that it is not; names the row and the class.
    """
    names = None if known is None else {name for names in present for name in names or ()} | set(known)
    absent = Labels(sheet, head, separator, names, what="absent").read()
    for row, (here, gone) in enumerate(zip(present, absent, strict=True)):
        if both := sorted({*(here or ())} & {*(gone or ())}):
            raise sheet.error(row, f"absent: {both[0]!r} is among the labels of this row too; take it out of one of the two")
    return [[sheets.OTHERS] if gone and sheets.OTHERS in gone else gone for gone in absent]
