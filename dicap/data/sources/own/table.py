"""`table`: anybody's own images, listed in a CSV or Parquet file with a column of images and one of labels, or one a class."""

import posixpath
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from dicap.data.sources.base import Item, RawSet, inside
from dicap.data.sources.files import TABLES, FilesAt
from dicap.data.sources.own import sheet as sheets
from dicap.data.sources.own.listing import SPLIT_NAMES, Finder, check_names, val_counts_as
from dicap.data.sources.own.sheet import Labels, Sheet, one_hot, plain, read_sheet
from dicap.errors import DataError
from dicap.files.checksum import sha256

NAMES = ("labels.csv", "labels.parquet")
REPEATED = 0.1  # share of images on several rows above which a row is one label of an image, not the image


@dataclass
class Row:
    """An image as a table lists it: where, which labels (None: not labelled), and the split if one is said.

    `absent`: classes that it is said not to show; None where that is all but its labels.
    """

    sheet: Sheet
    number: int
    image: str
    split: str  # train, val, test, unlabeled, or empty
    labels: list[str] | None
    empty: bool = False  # the cell of labels is empty
    absent: list[str] | None = None
    silent: bool = False  # the cell of absent classes is empty
    path: str = ""  # of the file, below the root


@dataclass
class Listed:
    """All rows of all tables, and what a user should know about how they were read."""

    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    none: bool = False  # somewhere `-` says none of the classes
    absent: bool = False  # somewhere a column of absent classes says something


def read(
    dataset: str,
    root: Path,
    image_size: int,
    *,
    needs_test: bool = True,
    separator: str = "auto",
    empty: str = "auto",
    empty_absent: str = "auto",
) -> RawSet:
    """Read the table, or the tables of several splits.

    `root` is the folder that holds labels.csv or labels.parquet, another table with heads one knows, or a table for each split;
    or the file itself. Columns are found by their heads (`dicap.data.sources.own.sheet`). Without a column of splits, or where
    its cell is empty, a row with labels is a training image, and one without is not labelled. The classes are the names found.

    With a column `absent` beside that of labels, a row says which classes are there and which are not; nothing is known of its
    other classes. `-` among the labels still says that all are absent; in `absent` it says that no class is known to be, and `*`
    that all but the labels are.

    Args:
        needs_test: whether a row of split test must be there.
        separator: what separates names in a cell; auto: `;`, and a question where a comma might.
        empty: what an empty cell of labels means in a row of split train or test: `none` of the classes, `unlabeled`, or
            `auto`: unlabelled where `-` says none in the same table, or another column says what is absent, else none of the
            classes.
        empty_absent: what an empty cell of `absent` says of the classes that a row with labels does not name: they are `unknown`
            or `absent`; `auto`: absent where no row has anything in that column, else unknown, and a question where that is most
            rows.

    Raises:
        DataError: a file or one of its rows is not as described; names the line.
    """
    paths = find(root)
    base = root if root.is_dir() else root.parent
    listed = Listed()
    for path in paths:
        _read_one(path, base, separator, listed, several=len(paths) > 1)
    if not listed.rows:
        raise DataError(f"{paths[0]}: no rows; list the images, one a row")
    _interpret_empty(listed, empty)
    _interpret_absent(listed, empty_absent)
    _check(listed, base)
    _locate(listed, base)
    _merge(listed)
    return _raw_set(dataset, listed, paths, base, needs_test)


def find(root: Path) -> list[Path]:
    """The tables of a folder: labels.csv or labels.parquet; else the one with a head one knows; else one for each split.

    Raises:
        DataError: there is none, or more than one could be meant.
    """
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise DataError(f"{root}: no such folder or file; set data_root to the folder that holds {' or '.join(NAMES)}")
    found = [root / name for name in NAMES if (root / name).is_file()]
    if len(found) > 1:
        raise DataError(f"{root}: expected {' or '.join(NAMES)} and both are there; set data_root to the file itself")
    found = found or candidates(root)
    if len(found) > 1 and any(split_of(path, root) is None for path in found):
        names = ", ".join(path.relative_to(root).as_posix() for path in found[:4])
        raise DataError(f"{root}: several tables could be meant ({names}); set data_root to one of them")
    if not found:
        raise DataError(f"{root}: expected {' or '.join(NAMES)} and neither is there; set data_root to the file itself")
    return found


def candidates(root: Path) -> list[Path]:
    """Files in a folder or in one of its folders that have the head of a table of images."""
    places = [path for pattern in ("*", "*/*") for path in root.glob(pattern)]
    return sorted(
        path
        for path in places
        if path.suffix.lower() in TABLES
        and not any(part.startswith(".") for part in path.relative_to(root).parts)
        and path.is_file()
        and sheets.looks_like_labels(path)
    )


def split_of(path: Path, root: Path) -> str | None:
    """The split that the name of a table or of its folder says."""
    words = [*path.stem.lower().replace("-", "_").split("_"), *(part.lower() for part in path.relative_to(root).parent.parts)]
    return next((SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES), None)


def _read_one(path: Path, base: Path, separator: str, listed: Listed, *, several: bool) -> None:
    sheet = read_sheet(path)
    absent: list[list[str] | None] = [None] * len(sheet.rows)
    has_absent = False
    image, labels, split = _columns(sheet)
    if labels is None:
        classes, names, left_out = one_hot(sheet, [c for c in (image, split) if c is not None])
        if not classes:
            found = ", ".join(sheet.header) or "nothing"
            raise DataError(
                f"{path}: column labels is missing (found {found}); expected image, labels, or a column of 0 and 1 a class"
            )
        repeated = [name for name, count in Counter(classes).items() if count > 1]
        if repeated:
            raise DataError(f"{path}: column {repeated[0]} occurs twice; keep one")
        listed.facts["labels"] = f"{len(classes)} columns of 0 and 1"
        if left_out:
            listed.notes.append(f"{path.name}: columns that are no classes of 0 and 1 were passed over: {_first(left_out)}")
    else:
        names, column = Labels(sheet, labels, separator).read(), sheet.column(sheets.ABSENT)
        listed.facts["labels"] = f"column {sheet.header[labels]}"
        others = [c for c, name in enumerate(sheet.header) if name and c not in (image, labels, split, column)]
        if more := [sheet.header[c] for c in others if _more_labels(sheet, c, names)]:
            raise DataError(
                f"{path}: column {more[0]} holds more labels; put all labels of an image into one column, with `;` between, or "
                "take that column out"
            )
        if others:
            listed.notes.append(f"{path.name}: columns that were passed over: {_first([sheet.header[c] for c in others])}")
        if has_absent := column is not None:
            absent = read_absent(sheet, column, names, separator)
            listed.facts["absent"] = f"column {sheet.header[column]}"
            listed.absent |= any(cell is not None for cell in absent)
    listed.facts["images"] = f"column {sheet.header[image]}"
    listed.facts["split"] = "not said" if split is None else f"column {sheet.header[split]}"
    listed.facts |= sheet.facts
    if sheet.facts.get("encoding") == "Windows-1252":
        word = next((text for row in sheet.rows for text in row if isinstance(text, str) and not text.isascii()), "")
        listed.notes.append(f"{path.name}: not UTF-8, so it was read as Windows-1252; it holds for example {word.strip()!r}")
    default = (split_of(path, base) or "") if several else ""
    splits = sheet.texts(split) if split is not None else [default] * len(sheet.rows)
    images = sheet.texts(image)
    for number, (file, said, found, gone) in enumerate(zip(images, splits, names, absent, strict=True)):
        if said and said.casefold() not in SPLIT_NAMES:
            others = sum(bool(other) and other.casefold() not in SPLIT_NAMES for other in splits) - 1
            more = f" (and {others} more)" if others else ""
            raise sheet.error(number, f"split: found {said!r}, allowed are train, val, test, unlabeled{more}")
        said_absent = bool(gone)  # the row says something, though perhaps of no class that it is there
        row = Row(sheet, number, file, SPLIT_NAMES.get(said.casefold(), ""), [] if said_absent and found is None else found)
        row.empty = row.labels is None
        if found != [] and gone != [sheets.OTHERS]:  # else all classes are known
            row.absent, row.silent = gone, gone is None and has_absent
        listed.rows.append(row)
    if labels is not None:
        listed.none |= any(isinstance(row[labels], str) and row[labels].strip() == sheets.NONE for row in sheet.rows)
    if split is not None and default == "" and not all(splits) and any(splits):
        listed.notes.append(f"{path.name}: {sum(not said for said in splits)} rows name no split: they train if they have labels")


def _columns(sheet: Sheet) -> tuple[int, int | None, int | None]:
    """Columns of images, of labels (None: perhaps one a class) and of splits (None: there is none)."""
    image = sheet.image_column()
    if image is None:
        found = ", ".join(sheet.header) or "nothing"
        raise DataError(f"{sheet.path}: column image is missing (found {found}); expected image, labels and perhaps split")
    labels = sheet.column(sheets.LABELS)
    if labels is None:
        labels = _only_other(sheet, image)
    if labels is not None and sheets.plain(sheet.header[labels]) != "labels":
        rivals = [name for name in sheet.header if sheets.plain(name) in sheets.LABELS]
        if len(rivals) > 1:
            raise DataError(f"{sheet.path}: columns {' and '.join(rivals)} could be the labels; name the right one `labels`")
        if {text.casefold() for text in sheet.texts(labels)} <= {*sheets.YES, *sheets.NO} and len(sheet.header) > 3:
            labels = None  # a class by the name of `class`, among others
    split = sheet.column(sheets.SPLIT)
    if split is not None and sheets.plain(sheet.header[split]) != sheets.SPLIT[0]:
        values = {text.casefold() for text in sheet.texts(split)} - {""}
        split = split if not values or values & set(SPLIT_NAMES) else None  # a misspelt split among others is complained of
    for c, name in enumerate(sheet.header):
        values = {text.casefold() for text in sheet.texts(c)} - {""}
        if split is None and c not in (image, labels) and len(values) > 1 and values <= set(SPLIT_NAMES):
            raise DataError(f"{sheet.path}: column {name} holds splits; name it `split`")
    return image, labels, split


def _more_labels(sheet: Sheet, column: int, labels: list[list[str] | None]) -> bool:
    """Whether a column beside that of labels holds labels too: by its head, or as all its cells are names of labels."""
    texts = {text for text in sheet.texts(column) if text}
    words = any(not re.fullmatch(r"[\d.]+", text) and text.casefold() not in (*sheets.YES, *sheets.NO) for text in texts)
    numbered = re.fullmatch(rf"({'|'.join(sheets.LABELS)})[_.]?\d+", plain(sheet.header[column]))
    return bool(numbered) or (words and texts <= {name for names in labels for name in names or ()})


def _first(names: list[str]) -> str:
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")


def _only_other(sheet: Sheet, image: int) -> int | None:
    """The one column beside those of images and splits, where the head of the images is none that we know and it is not 0/1."""
    others = [c for c in range(len(sheet.header)) if c not in (image, sheet.column(sheets.SPLIT))]
    known = plain(sheet.header[image]) in sheets.IMAGE
    if known or len(others) != 1 or {text.casefold() for text in sheet.texts(others[0])} <= {*sheets.YES, *sheets.NO, ""}:
        return None
    return others[0]


def _interpret_empty(listed: Listed, empty: str) -> None:
    """What an empty cell of labels means, row by row."""
    doubtful = [row for row in listed.rows if row.empty and row.split in ("train", "val", "test")]
    none = not (listed.none or listed.absent) if empty == "auto" else empty == "none"
    said = sum(row.split in ("train", "val", "test") for row in listed.rows)
    labelled = any(row.labels for row in listed.rows)
    if empty == "auto" and none and labelled and 2 * len(doubtful) > said:
        row = doubtful[0]
        raise row.sheet.error(
            row.number,
            f"labels: empty, as in {len(doubtful)} of {said} rows of split train or test: none of the classes, or not labelled? "
            "Set own.empty to none or to unlabeled (init-data --empty)",
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


def read_absent(
    sheet: Sheet, column: int, present: list[list[str] | None], separator: str = "auto", known: Iterable[str] | None = ()
) -> list[list[str] | None]:
    """The names of each row's cell of absent classes, sorted; [] for `-`, [OTHERS] for `*`, None for an empty cell.

    Args:
        present: the labels of each row, None where it has none.
        known: more names of classes, which settle what a comma between two of them means; None: every text is a name.

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


def _interpret_absent(listed: Listed, meaning: str) -> None:
    """What an empty cell of absent classes means, row by row, and the names that stand nowhere but in that column."""
    doubtful = [row for row in listed.rows if row.silent and row.labels]
    if not listed.absent and meaning == "auto":
        if "absent" in listed.facts:
            listed.notes.append("the column absent is empty, so every class that a row does not name is taken to be absent")
        return
    labelled = sum(row.labels is not None for row in listed.rows)
    if meaning == "auto" and 2 * len(doubtful) > labelled:
        row = doubtful[0]
        raise row.sheet.error(
            row.number,
            f"absent: empty, as in {len(doubtful)} of {labelled} labelled rows: are the classes that are no labels absent, or "
            "unknown? Set own.empty_absent to absent or to unknown (init-data --empty-absent)",
        )
    unknown = meaning != "absent"
    for row in doubtful:
        row.absent = [] if unknown else None
    if doubtful:
        listed.notes.append(
            f"{len(doubtful)} rows have labels and an empty cell of absent: their other classes are taken to be "
            f"{'unknown' if unknown else 'absent'} (own.empty_absent: {'absent' if unknown else 'unknown'} reads them otherwise)"
        )


def _check(listed: Listed, base: Path) -> None:
    """Complain about the first row that is wrong, with the number of its line and how many more there are."""

    def complain(bad: list[Row], text) -> None:
        if bad:
            more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            raise bad[0].sheet.error(bad[0].number, text(bad[0]) + more)

    complain([row for row in listed.rows if not row.image], lambda row: "column image is empty; name a file")
    complain(
        [row for row in listed.rows if any(map(_unprintable, (row.image, *(row.labels or ()), *(row.absent or ()))))],
        lambda row: f"found a control character in {row.image!r} or in its labels; write the line again",
    )


def _locate(listed: Listed, base: Path) -> None:
    """Find the file that each row means; what is nowhere keeps its name, and `convert` says that it is missing."""
    finder = Finder(base)
    for row in listed.rows:
        folder = row.sheet.path.parent
        file = finder.find(row.image, folder)
        row.path = posixpath.normpath(file.relative_to(base).as_posix()) if file.is_relative_to(base) else str(file)
        if not inside(base, row.path):
            raise row.sheet.error(row.number, f"image: {row.image!r} leaves the folder of the table; move the images below it")
        if "://" in row.image and not file.is_file():
            raise row.sheet.error(row.number, f"image: {row.image!r} is an address; download the images and name their files")
    listed.notes += finder.notes()


def _merge(listed: Listed) -> None:
    """One row an image: identical rows are one, and where every row holds one label of many, they are joined."""
    groups: dict[str, list[Row]] = {}
    for row in listed.rows:  # one file under two spellings could be in train and in test
        groups.setdefault(row.path, []).append(row)
    different = {path: rows for path, rows in groups.items() if len({(row.split, *_said(row)) for row in rows}) > 1}
    single = all(row.labels is None or len(row.labels) <= 1 for row in listed.rows)
    joined = single and len(different) > 1 and len(different) >= REPEATED * len(groups)
    for rows in different.values():
        first = rows[0]
        second = next(row for row in rows if (row.split, *_said(row)) != (first.split, *_said(first)))
        if not joined or len({row.split for row in rows}) > 1:
            remedy = "give it one split" if first.split != second.split else "keep one row, with all labels in it (`a;b`)"
            place = f"{first.sheet.where} {first.sheet.lines[first.number]}"
            raise second.sheet.error(
                second.number, f"image: {second.image!r} stands on {place} already, with other values; {remedy}"
            )
    repeated = sum(len(rows) - 1 for rows in groups.values()) - (
        sum(len(rows) - 1 for rows in different.values()) if joined else 0
    )
    if repeated:
        listed.notes.append(f"rows that repeat an earlier one, counted once: {repeated}")
    if joined:
        listed.notes.append(f"{len(different)} images stand on several rows with a label each; their labels were joined")
    listed.rows = []
    for rows in groups.values():
        none = [row for row in rows if row.labels == [] and not row.empty and row.absent is None]
        if none and any(row.labels for row in rows):
            raise none[0].sheet.error(none[0].number, f"image: {none[0].image!r} has labels on another row; keep one of them")
        known = [row.labels for row in rows if row.labels is not None]
        rows[0].labels = sorted({name for names in known for name in names}) if known else None
        in_part = [row.absent for row in rows if row.labels is not None and row.absent is not None]
        rows[0].absent = sorted({name for names in in_part for name in names}) if in_part else None
        both = sorted({*(rows[0].labels or ())} & {*(rows[0].absent or ())})
        if both:
            row = next(row for row in rows if both[0] in (row.absent or ()))
            raise row.sheet.error(
                row.number, f"absent: {both[0]!r} is among the labels of {row.image!r} on another row; keep one"
            )
        listed.rows.append(rows[0])


def _said(row: Row) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """What a row says of its image, to be compared."""
    return tuple(row.labels or ("",)), None if row.absent is None else tuple(row.absent)


def _raw_set(dataset: str, listed: Listed, paths: list[Path], base: Path, needs_test: bool) -> RawSet:
    path, rows = paths[0], listed.rows
    splits = {"": "train", "train": "train", "test": "test", "val": val_counts_as(row.split for row in rows)}
    counts = Counter(row.split for row in rows)
    if counts["val"]:
        listed.notes.append(f"{counts['val']} rows of split val count as {splits['val']}")
    ignored = sum(row.split == "unlabeled" and bool(row.labels) for row in rows)
    classes = sorted({name for row in rows if row.split != "unlabeled" for name in row.labels or ()})
    if not classes:
        raise DataError(f"{path}: column labels: no row of split train or test names a label; fill it in")
    check_names(path, classes)
    listed.notes += _without_positive(rows, classes, path)
    final = ["unlabeled" if row.split == "unlabeled" or row.labels is None else splits[row.split] for row in rows]
    for split in ("train", "test") if needs_test else ("train",):
        if split not in final:
            way = ", or let own.test_share draw them (`dicap-stage init-data` sets it)" if split == "test" else ""
            raise DataError(f"{path}: no row of split {split}; mark some images {split}{way}")
    number = {name: i for i, name in enumerate(classes)}
    items = []
    for row, split in zip(rows, final, strict=True):
        labels = absent = None
        if split != "unlabeled":
            labels = tuple(sorted(number[name] for name in row.labels or ()))
            absent = None if row.absent is None else tuple(sorted(number[name] for name in row.absent))
        items.append(Item(row.path, row.path, split, labels, absent=absent))
    notes = [f"{ignored} rows of split unlabeled name labels, which were ignored"] if ignored else []
    source = {
        "table": ", ".join(found.relative_to(base).as_posix() for found in paths),
        "sha256": sha256(path),
        "read": listed.facts,
    }
    return RawSet(
        dataset=dataset,
        classes=classes,
        items=items,
        images=FilesAt([base / item.path for item in items]),
        source=source,
        notes=notes + listed.notes + _absent(items, classes),
    )


def _without_positive(rows: list[Row], classes: list[str], path: Path) -> list[str]:
    """Take names out of the absent classes that are no label of any row, and what then says nothing out of the labelled rows."""
    known, notes = set(classes), []
    strange = sorted({name for row in rows for name in row.absent or ()} - known)
    if not strange:
        return []
    if not any(name in known for row in rows for name in row.absent or ()):
        raise DataError(f"{path}: column absent: {strange[0]!r} is no label of any row, nor is any other name in it; correct it")
    lost = 0
    for row in rows:
        if row.absent is not None:
            row.absent = [name for name in row.absent if name in known]
            if not row.absent and not row.labels:
                row.labels = row.absent = None
                lost += 1
    names = ", ".join(strange[:10]) + (" ..." if len(strange) > 10 else "")
    notes.append(f"{len(strange)} names are said to be absent and are nowhere a label, so they are no classes: {names}")
    if lost:
        notes.append(f"rows that name no other class, taken as not labelled: {lost}")
    return notes


def _unprintable(text: str) -> bool:
    return any(unicodedata.category(letter) == "Cc" for letter in text)


def _absent(items: list[Item], classes: list[str]) -> list[str]:
    notes = []
    has_test = any(item.split == "test" for item in items)
    for split, other in (("train", "test"), ("test", "train")):
        seen = Counter(label for item in items if item.split == split for label in item.labels or ())
        absent = [name for i, name in enumerate(classes) if not seen[i]]
        if absent and has_test:
            effect = "they cannot be learned" if split == "train" else "nothing can be said of their score"
            names = ", ".join(absent[:10]) + (" ..." if len(absent) > 10 else "")
            notes.append(f"{len(absent)} classes occur only in {other}, so {effect}: {names}")
    return notes
