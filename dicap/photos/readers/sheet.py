"""Tables as people have them, CSV in UTF-8 and Parquet, as columns of cells; and the names in a cell of labels."""

import ast
import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dicap.data.sources.files import is_image_name
from dicap.errors import DataError, first_line, first_of

SEPARATORS = ",;\t|"  # of cells: that of which the heads have most
NONE = "-"  # a cell that says: none of the classes
OTHERS = "*"  # a cell of absent classes that says: all but the labels
TRUE, FALSE = ("true", "yes", "y", "x", "✓", "✔"), ("false", "no", "n")
YES, NO, MINUS = ("1", "1.0", *TRUE), ("0", "0.0", *FALSE), ("-1", "-1.0")
MARKS = frozenset((*YES, *NO, *MINUS))
Names = list[list[str] | None]  # of each row, sorted; [] for `-` (none), None where nothing is said


@dataclass
class Sheet:
    """The cells of a table, or of several that are read as one.

    Attributes:
        cells: a column of objects for each head: texts, and in Parquet lists of labels; None where a row's file has none.
        places: file and line (in Parquet the row) of each row.
        files: the file of each row.
    """

    path: Path
    cells: pd.DataFrame
    places: list[str]
    files: list[Path]

    @property
    def header(self) -> list[str]:
        """The heads, stripped; a column without one is `column 3`."""
        return list(self.cells.columns)

    def raw(self, head: str | None) -> list[str]:
        """A column as texts with the blanks around; a missing value is an empty one, and no column is empty."""
        return [""] * len(self.places) if head is None else ["" if cell is None else str(cell) for cell in self.cells[head]]

    def texts(self, head: str | None) -> list[str]:
        """A column as stripped texts."""
        return [text.strip() for text in self.raw(head)]

    def separated(self, heads: Iterable[str], separator: str = "auto") -> str | None:
        """The cells of some columns in which `;` separates names, or what is said to, joined; None where all cells are lists."""
        mark = ";" if separator == "auto" else separator
        cells = [cell.strip() for head in heads for cell in self.cells[head] if isinstance(cell, str)]
        texts = [cell for cell in cells if cell not in ("", NONE) and _literal(cell) is None]
        return "".join(text for text in texts if ";" in text or mark in text) if texts else None

    def error(self, row: int, text: str) -> DataError:
        """The error of one of the rows."""
        return DataError(f"{self.places[row]}: {text}")

    def lacks(self, head: str, way: str) -> DataError:
        """The error of a column that is not there, and what to do."""
        return DataError(f"{self.path}: column {head} is missing (found {', '.join(self.header) or 'nothing'}); {way}")


def read_sheets(paths: Sequence[Path]) -> Sheet:
    """Read one table or several as one, with the columns of all. Raises DataError as `read_sheet`, or where there is no row."""
    sheets = [read_sheet(path) for path in paths]
    cells = pd.concat([sheet.cells for sheet in sheets], ignore_index=True)
    if cells.empty:
        raise DataError(f"{paths[0]}: no rows; list the images, one a row")
    cells = cells.astype(object).where(cells.notna(), None)
    places, files = ([one for sheet in sheets for one in getattr(sheet, key)] for key in ("places", "files"))
    return Sheet(paths[0], cells, places, files)


def read_sheet(path: Path) -> Sheet:
    """Read a table.

    Raises:
        DataError: the file is missing, is not UTF-8, has rows of other lengths, the heads a second time or two columns of one
            head, or is a spreadsheet of another format.
    """
    ending = path.suffix.lower()
    if ending in (".xlsx", ".xls", ".ods", ".numbers"):
        raise DataError(f"{path}: a spreadsheet; save it as CSV (UTF-8) and name that")
    try:
        cells, places = _parquet(path) if ending == ".parquet" else _csv(path)
    except (pa.ArrowException, csv.Error, OSError) as error:
        raise DataError(f"{path}: not readable ({first_line(error)}); write it again") from None
    header = [str(head).strip() for head in cells.columns]
    texts = [["" if cell is None else str(cell).strip() for cell in row] for row in cells.itertuples(index=False, name=None)]
    if header in texts:
        raise DataError(f"{places[texts.index(header)]}: the heads a second time; take the row out")
    cells.columns = [head or f"column {number}" for number, head in enumerate(header, 1)]
    if any(twice := cells.columns.duplicated()):
        raise DataError(f"{path}: column {cells.columns[twice][0]} occurs twice; keep one")
    return Sheet(path, cells, places, [path] * len(places))


def decode(path: Path) -> str:
    """The text of a file in UTF-8. Raises DataError."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    if "\0" in text:
        raise DataError(f"{path}: holds zero bytes, as UTF-16 does; save the file as UTF-8")
    return text


def _csv(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Cells and their places, by Python's reader, which knows the line of each row; pandas' fills up rows that are cut short."""
    text = decode(path).lstrip("\r\n")
    separator = max(SEPARATORS, key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    header, rows, places = [head.strip() for head in next(reader, [])], [], []
    if any(map(is_image_name, header)):
        raise DataError(f"{path}: line 1 has no heads; write some above, such as `image{separator}labels`")
    for row in reader:
        if not any(map(str.strip, row)):
            continue
        places.append(f"{path}: line {reader.line_num}")
        if len(row) != len(header):
            text = f"{len(row)} cells, the header has {len(header)} ({first_of(header, 3)}); remove lines above the heads, and"
            way = f"write one cell for each column, empty ones too, with quotes around values that hold {separator!r}"
            raise DataError(f"{places[-1]}: {text} {way}")
        rows.append(row)
    return pd.DataFrame(rows, columns=header, dtype=object), places


def _parquet(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Its cells, empty for a missing value and a list for an array, and their places."""
    with open(path, "rb") as file:  # pyarrow's message would have the path a second time, and be cut by its length
        try:
            frame = pd.read_parquet(file)
            frame = frame if isinstance(frame.index, pd.RangeIndex) else frame.reset_index()
        except ValueError as error:  # of pyarrow, or of what pandas keeps in the metadata
            raise DataError(f"{path}: not readable ({first_line(error)}); write it again") from None
    cells = (
        frame.astype(object).where(frame.notna(), "").map(lambda cell: cell.tolist() if isinstance(cell, np.ndarray) else cell)
    )
    return cells, [f"{path}: row {number}" for number in range(1, len(frame) + 1)]


def read_names(sheet: Sheet, head: str, separator: str, what: str = "labels") -> Names:
    """The names in each row of a column of labels.

    Args:
        separator: what separates names, beside `;`; `auto`: nothing else. But for `;` a list as Python or JSON writes it is one.
        what: name of the column, for messages.

    Raises:
        DataError: a cell holds something else, or `-` among names.
    """
    between = ";" if separator == "auto" else f"{re.escape(separator)}|;"
    names_of: Names = []
    for row, cell in enumerate(sheet.cells[head]):
        text = cell.strip() if isinstance(cell, str) else None
        parts: Any = [cell] if isinstance(cell, int) and not isinstance(cell, bool) else cell
        if text is not None:
            parts = None if separator == ";" else _literal(text)
            parts = re.split(between, text) if parts is None else parts
        if cell is None or text == "":
            names_of.append(None)
        elif text == NONE:
            names_of.append([])
        elif isinstance(parts, list | tuple | set) and all(isinstance(part, int | str) for part in parts):
            names = {unicodedata.normalize("NFC", str(part).strip()) for part in parts} - {""}
            if NONE in names:
                raise sheet.error(row, f"{what}: `{NONE}` says none of the classes and is no name among others")
            names_of.append(sorted(names) if names or not parts else None)  # `['']` is an empty cell that was split
        else:
            shown = str(cell) if len(str(cell)) <= 60 else f"{str(cell)[:57]}..."
            raise sheet.error(row, f"{what}: found {shown}, expected names, as one text with `;` between or as a list")
    return names_of


def _literal(text: str) -> Any:
    """The list, or mapping, that a text is in Python, and so in JSON where it holds texts alone; None where it is none.

    An array as NumPy prints it, without commas, is none: Python would join its names.
    """
    if text[:1] not in ("[", "(", "{", "'", '"') or re.search(r"""(['"])\s+\1""", text):
        return None
    try:
        value = ast.literal_eval(f"[{text}]" if text[0] in "'\"" else text)  # names within quotes too
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, list | tuple | set | dict) else None
