"""Read tables, CSV in UTF-8 or Parquet, into columns of cells, and read the names in a cell of labels."""

import csv
import io
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from dicap.data.sources.files import is_image_name
from dicap.errors import DataError, first_line, first_of
from dicap.photos.readers.listing import composed

SEPARATORS = ",;\t|"  # of cells: the one that occurs most often in the line of heads separates
NONE = "-"  # a cell that means: none of the classes
OTHERS = "*"  # a cell of absent classes that means: all classes but the labels
TRUE = ("true", "yes", "y", "x", "✓", "✔", "wahr", "ja", "vrai", "oui")  # Excel writes its language
FALSE = ("false", "no", "n", "falsch", "nein", "faux", "non")
YES, NO, MINUS = ("1", "1.0", *TRUE), ("0", "0.0", *FALSE), ("-1", "-1.0")
MARKS = frozenset((*YES, *NO, *MINUS))
NAME = r"""'(?!-')[^'\\;]*'|"(?!-")[^"\\;]*\""""
LIST = re.compile(rf"\[(({NAME})\s*(,\s*|(?=\])))*\]")  # of names, in the syntax of Python or JSON
Names = list[list[str] | None]  # for each row the sorted names; [] for `-` (none), None for an empty cell


@dataclass
class Sheet:
    """The cells of a table, or of several that are read as one.

    Attributes:
        path: the file, or the first of several, for messages.
        cells: (N rows) a column of texts for each head, stripped (`column 3` without one); None where the row's file lacks the
            column. The index holds file and line (in Parquet the row) of each row.
    """

    path: Path
    cells: pd.DataFrame

    @property
    def header(self) -> list[str]:
        """The heads."""
        return list(self.cells.columns)

    def raw(self, head: str | None) -> list[str]:
        """A column as texts with surrounding blanks; a missing value, and every cell of the column None, is an empty text."""
        return [""] * len(self.cells) if head is None else [cell or "" for cell in self.cells[head]]

    def texts(self, head: str | None) -> list[str]:
        """A column as stripped texts."""
        return [text.strip() for text in self.raw(head)]

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
        if [*map(str.strip, row)] == header:
            raise DataError(f"{place}: repeats the heads; take the row out")
    cells.columns = [head or f"column {number}" for number, head in enumerate(header, 1)]
    if any(is_repeated := cells.columns.duplicated()):
        raise DataError(f"{path}: column {cells.columns[is_repeated][0]} occurs twice; keep one")
    return cells.apply(_without_lists)


def _without_lists(column: pd.Series) -> pd.Series:
    """A column of texts; if all filled cells but `-` are lists, their names with `;` between."""
    cells = column.str.strip()
    lists = {*cells} - {"", NONE}
    if not lists or not all(map(LIST.fullmatch, lists)):
        return column
    texts = {cell: ";".join(name[1:-1] for name in re.findall(NAME, cell)) if cell != "[]" else NONE for cell in lists}
    return cells.map(texts).fillna(cells)


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
        raise DataError(f"{path}: line 1 has no heads, such as `image{separator}labels`; write them there")
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
    """Cells as texts, empty for a missing value."""
    frame = pd.read_parquet(io.BytesIO(content))
    frame = frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()
    frame.index = [f"{path}: row {number}" for number in range(1, len(frame) + 1)]
    cells = frame.astype(object).where(frame.notna(), "")
    return cells.map(lambda cell: str(cell.tolist() if isinstance(cell, np.ndarray) else cell))


def read_names(sheet: Sheet, head: str | None, separator: str, what: str = "labels") -> Names:
    """The names in each row of a column of labels; without a column None for each row.

    Args:
        separator: what separates names, beside `;`; `auto`: nothing else.
        what: name of the column, for messages.

    Raises DataError if `-` stands among names.
    """
    between = ";" if separator == "auto" else f"{re.escape(separator)}|;"
    names_of: Names = []
    for row, text in enumerate(sheet.texts(head)):
        names = {*map(composed, re.split(between, text))} - {""}
        if NONE in names and text != NONE:
            raise sheet.error(row, f"{what}: `{NONE}` means none of the classes, so it stands alone; take it out")
        names_of.append(sorted(names - {NONE}) if names else None)
    return names_of
