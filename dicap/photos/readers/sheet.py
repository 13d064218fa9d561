"""Read tables, CSV in UTF-8 or Parquet, into columns of cells, and read the names in a cell of labels."""

import ast
import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dicap.data.sources.files import is_image_name
from dicap.errors import DataError, first_line, first_of
from dicap.photos.readers.listing import composed

SEPARATORS = ",;\t|"  # of cells: the one that occurs most often in the line of heads separates
NONE = "-"  # a cell that means: none of the classes
OTHERS = "*"  # a cell of absent classes that means: all classes but the labels
TRUE, FALSE = ("true", "yes", "y", "x", "✓", "✔"), ("false", "no", "n")
YES, NO, MINUS = ("1", "1.0", *TRUE), ("0", "0.0", *FALSE), ("-1", "-1.0")
QUOTES = ("'", '"')
MARKS = frozenset((*YES, *NO, *MINUS))
Names = list[list[str] | None]  # for each row the sorted names; [] for `-` (none), None for an empty cell


@dataclass
class Sheet:
    """The cells of a table, or of several that are read as one.

    Attributes:
        path: the file, or the first of several, for messages.
        cells: (N rows) a column of objects for each head, stripped (`column 3` without one): texts, and in Parquet lists of
            labels; None where the row's file lacks the column. The index holds file and line (in Parquet the row) of each row.
    """

    path: Path
    cells: pd.DataFrame

    @property
    def header(self) -> list[str]:
        """The heads."""
        return list(self.cells.columns)

    def raw(self, head: str | None) -> list[str]:
        """A column as texts with surrounding blanks; a missing value, and every cell of the column None, is an empty text."""
        return [""] * len(self.cells) if head is None else ["" if cell is None else str(cell) for cell in self.cells[head]]

    def texts(self, head: str | None) -> list[str]:
        """A column as stripped texts."""
        return [text.strip() for text in self.raw(head)]

    def separated(self, heads: Iterable[str], separator: str = "auto") -> str | None:
        """The cells of some columns that hold `;` or the separator, joined; None if every filled cell is a list."""
        mark = ";" if separator == "auto" else separator
        cells = [cell.strip() for head in heads for cell in self.cells[head] if isinstance(cell, str)]
        texts = [cell for cell in cells if cell not in ("", NONE) and _literal(cell) is None]
        return "".join(text for text in texts if ";" in text or mark in text) if texts else None

    def error(self, row: int, text: str) -> DataError:
        """An error in one row."""
        return DataError(f"{self.cells.index[row]}: {text}")

    def lacks(self, head: str, way: str) -> DataError:
        """The error for a missing column. `way`: what to do."""
        return DataError(f"{self.path}: column {head} is missing (found {', '.join(self.header) or 'nothing'}); {way}")


def read_sheet(*paths: Path, required: bool = True) -> Sheet:
    """Read a table, or several as one, with the columns of all.

    Raises DataError if a file is missing, not UTF-8 or a spreadsheet of another format, if rows differ in their number of cells,
    if the heads occur a second time, if two columns have one head, or if there is no row although `required`.
    """
    try:
        cells = pd.concat([_parsed(path, path.read_bytes()) for path in paths])
    except OSError as error:
        raise DataError(f"{error.filename}: not readable ({error.strerror}); write it again") from None
    if required and cells.empty:
        raise DataError(f"{paths[0]}: no rows; list the images, one a row")
    return Sheet(paths[0], cells.astype(object).where(cells.notna(), None))


@lru_cache(maxsize=8)
def _parsed(path: Path, content: bytes) -> pd.DataFrame:
    """The cells of one file. They are kept, since a command reads a table several times."""
    ending = path.suffix.lower()
    if ending in (".xlsx", ".xls", ".ods", ".numbers"):
        raise DataError(f"{path}: a spreadsheet; save it as CSV (UTF-8) and name that")
    try:
        cells = _parquet(path, content) if ending == ".parquet" else _csv(path, content)
    except DataError:
        raise
    except (pa.ArrowException, csv.Error, ValueError) as error:  # ValueError: also of pandas' metadata in Parquet
        raise DataError(f"{path}: not readable ({first_line(error)}); write it again") from None
    header = [str(head).strip() for head in cells.columns]
    for place, *row in cells.itertuples(name=None):
        if ["" if cell is None else str(cell).strip() for cell in row] == header:
            raise DataError(f"{place}: repeats the heads; take the row out")
    cells.columns = [head or f"column {number}" for number, head in enumerate(header, 1)]
    if any(is_repeated := cells.columns.duplicated()):
        raise DataError(f"{path}: column {cells.columns[is_repeated][0]} occurs twice; keep one")
    return cells


def decode(path: Path, content: bytes) -> str:
    """The text of a file in UTF-8. Raises DataError."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    if "\0" in text:
        raise DataError(f"{path}: holds zero bytes, as UTF-16 does; save the file as UTF-8")
    return text


def _csv(path: Path, content: bytes) -> pd.DataFrame:
    """Cells. Python's reader knows the line of each row; pandas would fill up rows that are cut short."""
    text = decode(path, content).lstrip("\r\n")
    separator = max(SEPARATORS, key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    header, rows = [head.strip() for head in next(reader, [])], {}
    if text.startswith("sep="):
        raise DataError(f"{path}: line 1 names the separator, for Excel; take it out")
    if any(map(is_image_name, header)):
        raise DataError(f"{path}: line 1 has no heads; write some above, such as `image{separator}labels`")
    for row in reader:
        if not any(map(str.strip, row)):
            continue
        rows[place := f"{path}: line {reader.line_num}"] = row
        if len(row) != len(header):
            text = f"{len(row)} cells, the header has {len(header)} ({first_of(header, 3)}); remove lines above the heads, and"
            way = f"write one cell for each column, empty ones too, with quotes around values that hold {separator!r}"
            raise DataError(f"{place}: {text} {way}")
    return pd.DataFrame([*rows.values()], [*rows], header, dtype=object)


def _parquet(path: Path, content: bytes) -> pd.DataFrame:
    """Cells, empty for a missing value and a list for an array."""
    frame = pd.read_parquet(io.BytesIO(content))
    frame = frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()
    frame.index = [f"{path}: row {number}" for number in range(1, len(frame) + 1)]
    cells = frame.astype(object).where(frame.notna(), "")
    return cells.map(lambda cell: cell.tolist() if isinstance(cell, np.ndarray) else cell)


def read_names(sheet: Sheet, head: str | None, separator: str, known: Iterable[str] | None = None, what: str = "labels") -> Names:
    """The names in each row of a column of labels; without a column None for each row.

    Args:
        separator: what separates names, beside `;`; `auto`: nothing else. Unless the separator is `;`, a list in the syntax of
            Python or JSON is read as a list. A name alone in quotes loses them if other cells list several names in quotes.
        known: names of classes (`own.names`), which stand before this: such a text is no list.
        what: name of the column, for messages.

    Raises DataError if a cell holds something else than names, or `-` among names.
    """
    between = ";" if separator == "auto" else f"{re.escape(separator)}|;"
    cells = [None] * len(sheet.cells) if head is None else sheet.cells[head]
    texts = {cell.strip() for cell in cells if isinstance(cell, str)} if separator != ";" else ()
    lists = {text: value for text in texts if (value := _literal(text)) is not None}
    in_quotes = any(len(value) > 1 for text, value in lists.items() if text[0] in QUOTES)
    certain = {*(known or ())}
    for text, value in [*lists.items()]:
        is_alone = text[0] in QUOTES and len(value) == 1 and not in_quotes
        if (is_alone or composed(text) in certain) and not {*map(composed, value)} <= certain:
            del lists[text]
    names_of: Names = []
    for row, cell in enumerate(cells):
        parts = [""] if cell is None else [cell] if isinstance(cell, int) and not isinstance(cell, bool) else cell
        if isinstance(cell, str):
            parts = lists[cell.strip()] if cell.strip() in lists else re.split(between, cell)
        if not isinstance(parts, list | tuple | set) or not all(isinstance(part, int | str) for part in parts):
            shown = str(cell) if len(str(cell)) <= 60 else f"{str(cell)[:57]}..."
            raise sheet.error(row, f"{what}: found {shown}, expected names, as one text with `;` between or as a list")
        names = {*map(composed, parts)} - {""}
        if NONE in names and str(cell).strip() != NONE:
            raise sheet.error(row, f"{what}: `{NONE}` means none of the classes, so it stands alone; take it out")
        names_of.append(sorted(names - {NONE}) if names or not parts else None)  # [''] comes from splitting an empty cell
    return names_of


def _literal(text: str) -> Any:
    """The list or mapping that a text means in the syntax of Python (or JSON, if it holds texts only); None for other texts.

    An array as NumPy prints it, without commas, is not read: Python would join its names.
    """
    if text[:1] not in ("[", "(", "{", *QUOTES) or re.search(r"""(['"])\s+\1""", text):
        return None
    try:
        value = ast.literal_eval(f"[{text}]" if text[0] in QUOTES else text)  # also quoted names without brackets
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, list | tuple | set | dict) else None
