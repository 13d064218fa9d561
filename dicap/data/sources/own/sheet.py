"""One forgiving reader for tables as people have them: CSV with any separator and encoding, TSV, Parquet.

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
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dicap.errors import DataError, first_line

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "vertical bar"}
NONE = "-"  # a cell that says: none of the classes
# What programs write for an empty cell.
MISSING = ("nan", "NaN", "<NA>", "None", "null", "NULL", "NA", "N/A", "n/a", "#N/A")
OTHERS = "*"  # a cell of absent classes that says: all but the labels
# Heads that people give to a column, in the order in which they are believed; capitals, blanks and dashes do not count.
IMAGE = (
    *("image", "images", "file_name", "filename", "file", "image_path", "filepath", "file_path", "path", "image_name"),
    *("image_file", "img", "photo", "photograph", "picture", "image_id", "imageid", "id"),
)
LABELS = ("labels", "label", "tags", "tag", "classes", "class", "categories", "category", "keywords", "class_name", "label_name")
ABSENT = ("absent",)  # one head alone: a column of another meaning would make a class's absence unknown
SPLIT = ("split", "set", "subset", "partition", "data_split", "phase")
YES, NO = ("1", "1.0", "true", "yes", "x"), ("0", "0.0", "false", "no")


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

    def image_column(self) -> int | None:
        """The column of images: by its head, else the only one most of whose cells name image files."""
        found = self.column(IMAGE)
        if found is not None:
            return found
        filled = [[text for text in self.texts(c) if text] for c in range(len(self.header))]
        named = [c for c, texts in enumerate(filled) if texts and 2 * sum(map(_is_image_name, texts)) > len(texts)]
        return named[0] if len(named) == 1 else None

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
        DataError: the file is missing, its encoding or its rows cannot be told, or it is a spreadsheet of another format.
    """
    if path.suffix.lower() in (".xlsx", ".xls", ".ods", ".numbers"):
        raise DataError(f"{path}: a spreadsheet; save it as CSV (UTF-8) and name that")
    try:
        return _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path, path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (pa.ArrowException, csv.Error, OSError) as error:
        raise DataError(f"{path}: not readable ({first_line(error)}); write it again") from None


def looks_like_labels(path: Path) -> bool:
    """Whether a file begins as a table of images does: more than one column, one of which names images by head or by content."""
    try:
        if path.suffix.lower() == ".parquet":
            header = [str(name) for name in pq.read_schema(path).names]
            first = next(iter(_parquet(path).rows), []) if len(header) > 1 else []
        else:
            with path.open("rb") as file:
                head = file.read(1 << 16).rpartition(b"\n")[0] or path.read_bytes()[: 1 << 16]
            if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
                return False
            text = head.decode("utf-16" if b"\0" in head else "latin-1").lstrip("\ufeffï»¿")
            header, first = _first_rows(text)
    except (OSError, ValueError, csv.Error, pa.ArrowException):
        return False
    named = any(plain(name) in IMAGE for name in header) or any(isinstance(cell, str) and _is_image_name(cell) for cell in first)
    return len(header) > 1 and named


def decode(path: Path, data: bytes) -> tuple[str, str]:
    """The text of a file and the name of its encoding: UTF-8, UTF-16 with a byte order mark, or Windows-1252.

    Windows-1252 is believed only where each of its bytes beyond ASCII is a letter of Western Europe and no three of them follow
    one another: Cyrillic, Greek or Japanese bytes, and those of a Macintosh, are none of this.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return data.decode("utf-16").lstrip("\ufeff"), "UTF-16"
        except UnicodeDecodeError:
            raise DataError(f"{path}: begins like UTF-16 and goes on otherwise; save the table as UTF-8") from None
    if b"\0" in data and b"\0" in data[:400:2] + data[1:400:2] and data.count(b"\0") > len(data) // 4:
        raise DataError(f"{path}: looks like UTF-16 without a byte order mark; save the table as UTF-8")
    try:
        return data.decode("utf-8-sig"), "UTF-8"
    except UnicodeDecodeError as error:
        text = data.decode("latin-1")
        strange = [letter for letter in text if letter > "\x7f"]
        western = all(letter >= "\xa0" and unicodedata.category(letter)[0] == "L" for letter in strange)
        if western and not re.search(r"[^\x00-\x7f]{3}", text):
            return text, "Windows-1252"
        raise DataError(
            f"{path}: byte {error.start} is not UTF-8, and no other encoding is certain; save the table as UTF-8"
        ) from None


def _csv(path: Path, data: bytes) -> Sheet:
    text, encoding = decode(path, data)
    skipped, separator = 0, ""
    if found := re.match(r"\s*\"?sep=(.)\"?\r?\n", text, re.IGNORECASE):  # a line that spreadsheets write for themselves
        skipped, separator, text = 1, found[1], text[found.end() :]
    separator = separator or _separator(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    header = [name.strip() for name in next(reader, [])]
    while header and not header[-1]:
        header.pop()
    if header and _is_image_name(header[0]):
        raise DataError(f"{path}: line 1 has no heads; write `image{separator}labels` (or the like) above it")
    rows, lines = [], []
    for row in reader:
        if not any(cell.strip() for cell in row):
            continue
        if len(row) > len(header) and not any(cell.strip() for cell in row[len(header) :]):
            row = row[: len(header)]  # columns without a head and without a value: a spreadsheet's margin
        if len(row) != len(header):
            remedy = f"put quotes around values that hold a {SEPARATORS.get(separator, repr(separator))}"
            if len(row) < len(header):
                remedy = "write one cell for each column, empty ones too"
            line = reader.line_num + skipped
            raise DataError(f"{path}: line {line}: {len(row)} cells, the header has {len(header)}; {remedy}")
        rows.append(row)
        lines.append(reader.line_num + skipped)
    facts = {"separator": SEPARATORS.get(separator, separator), "encoding": encoding}
    return Sheet(path, header, rows, lines, facts)


def _separator(text: str) -> str:
    """The separator that gives a head one knows; else the one that gives most columns, for the message that follows."""
    heads = {separator: _row(io.StringIO(text, newline=""), separator) for separator in SEPARATORS}
    known = [separator for separator, head in heads.items() if any(plain(name) in IMAGE for name in head)]
    return max(known or heads, key=lambda separator: len(heads[separator]))


def _first_rows(text: str) -> tuple[list[str], list[str]]:
    """The head and the row after it."""
    text = re.sub(r"^\s*\"?sep=.\"?\r?\n", "", text, flags=re.IGNORECASE)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=_separator(text))
    return next(rows, []), next(rows, [])


def _row(file: Iterable[str], separator: str) -> list[str]:
    try:
        return next(csv.reader(file, delimiter=separator), [])
    except csv.Error:
        return []


def _is_image_name(text: str) -> bool:
    from dicap.data.sources.files import ENDINGS

    return Path(text).suffix.lower() in ENDINGS


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

    Names are separated by `;`, or stand in a list as Python or JSON writes it. Where no cell holds a `;` and some hold a comma
    (or a vertical bar), either reading makes sense, and the user is asked.

    Args:
        separator: what separates names; `auto`: as above.
        known: names of classes that are certain; a cell whose parts all are known is then no question. None: every text between
            two separators is one, whatever it looks like.
        what: name of the column, for messages.
    """

    def __init__(
        self, sheet: Sheet, column: int, separator: str = "auto", known: Iterable[str] | None = (), what: str = "labels"
    ) -> None:
        assert known is not None or separator != "auto"
        self._sheet, self._column, self._separator, self._what = sheet, column, separator, what
        self._known, self._literally = set(known or ()), known is None

    def read(self) -> list[list[str] | None]:
        """The names of each row, sorted; [] for `-` (none of the classes), None for an empty cell. Raises DataError."""
        cells = [row[self._column] for row in self._sheet.rows]
        texts = [cell.strip() for cell in cells if isinstance(cell, str)]
        plain_texts = [text for text in texts if not _is_list(text)]
        if self._separator == "auto":
            names = {part.strip() for text in plain_texts for part in text.split(";")}
            if any(";" in text for text in plain_texts):
                self._ask_of(",|", cells, names)
            else:
                self._ask(cells)
            self._ask_of("/+& ", cells, names)
        return [self._names(cell, row) for row, cell in enumerate(cells)]

    def _names(self, cell: Any, row: int) -> list[str] | None:
        if cell is None or (isinstance(cell, str) and not cell.strip()):
            return None
        if isinstance(cell, str):
            text = cell.strip()
            if text == NONE:
                return []
            certain = self._literally or text in self._known
            if text in MISSING and not certain:
                return None
            parts: Any = self._listed(text, row) if _is_list(text) and not certain else self._split(text)
        else:
            parts = [cell] if isinstance(cell, int) and not isinstance(cell, bool) else cell
        if isinstance(parts, list | tuple) and all(isinstance(part, int | str) for part in parts):
            names = {unicodedata.normalize("NFC", str(part).strip()) for part in parts} - {""}
            if NONE in names:
                raise self._sheet.error(row, f"{self._what}: `{NONE}` says none of the classes and is no name among others")
            return sorted(names)
        shown = str(cell) if len(str(cell)) <= 60 else f"{str(cell)[:57]}..."
        raise self._sheet.error(row, f"{self._what}: found {shown}, expected names, as one text with `;` between or as a list")

    def _split(self, text: str) -> list[str]:
        if self._separator != "auto":
            return text.split(self._separator)
        if ";" not in text and text not in self._known:
            for mark in (",", "|"):
                parts = [part.strip() for part in text.split(mark)]
                if len(parts) > 1 and any(parts) and all(part in self._known for part in parts if part):
                    return parts
        return text.split(";")

    def _listed(self, text: str, row: int) -> list[str]:
        if re.search(r"""(['"])\s+\1""", text):  # as NumPy prints an array; Python would join the names
            raise self._sheet.error(row, f"{self._what}: {text[:60]} is a printed array; write the names with `;` between")
        if (value := _literal(text)) is None:
            return self._split(text[1:-1].replace(",", ";"))
        return [str(part) for part in value] if isinstance(value, list | tuple | set) else [str(value)]

    def _ask(self, cells: list[Any]) -> None:
        """Refuse what can be read in two ways: a comma or a vertical bar, or words that keep coming in other combinations."""
        texts = self._ask_of(",|", cells)
        distinct = set(texts.values()) - self._known
        words = Counter(word for text in distinct for word in set(text.split()))
        several = [text for text in sorted(distinct) if len(text.split()) > 1]
        recombined = [text for text in several if all(words[word] > 1 for word in text.split())]
        if len(recombined) > 1 and 2 * len(recombined) >= len(several):
            row = next(row for row, text in texts.items() if text == recombined[0])
            raise self._question(row, recombined[0], " ")

    def _ask_of(self, marks: str, cells: list[Any], names: Collection[str] | None = None) -> dict[int, str]:
        """Refuse a cell of one name that one of `marks` cuts into parts, all of them among `names`; returns the texts by row."""
        texts = {row: cell.strip() for row, cell in enumerate(cells) if isinstance(cell, str) and not _is_list(cell.strip())}
        for mark in marks:
            for row, text in texts.items():
                one = text not in self._known and len(self._split(text)) < 2
                parts = [part.strip() for part in text.split(mark)]
                if one and mark in text.strip(mark) and (names is None or all(part in names for part in parts)):
                    raise self._question(row, text, mark)
        return texts

    def _question(self, row: int, text: str, mark: str) -> DataError:
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        return self._sheet.error(
            row,
            f"{self._what}: is {shown!r} one class or several? own.separator {mark!r} (init-data --separator {mark!r}) reads "
            "several, ';' one",
        )


def _is_list(text: str) -> bool:
    """Whether a cell is a list as Python or JSON writes it, and no name that stands in brackets."""
    bracketed = len(text) > 1 and (text[0], text[-1]) in (("[", "]"), ("(", ")"), ("{", "}"))
    if not bracketed or (text[1:-1].strip() and re.search(r"""['",]""", text) is None):
        return False
    return ";" not in text or _literal(text) is not None


def _literal(text: str) -> Any:
    """What a text is in Python, and so in JSON where it holds texts alone; None where it is none."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def one_hot(sheet: Sheet, others: Iterable[int]) -> tuple[list[str], list[list[str] | None], list[str]]:
    """Columns of 0 and 1, one for each class: (classes, the names of each row, columns passed over).

    A column counts if at least half of its values are 0 or 1 (also true and false, yes and no; or x and nothing). A row in which
    all of these are empty has not been labelled: None.

    Args:
        others: columns that are something else.

    Raises:
        DataError: such a column holds another value, or some of its cells are empty.
    """
    known, left_out = set(others), []
    columns: dict[int, list[str]] = {}
    for c, name in enumerate(sheet.header):
        if c in known:
            continue
        values = [value.casefold() for value in sheet.texts(c)]
        filled = [value for value in values if value]
        binary = sum(value in YES or value in NO for value in filled)
        if name and binary and 2 * binary >= len(filled):
            columns[c] = values
        elif name:
            left_out.append(name)
    marks = {value for values in columns.values() for value in values if value}
    ticks = bool(marks) and marks <= {"x"}  # ticked, or left empty
    labels: list[list[str] | None] = []
    for row in range(len(sheet.rows)):
        values = {c: columns[c][row] for c in columns}
        if not ticks and not any(values.values()):
            labels.append(None)
            continue
        for c, value in values.items():
            if value not in YES and value not in NO and not (ticks and not value):
                found = f"is {value!r}" if value else "is empty"
                raise sheet.error(
                    row, f"column {sheet.header[c]} {found}; write 0 or 1 (or leave all classes of an unlabelled row empty)"
                )
        labels.append(sorted(unicodedata.normalize("NFC", sheet.header[c]) for c, value in values.items() if value in YES))
    return [sheet.header[c] for c in columns], labels, left_out
