"""One reader for tables as people have them: CSV with any of four separators in UTF-8 or UTF-16, and Parquet.

Only what a table says itself decides how it is read. Where it can be read in two ways, it is refused with both of them named.
"""

import ast
import csv
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dicap.data.sources.files import is_image_name
from dicap.errors import DataError, first_line

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
UTF_16 = (b"\xff\xfe", b"\xfe\xff")  # byte order marks
NONE = "-"  # a cell that says: none of the classes
# What programs write for an empty cell.
MISSING = ("nan", "NaN", "<NA>", "None", "null", "NULL", "NA", "N/A", "n/a", "#N/A")
OTHERS = "*"  # a cell of absent classes that says: all but the labels
# Heads that people give to a column, in the order in which they are believed; capitals, blanks and dashes do not count.
IMAGE = (
    *("image", "images", "file_name", "filename", "file", "image_path", "filepath", "file_path", "path", "image_name"),
    *("image_file", "img", "photo", "photograph", "picture", "image_id", "imageid", "id"),
)
LABEL = ("labels", "label", "tags", "tag", "classes", "class", "categories", "category", "keywords", "class_name", "label_name")
ABSENT = ("absent",)  # one head alone: a column of another meaning would make a class's absence unknown
SPLIT = ("split", "set", "subset", "partition", "data_split", "phase")
YES, NO = ("1", "1.0", "true", "yes"), ("0", "0.0", "false", "no")
MARKS = frozenset((*YES, *NO, "x"))  # a tick is looked for, to be refused: is a cell beside it empty, or said to be absent?


@dataclass
class Sheet:
    """The cells of a table.

    Attributes:
        header: names of the columns as they stand there, stripped.
        rows: the cells of each row: texts, and in Parquet lists of labels; None for a missing value.
        lines: the line (in Parquet the row) of each.
        facts: how it was read, for the user: separator and encoding.
    """

    path: Path
    header: list[str]
    rows: list[list[Any]]
    lines: list[int]
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """What the numbers in `lines` count."""
        return "row" if self.path.suffix.lower() == ".parquet" else "line"

    def column(self, names: Sequence[str]) -> int | None:
        """The column whose head is the first of `names` that is there. Raises DataError where that head stands there twice."""
        heads = [plain(name) for name in self.header]
        for name in names:
            if heads.count(name) > 1:
                raise DataError(f"{self.path}: column {name} occurs twice; keep one")
            if name in heads:
                return heads.index(name)
        return None

    def texts(self, column: int) -> list[str]:
        """A column as stripped texts; a missing value is an empty one."""
        return ["" if row[column] is None else str(row[column]).strip() for row in self.rows]

    def error(self, row: int, text: str) -> DataError:
        """The error of one of the rows."""
        return DataError(f"{self.path}: {self.where} {self.lines[row]}: {text}")


def plain(head: str) -> str:
    """A column's head without what people vary: `File Name` and `file-name` are file_name."""
    return re.sub(r"[\s_\-]+", "_", head.strip().casefold())


def read_sheet(path: Path) -> Sheet:
    """Read a table.

    Raises:
        DataError: the file is missing, is not UTF-8 or UTF-16, has rows of other lengths, or is a spreadsheet of another format.
    """
    if path.suffix.lower() in (".xlsx", ".xls", ".ods", ".numbers"):
        raise DataError(f"{path}: a spreadsheet; save it as CSV (UTF-8) and name that")
    try:
        return _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path, *decode(path))
    except (pa.ArrowException, csv.Error, OSError) as error:
        raise DataError(f"{path}: not readable ({first_line(error)}); write it again") from None


def looks_like_labels(path: Path) -> bool:
    """Whether a file begins as a table of images does, perhaps one that is refused: more than one column, one names images."""
    try:
        if path.suffix.lower() == ".parquet":
            sheet = _parquet(path)
            rows = [sheet.header, *sheet.rows[:1]]
        else:
            with path.open("rb") as file:
                data = file.read(1 << 16)
            text = data.decode("utf-16" if data.startswith(UTF_16) else "utf-8-sig", "replace")
            rows = list(islice(csv.reader(io.StringIO(text, newline=""), delimiter=_separator(text)), 2))
    except (OSError, csv.Error, pa.ArrowException):
        return False
    cells = [cell for row in rows for cell in row if isinstance(cell, str)]
    return max(map(len, rows), default=0) > 1 and any(plain(cell) in IMAGE or is_image_name(cell) for cell in cells)


def decode(path: Path) -> tuple[str, str]:
    """The text of a file and the name of its encoding: UTF-8, or UTF-16 with a byte order mark. Raises DataError."""
    data = path.read_bytes()
    encoding = "UTF-16" if data.startswith(UTF_16) else "UTF-8"
    try:
        text = data.decode("utf-16" if encoding == "UTF-16" else "utf-8-sig").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not {encoding}; save the file as UTF-8") from None
    if "\0" in text:
        raise DataError(f"{path}: holds zero bytes, as UTF-16 without a byte order mark does; save the file as UTF-8")
    return text, encoding


def _csv(path: Path, text: str, encoding: str) -> Sheet:
    if text[:4].casefold() == "sep=":
        raise DataError(f"{path}: line 1 tells a spreadsheet the separator and is no head; take it out")
    separator = _separator(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    header = [name.strip() for name in next(reader, [])]
    while header and not header[-1]:
        header.pop()
    if header and is_image_name(header[0]):
        raise DataError(f"{path}: line 1 has no heads; write `image{separator}labels` (or the like) above it")
    rows, lines = [], []
    for row in reader:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) > len(header) and not any(cell.strip() for cell in row[len(header) :]):
            row = row[: len(header)]  # columns without a head and without a value: a spreadsheet's margin
        if len(row) != len(header):
            remedy = f"put quotes around values that hold a {SEPARATORS[separator]}"
            if len(row) < len(header):
                remedy = "write one cell for each column, empty ones too"
            raise DataError(f"{path}: line {reader.line_num}: {len(row)} cells, the header has {len(header)}; {remedy}")
        rows.append(row)
        lines.append(reader.line_num)
    return Sheet(path, header, rows, lines, {"separator": SEPARATORS[separator], "encoding": encoding})


def _separator(text: str) -> str:
    """The separator that gives a head one knows; else the one that gives most columns, for the message that follows."""
    heads = {separator: _header(text, separator) for separator in SEPARATORS}
    known = [separator for separator, head in heads.items() if any(plain(name) in IMAGE for name in head)]
    return max(known or heads, key=lambda separator: len(heads[separator]))


def _header(text: str, separator: str) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=separator), [])
    except csv.Error:
        return []


def _parquet(path: Path) -> Sheet:
    frame = pq.read_table(path, partitioning=None).to_pandas()  # type: ignore[arg-type]
    columns = [[_cell(value) for value in frame.iloc[:, c]] for c in range(frame.shape[1])]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return Sheet(path, [str(name).strip() for name in frame.columns], rows, list(range(1, len(rows) + 1)), {"format": "Parquet"})


def _cell(value: Any) -> Any:
    """A Parquet value: None for a missing one, a list for an array."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if not isinstance(value, list | tuple | dict | set) and pd.isna(value) else value


class Labels:
    """Reads the cells of a column of labels.

    Names are separated by `;`, or stand in a list as Python or JSON writes it. Where another mark could be meant to separate
    them, the user is asked.

    Args:
        separator: what separates names; `auto`: as above.
        known: names of classes that are certain, and so no question. None: every text between two separators is one, whatever
            it looks like.
        what: name of the column, for messages.
    """

    def __init__(
        self, sheet: Sheet, column: int, separator: str = "auto", known: Iterable[str] | None = (), what: str = "labels"
    ) -> None:
        assert known is not None or separator != "auto"
        self._sheet, self._column, self._what = sheet, column, what
        self._auto, self._separator = separator == "auto", ";" if separator == "auto" else separator
        self._known, self._literally = set(known or ()), known is None

    def read(self) -> list[list[str] | None]:
        """The names of each row, sorted; [] for `-` (none of the classes), None for an empty cell. Raises DataError."""
        cells = [row[self._column] for row in self._sheet.rows]
        if self._auto:
            self._ask({row: cell.strip() for row, cell in enumerate(cells) if isinstance(cell, str)})
        return [self._names(cell, row) for row, cell in enumerate(cells)]

    def _names(self, cell: Any, row: int) -> list[str] | None:
        text = cell.strip() if isinstance(cell, str) else None
        certain = self._literally or text in self._known
        if cell is None or text == "" or (text in MISSING and not certain):
            return None
        if text == NONE or (text == "set()" and not certain):  # as Python writes a set without names
            return []
        parts: Any = [cell] if isinstance(cell, int) and not isinstance(cell, bool) else cell
        if text is not None:
            parts = self._listed(text, row) if _is_list(text) and not certain else text.split(self._separator)
        if isinstance(parts, list | tuple | set) and all(isinstance(part, int | str) for part in parts):
            names = {unicodedata.normalize("NFC", str(part).strip()) for part in parts} - {""}
            if NONE in names:
                raise self._sheet.error(row, f"{self._what}: `{NONE}` says none of the classes and is no name among others")
            return sorted(names) if names or not parts else None  # `['']` is an empty cell that was split
        shown = str(cell) if len(str(cell)) <= 60 else f"{str(cell)[:57]}..."
        raise self._sheet.error(row, f"{self._what}: found {shown}, expected names, as one text with `;` between or as a list")

    def _listed(self, text: str, row: int) -> Any:
        if re.search(r"""(['"])\s+\1""", text):  # as NumPy prints an array; Python would join the names
            raise self._sheet.error(row, f"{self._what}: {text[:60]} is a printed array; write the names with `;` between")
        return _literal(text)

    def _ask(self, texts: dict[int, str]) -> None:
        """Refuse what can be read in two ways: names between which something else than `;` may stand.

        A comma and a vertical bar do where no cell holds a `;`; other marks where each part is a name of its own, or, without a
        `;` anywhere, a part of another name too.
        """
        texts = {row: text for row, text in texts.items() if not _is_list(text)}
        names = {part.strip() for text in texts.values() for part in text.split(";")} | self._known
        separated = any(";" in text for text in texts.values())
        for mark in ",|/+& ":
            pieces = Counter(piece for name in names for piece in {part.strip() for part in name.split(mark)})
            parts = names if separated else {piece for piece, count in pieces.items() if count > 1}
            for row, text in texts.items():
                asked = (mark in ",|" and not separated) or all(part.strip() in parts for part in text.split(mark))
                if asked and mark in text.strip(mark) and ";" not in text and text not in self._known:
                    shown = text if len(text) <= 60 else f"{text[:57]}..."
                    raise self._sheet.error(
                        row,
                        f"{self._what}: is {shown!r} one class or several? Write `;` between several; own.separator {mark!r} "
                        f"(init-data --separator {mark!r}) reads several, ';' one",
                    )


def _is_list(text: str) -> bool:
    """Whether a cell is a list as Python or JSON writes it, and no name that stands in brackets."""
    bracketed = len(text) > 1 and (text[0], text[-1]) in (("[", "]"), ("(", ")"), ("{", "}"))
    if not bracketed or (text[1:-1].strip() and re.search(r"""['",]""", text) is None):
        return bracketed and isinstance(_literal(text), list)  # of one number
    return ";" not in text or _literal(text) is not None


def _literal(text: str) -> Any:
    """What a text is in Python, and so in JSON where it holds texts alone; None where it is none."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def one_hot(sheet: Sheet, others: Collection[int]) -> tuple[list[str], list[list[str] | None], list[str]]:
    """Columns of 0 and 1, one for each class: (classes, the names of each row, columns passed over).

    A column counts if at least half of its values are 0 or 1 (also true and false, yes and no). A row in which all of these are
    empty has not been labelled: None.

    Args:
        others: columns that are something else.

    Raises:
        DataError: such a column stands there twice, holds another value, or some of its cells are empty.
    """
    columns: dict[int, list[str]] = {}
    left_out = []
    for c, name in enumerate(sheet.header):
        values = [value.casefold() for value in sheet.texts(c)]
        binary = sum(value in MARKS for value in values)
        if name and c not in others:
            if binary and 2 * binary >= sum(map(bool, values)):
                columns[c] = values
            else:
                left_out.append(name)
    classes = [sheet.header[c] for c in columns]
    if repeated := [name for name, count in Counter(classes).items() if count > 1]:
        raise DataError(f"{sheet.path}: column {repeated[0]} occurs twice; keep one")
    labels: list[list[str] | None] = []
    for row in range(len(sheet.rows)):
        values = {sheet.header[c]: columns[c][row] for c in columns}
        for name, value in values.items() if any(values.values()) else ():
            if value not in (*YES, *NO):
                found = f"is {value!r}" if value else "is empty"
                raise sheet.error(row, f"column {name} {found}; write 0 or 1 (or leave all classes of an unlabelled row empty)")
        named = sorted(unicodedata.normalize("NFC", name) for name, value in values.items() if value in YES)
        labels.append(named if any(values.values()) else None)
    return classes, labels, left_out
