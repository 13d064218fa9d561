"""Tables as people have them, CSV in UTF-8 and Parquet, as columns of cells; and the names in a cell of labels.

What can be read in two ways is refused with both of them named.
"""

import ast
import csv
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from dicap.data.sources.files import is_image_name
from dicap.errors import DataError, first_line
from dicap.photos.readers.listing import typed
from dicap.photos.readers.nothing import NOTHING, SCORED

SEPARATORS = ",;\t|"  # of cells: that of which the heads have most
NONE = "-"  # a cell that says: none of the classes
OTHERS = "*"  # a cell of absent classes that says: all but the labels
TRUE, FALSE = ("true", "yes", "y", "x", "✓", "✔"), ("false", "no", "n")
YES, NO, MINUS = ("1", "1.0", *TRUE), ("0", "0.0", *FALSE), ("-1", "-1.0")
MARKS = frozenset((*YES, *NO, *MINUS))
WITHIN = " _-.'’\"()[]{}"  # marks that belong to a name more often than they separate
BETWEEN = ",，、|"  # marks that separate more often than they belong to a name, also where `;` separates elsewhere
WORDS = (" and ", " or ", " und ", " et ", " y ")


@dataclass
class Sheet:
    """The cells of a table, or of several that are read as one.

    Attributes:
        cells: a column of objects for each head: texts, and in Parquet lists of labels; None for a missing value.
        places: file and line (in Parquet the row) of each row.
        files: the file of each row.
        literal: whether a missing value and the text `NA` are told apart, as in Parquet.
    """

    path: Path
    cells: pd.DataFrame
    places: list[str]
    files: list[Path]
    literal: bool

    @property
    def header(self) -> list[str]:
        """The heads, stripped; a column without one is `column 3`."""
        return list(self.cells.columns)

    def raw(self, head: str) -> list[str]:
        """A column as texts with the blanks around; a missing value is an empty one."""
        return ["" if cell is None else str(cell) for cell in self.cells[head]]

    def texts(self, head: str) -> list[str]:
        """A column as stripped texts."""
        return [text.strip() for text in self.raw(head)]

    def error(self, row: int, text: str) -> DataError:
        """The error of one of the rows."""
        return DataError(f"{self.places[row]}: {text}")


def plain(head: str) -> str:
    """A column's head without what people vary: `File Name` and `file-name` are file_name."""
    return re.sub(r"[\s_\-]+", "_", head.strip().casefold())


def read_sheets(paths: Sequence[Path]) -> Sheet:
    """Read one table or several as one, with the columns of all. Raises DataError as `read_sheet`."""
    sheets = [read_sheet(path) for path in paths]
    if len(sheets) == 1:
        return sheets[0]
    cells = pd.concat([sheet.cells for sheet in sheets], ignore_index=True)
    cells = cells.astype(object).where(cells.notna(), None)
    places, files = ([one for sheet in sheets for one in getattr(sheet, key)] for key in ("places", "files"))
    return Sheet(paths[0], cells, places, files, all(sheet.literal for sheet in sheets))


def read_sheet(path: Path) -> Sheet:
    """Read a table.

    Raises:
        DataError: the file is missing, is not UTF-8, has rows of other lengths or two columns of one head, or is a spreadsheet of
            another format.
    """
    if path.suffix.lower() in (".xlsx", ".xls", ".ods", ".numbers"):
        raise DataError(f"{path}: a spreadsheet; save it as CSV (UTF-8) and name that")
    try:
        return _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    except (pa.ArrowException, csv.Error, OSError) as error:
        raise DataError(f"{path}: not readable ({first_line(error)}); write it again") from None


def decode(path: Path) -> str:
    """The text of a file in UTF-8. Raises DataError."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    if "\0" in text:
        raise DataError(f"{path}: holds zero bytes, as UTF-16 does; save the file as UTF-8")
    return text


def _csv(path: Path) -> Sheet:
    """By Python's reader, which knows the line of each row; pandas' fills up rows that are cut short."""
    text = decode(path).lstrip("\r\n")
    separator = max(SEPARATORS, key=text.partition("\n")[0].count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    header, rows, places = [head.strip() for head in next(reader, [])], [], []
    if header and (header[0].casefold().startswith("sep=") or any(map(is_image_name, header))):
        raise DataError(f"{path}: line 1 has no heads; write `{separator.join(_heads(header))}` (or the like) as the first line")
    for row in reader:
        if not any(map(str.strip, row)):
            continue
        place = f"{path}: line {reader.line_num}"
        if len(row) != len(header):
            remedy = f"put quotes around values that hold {separator!r}, without a blank before the quote"
            if len(row) < len(header):
                remedy = "write one cell for each column, empty ones too"
            raise DataError(f"{place}: {len(row)} cells, the header has {len(header)}; {remedy}")
        if [cell.strip() for cell in row] == header:
            raise DataError(f"{place}: the heads a second time; take the line out")
        if quoted := next((cell for cell in row if cell[:1].isspace() and re.fullmatch('".*"', cell.strip())), None):
            raise DataError(f"{place}: found {quoted!r}; take out the blank before the quote, or nothing is quoted by it")
        rows.append(row)
        places.append(place)
    return _sheet(path, header, [*zip(*rows, strict=True)], places, literal=False)


def _heads(cells: list[str]) -> list[str]:
    """Heads for a row that may lack them: those of its image and of its labels, which the other texts are, and numbers."""
    kinds = ["image" if is_image_name(cell) else "" if re.fullmatch(r"[-+.,\d]+", cell) else "labels" for cell in cells]
    if "image" not in kinds:
        return ["image", "labels"]
    numbered = [kind if kind and kind not in kinds[:c] else f"x{c + 1}" for c, kind in enumerate(kinds)]
    return numbered if "labels" in kinds else [*numbered, "labels"]


def _parquet(path: Path) -> Sheet:
    with open(path, "rb") as file:  # pyarrow's message would have the path a second time, and be cut by its length
        try:
            frame = pd.read_parquet(file)
        except ValueError as error:  # of pyarrow, or of what pandas keeps in the metadata
            raise DataError(f"{path}: not readable ({first_line(error)}); write it again") from None
    places = [f"{path}: row {number}" for number in range(1, len(frame) + 1)]
    columns = [[*map(_cell, frame.iloc[:, c])] for c in range(frame.shape[1])]
    return _sheet(path, [str(name).strip() for name in frame.columns], columns, places, literal=True)


def _sheet(path: Path, header: list[str], columns: Sequence[Sequence[Any]], places: list[str], literal: bool) -> Sheet:
    """A table of named columns; those without a head and a content are a spreadsheet's margin."""
    columns = columns or [()] * len(header)
    filled = [c for c, head in enumerate(header) if head or any(str(cell or "").strip() for cell in columns[c])]
    names = {c: header[c] or f"column {c + 1}" for c in filled}
    if twice := [name for name, count in Counter(names.values()).items() if count > 1]:
        raise DataError(f"{path}: column {twice[0]} occurs twice; keep one")
    cells = pd.DataFrame({name: pd.Series(columns[c], dtype=object) for c, name in names.items()})
    return Sheet(path, cells, places, [path] * len(places), literal)


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
        separator: what separates names, beside `;`; `auto`: as above.
        known: names of classes that are certain, and so no question. None: every text between two separators is one, whatever
            it looks like.
        what: name of the column, for messages.
    """

    def __init__(
        self,
        sheet: Sheet,
        head: str,
        separator: str = "auto",
        known: Iterable[str] | None = (),
        what: str = "labels",
    ) -> None:
        assert known is not None or separator != "auto"
        self._sheet, self._head, self._what = sheet, head, what
        self._auto, self._separator = separator == "auto", ";" if separator == "auto" else separator
        self._known, self._literally = set(known or ()), known is None

    def read(self) -> list[list[str] | None]:
        """The names of each row, sorted; [] for `-` (none of the classes), None for an empty cell. Raises DataError."""
        cells = list(self._sheet.cells[self._head])
        if self._auto:
            self._ask({row: cell.strip() for row, cell in enumerate(cells) if isinstance(cell, str)})
        return [self._names(cell, row) for row, cell in enumerate(cells)]

    def _names(self, cell: Any, row: int) -> list[str] | None:
        text = cell.strip() if isinstance(cell, str) else None
        certain = self._literally or text in self._known
        if cell is None or text == "":
            return None
        if text == NONE:
            return []
        parts: Any = [cell] if isinstance(cell, int) and not isinstance(cell, bool) else cell
        if text is not None:
            parts = _literal(text) if _is_list(text) and not certain else re.split(f"{re.escape(self._separator)}|;", text)
        if isinstance(parts, list | tuple | set) and all(isinstance(part, int | str) for part in parts):
            names = {unicodedata.normalize("NFC", str(part).strip()) for part in parts} - {""}
            if NONE in names:
                raise self._sheet.error(row, f"{self._what}: `{NONE}` says none of the classes and is no name among others")
            return sorted(names) if names or not parts else None  # `['']` is an empty cell that was split
        shown = str(cell) if len(str(cell)) <= 60 else f"{str(cell)[:57]}..."
        raise self._sheet.error(row, f"{self._what}: found {shown}, expected names, as one text with `;` between or as a list")

    def _ask(self, texts: dict[int, str]) -> None:
        """Refuse what can be read in two ways: names between which something else than `;` may stand.

        Blanks, dashes, other marks that names hold, and words as `and` may separate where each part is a name of its own or, of
        a blank and without a `;` anywhere, a part of another name too; any other mark where no cell holds a `;`, or one part is a
        name; a comma and its like in any case, unless a name that is certain holds it, and beside a name also at its end.
        """
        rows: dict[str, int] = {}
        for row, text in texts.items():
            if not _is_list(text) and not NOTHING.fullmatch(text):
                rows.setdefault(text, row)
        separated = any(";" in text for text in rows)
        held = "".join([*self._known, *(text for text in rows if ";" in text)])  # names that are certain
        places: dict[str, int] = {}
        for text, row in rows.items():
            for part in text.split(";"):
                places.setdefault(part.strip(), row)
        names = places.keys() | self._known
        marks = {letter for name in names for letter in name if unicodedata.category(letter)[0] not in "LNMC"} - {";"}
        for mark in sorted({*marks, *WORDS}, key=lambda mark: (mark in WITHIN, mark)):
            within = mark in WITHIN or mark in WORDS
            pieces = Counter(piece for name in names for piece in {part.strip() for part in name.split(mark)})
            parts = names if separated or (within and mark != " ") else {piece for piece, count in pieces.items() if count > 1}
            for name, row in places.items():
                between = mark in name.strip(mark)
                if mark not in name or not (between or mark in BETWEEN) or name in self._known or SCORED.search(name):
                    continue
                known = [part.strip() in parts for part in name.split(mark) if part.strip()]
                alone = not separated or (mark in BETWEEN and mark not in held) or any(known)
                if all(known) or (between and not within and alone):
                    shown = name if len(name) <= 60 else f"{name[:57]}..."
                    raise self._sheet.error(
                        row,
                        f"{self._what}: is {shown!r} one class or several? Write `;` between several; own.separator {mark!r} "
                        f"(init-data --separator {typed(mark)}) reads several, ';' one",
                    )


def _is_list(text: str) -> bool:
    """Whether a cell is a list as Python or JSON writes it, and no name that stands in brackets."""
    bracketed = len(text) > 1 and (text[0], text[-1]) in (("[", "]"), ("(", ")"), ("{", "}"))
    if not bracketed or (text[1:-1].strip() and re.search(r"""['",]""", text) is None):
        return bracketed and isinstance(_literal(text), list)  # of one number
    return ";" not in text or _literal(text) is not None


def _literal(text: str) -> Any:
    """What a text is in Python, and so in JSON where it holds texts alone; None where it is none.

    An array as NumPy prints it, without commas, is none: Python would join its names.
    """
    try:
        return None if re.search(r"""(['"])\s+\1""", text) else ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
