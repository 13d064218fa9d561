"""Tables as people have them, as rows of cells: CSV with any of four separators in UTF-8 or UTF-16, and Parquet; and labels.

What can be read in two ways is refused with both of them named.
"""

import ast
import csv
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
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
OTHERS = "*"  # a cell of absent classes that says: all but the labels
# What programs write for an empty cell of a text file, and what may be a class: NA is North America, and sodium.
MISSING = ("nan", "NaN", "<NA>", "None", "null", "NULL", "NA", "N/A", "n/a", "#N/A")
YES, NO, MINUS = ("1", "1.0", "true", "yes", "x"), ("0", "0.0", "false", "no"), ("-1", "-1.0")
MARKS = frozenset((*YES, *NO, *MINUS))
WITHIN = " _-.'’\"()[]{}"  # marks that belong to a name more often than they separate


@dataclass
class Sheet:
    """The cells of a table, or of several that are read as one.

    Attributes:
        header: names of the columns, stripped; one without a head is `column 3`.
        rows: the cells of each row: texts, and in Parquet lists of labels; None for a missing value.
        places: file and line (in Parquet the row) of each row.
        literal: whether a missing value and the text `NA` are told apart, as in Parquet.
        facts: how it was read, for the user: separator and encoding.
    """

    path: Path
    header: list[str]
    rows: list[list[Any]]
    places: list[tuple[Path, str]]
    literal: bool = False
    facts: dict[str, str] = field(default_factory=dict)

    def column(self, name: str) -> int | None:
        """The place of a column by its head. Raises DataError where that head stands there twice."""
        if self.header.count(name) > 1:
            raise DataError(f"{self.path}: column {name} occurs twice; keep one")
        return self.header.index(name) if name in self.header else None

    def texts(self, column: int) -> list[str]:
        """A column as stripped texts; a missing value is an empty one."""
        return ["" if row[column] is None else str(row[column]).strip() for row in self.rows]

    def error(self, row: int, text: str) -> DataError:
        """The error of one of the rows."""
        return DataError(f"{self.place(row)}: {text}")

    def place(self, row: int) -> str:
        """File and line of a row."""
        return "{}: {}".format(*self.places[row])


def plain(head: str) -> str:
    """A column's head without what people vary: `File Name` and `file-name` are file_name."""
    return re.sub(r"[\s_\-]+", "_", head.strip().casefold())


def read_sheets(paths: Sequence[Path]) -> Sheet:
    """Read one table or several as one, with the columns of all. Raises DataError as `read_sheet`."""
    sheets = [read_sheet(path) for path in paths]
    if len(sheets) == 1:
        return sheets[0]
    heads = [sheet.header for sheet in sheets]
    for sheet in sheets:
        for head in sheet.header:
            sheet.column(head)
    header = list(dict.fromkeys(head for one in heads for head in one))
    rows = [[None if (c := sheet.column(head)) is None else row[c] for head in header] for sheet in sheets for row in sheet.rows]
    places = [place for sheet in sheets for place in sheet.places]
    return Sheet(paths[0], header, rows, places, all(sheet.literal for sheet in sheets), sheets[0].facts)


def read_sheet(path: Path) -> Sheet:
    """Read a table.

    Raises:
        DataError: the file is missing, is not UTF-8 or UTF-16, has rows of other lengths, or is a spreadsheet of another format.
    """
    if path.suffix.lower() in (".xlsx", ".xls", ".ods", ".numbers"):
        raise DataError(f"{path}: a spreadsheet; save it as CSV (UTF-8) and name that")
    try:
        sheet = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path, *decode(path))
    except (pa.ArrowException, csv.Error, OSError) as error:
        raise DataError(f"{path}: not readable ({first_line(error)}); write it again") from None
    filled = [c for c, head in enumerate(sheet.header) if head or any(sheet.texts(c))]  # others are a spreadsheet's margin
    sheet.header = [sheet.header[c] or f"column {c + 1}" for c in filled]
    sheet.rows = [[row[c] for c in filled] for row in sheet.rows]
    return sheet


def first_rows(path: Path, count: int) -> list[list[str]]:
    """The head and some rows of what may be a table; [] where it cannot be read."""
    try:
        if path.suffix.lower() == ".parquet":
            file = pq.ParquetFile(path)
            some = next(file.iter_batches(batch_size=max(1, count - 1)), None)
            return [
                file.schema_arrow.names,
                *([] if some is None else [[str(v) for v in row.values()] for row in some.to_pylist()]),
            ]
        with path.open("rb") as file:
            data = file.read(1 << 16)
        text = data.decode("utf-16" if data.startswith(UTF_16) else "utf-8-sig", "replace")
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=_separator(text))
        return [[cell.strip() for cell in row] for row in islice(rows, count)]
    except (OSError, csv.Error, pa.ArrowException):
        return []


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
    if header and is_image_name(header[0]):
        raise DataError(f"{path}: line 1 has no heads; write `image{separator}labels` (or the like) above it")
    rows, places = [], []
    for row in reader:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) > len(header) and not any(cell.strip() for cell in row[len(header) :]):
            row = row[: len(header)]
        place = f"line {reader.line_num}"
        if len(row) != len(header):
            remedy = f"put quotes around values that hold a {SEPARATORS[separator]}, without a blank before the quote"
            if len(row) < len(header):
                remedy = "write one cell for each column, empty ones too"
            raise DataError(f"{path}: {place}: {len(row)} cells, the header has {len(header)}; {remedy}")
        if quoted := next((cell for cell in row if cell[:1].isspace() and re.fullmatch('".*"', cell.strip())), None):
            raise DataError(f"{path}: {place}: found {quoted!r}; take out the blank before the quote, or nothing is quoted by it")
        rows.append(row)
        places.append((path, place))
    return Sheet(path, header, rows, places, facts={"separator": SEPARATORS[separator], "encoding": encoding})


def _separator(text: str) -> str:
    """The separator of the cells: the one of which the first line has most."""
    heads = {separator: _header(text, separator) for separator in SEPARATORS}
    return max(heads, key=lambda separator: len(heads[separator]))


def _header(text: str, separator: str) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=separator), [])
    except csv.Error:
        return []


def _parquet(path: Path) -> Sheet:
    frame = pq.read_table(path, partitioning=None).to_pandas()  # type: ignore[arg-type]
    columns = [[_cell(value) for value in frame.iloc[:, c]] for c in range(frame.shape[1])]
    rows = [list(row) for row in zip(*columns, strict=True)]
    places = [(path, f"row {number}") for number in range(1, len(rows) + 1)]
    return Sheet(path, [str(name).strip() for name in frame.columns], rows, places, True, {"format": "Parquet"})


def _cell(value: Any) -> Any:
    """A Parquet value: None for a missing one, a list for an array."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if not isinstance(value, list | tuple | dict | set) and pd.isna(value) else value


class Labels:
    """Reads the cells of a column of labels.

    Names are separated by `;`, or stand in a list as Python or JSON writes it. Where another mark could be meant to separate
    them, or a word such as NA to be no name, the user is asked.

    Args:
        separator: what separates names; `auto`: as above.
        words: whether NA and its like alone in a cell are a `class` or an `empty` cell; `auto`: as above.
        known: names of classes that are certain, and so no question. None: every text between two separators is one, whatever
            it looks like.
        what: name of the column, for messages.
    """

    def __init__(
        self,
        sheet: Sheet,
        column: int,
        separator: str = "auto",
        known: Iterable[str] | None = (),
        what: str = "labels",
        words: str = "auto",
    ) -> None:
        assert known is not None or separator != "auto"
        self._sheet, self._column, self._what, self._words = sheet, column, what, words
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
        if cell is None or text == "" or (text in MISSING and not certain and self._is_empty(text, row)):
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

    def _is_empty(self, word: str, row: int) -> bool:
        if self._words == "auto" and not self._sheet.literal:
            raise self._sheet.error(
                row,
                f"{self._what}: is {word} a class, or an empty cell? own.words class (init-data --words class) reads it as a "
                "class, empty (--words empty) as an empty cell",
            )
        return self._words == "empty"

    def _listed(self, text: str, row: int) -> Any:
        if re.search(r"""(['"])\s+\1""", text):  # as NumPy prints an array; Python would join the names
            raise self._sheet.error(row, f"{self._what}: {text[:60]} is a printed array; write the names with `;` between")
        return _literal(text)

    def _ask(self, texts: dict[int, str]) -> None:
        """Refuse what can be read in two ways: names between which something else than `;` may stand, or that stand in quotes.

        Blanks, dashes and other marks that names hold may separate where each part is a name of its own or, of a blank and
        without a `;` anywhere, a part of another name too; any other mark where no cell holds a `;`, or one part is a name.
        """
        texts = {row: text for row, text in texts.items() if not _is_list(text)}
        rows = dict(sorted(((text, row) for row, text in reversed(texts.items())), key=lambda one: one[1]))
        names = {part.strip() for text in rows for part in text.split(";")} | self._known
        separated = any(";" in text for text in rows)
        for name in names:
            if len(name) > 2 and name[0] == name[-1] and name[0] in "'\"`" and name[1:-1] in names:
                row = next(row for text, row in rows.items() if name in map(str.strip, text.split(";")))
                raise self._sheet.error(row, f"{self._what}: {name} and {name[1:-1]} are two names; take the quotes out")
        marks = {letter for name in names for letter in name if unicodedata.category(letter)[0] not in "LNMC"} - {";"}
        for mark in sorted(marks, key=lambda mark: (mark in WITHIN, mark)):
            pieces = Counter(piece for name in names for piece in {part.strip() for part in name.split(mark)})
            parts = names if separated or mark in WITHIN[1:] else {piece for piece, count in pieces.items() if count > 1}
            for text, row in rows.items():
                if mark not in text.strip(mark) or ";" in text or text in self._known:
                    continue
                known = [part.strip() in parts for part in text.split(mark) if part.strip()]
                if all(known) or (mark not in WITHIN and not separated) or (mark not in WITHIN and any(known)):
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
