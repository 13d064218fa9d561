"""`table`: anybody's own images, listed in a CSV or Parquet file with columns image, split, labels."""

import csv
import posixpath
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from dicap.data.format import SPLITS, sha256
from dicap.data.sources.base import FileImages, Item, RawSet, inside
from dicap.errors import DataError

COLUMNS = ("image", "split", "labels")
NAMES = ("labels.csv", "labels.parquet")


def read(dataset: str, root: Path | None, image_size: int, *, needs_test: bool = True) -> RawSet:
    """Read the table.

    `data_root` is the folder that holds labels.csv or labels.parquet, or the file itself. `image` is a path relative to
    that folder, `split` one of train, test, unlabeled, `labels` the names separated by `;` (in Parquet also a list);
    no name in a train or test row means "none of the classes". Rows of split unlabeled have no labels.

    The classes are the names found, sorted. `needs_test`: whether a row of split test must be there.

    Raises:
        DataError: the file or one of its rows is not as described; names the line.
    """
    assert root is not None
    path = _find(root)
    frame = _read(path)
    _check(frame, path, needs_test)
    unlabelled = (frame["split"] == "unlabeled").to_numpy()
    names = [[] if hidden else labels for hidden, labels in zip(unlabelled, frame["labels"], strict=True)]
    classes = sorted({name for labels in names for name in labels})
    if not classes:
        raise DataError(f"{path}: column labels: no row of split train or test names a label; fill it in")
    number = {name: i for i, name in enumerate(classes)}
    items = [
        Item(image, image, split, None if split == "unlabeled" else tuple(sorted(number[name] for name in labels)))
        for image, split, labels in zip(frame["image"], frame["split"], names, strict=True)
    ]
    ignored = int(sum(bool(labels) for labels in frame["labels"][unlabelled]))
    return RawSet(
        dataset=dataset,
        classes=classes,
        items=items,
        images=FileImages(path.parent, [item.path for item in items]),
        source={"table": path.name, "sha256": sha256(path)},
        notes=_notes(items, classes, ignored),
    )


def _find(root: Path) -> Path:
    if root.is_file():
        return root
    if not root.is_dir():
        raise DataError(f"{root}: no such folder or file; set data_root to the folder that holds {' or '.join(NAMES)}")
    found = [root / name for name in NAMES if (root / name).is_file()]
    if len(found) != 1:
        how = "both are" if found else "neither is"
        raise DataError(f"{root}: expected {' or '.join(NAMES)} and {how} there; set data_root to the file itself")
    return found[0]


def _read(path: Path) -> pd.DataFrame:
    """The three columns as text, labels as lists of names, and the number of the line each row stands on."""
    try:
        frame = _read_parquet(path) if path.suffix == ".parquet" else _read_csv(path)
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start} is not UTF-8; save the table as UTF-8") from None
    except (pa.ArrowException, csv.Error, OSError) as error:
        raise DataError(f"{path}: not readable ({str(error).splitlines()[0]}); write it again") from None
    frame["labels"] = [_names(labels, path, line) for labels, line in zip(frame["labels"], frame["line"], strict=True)]
    return frame


def _read_csv(path: Path) -> pd.DataFrame:
    with path.open(encoding="utf-8-sig", newline="") as file:  # -sig: spreadsheets write a byte order mark
        reader = csv.reader(file, strict=True)
        header = [name.strip() for name in next(reader, [])]
        _require_columns(header, path)
        rows, lines = [], []
        for row in reader:
            if not any(cell.strip() for cell in row):
                continue
            if len(row) != len(header):
                raise DataError(
                    f"{path}: line {reader.line_num}: {len(row)} cells, the header has {len(header)}; "
                    "put quotes around values that hold a comma"
                )
            rows.append([row[header.index(name)].strip() for name in COLUMNS])
            lines.append(reader.line_num)
    frame = pd.DataFrame(rows, columns=list(COLUMNS), dtype=object)
    frame["line"] = np.array(lines, dtype=np.int64)
    return frame


def _read_parquet(path: Path) -> pd.DataFrame:
    frame = pd.read_parquet(path)
    _require_columns([str(name) for name in frame.columns], path)
    frame = frame[list(COLUMNS)].astype(object).reset_index(drop=True)
    for name in ("image", "split"):
        frame[name] = ["" if value is None or value != value else str(value).strip() for value in frame[name]]
    frame["line"] = np.arange(1, len(frame) + 1)
    return frame


def _require_columns(header: list[str], path: Path) -> None:
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        found = ", ".join(header) or "nothing"
        raise DataError(f"{path}: column {missing[0]} is missing (found {found}); expected image, split, labels")
    for name in COLUMNS:
        if header.count(name) > 1:
            raise DataError(f"{path}: column {name} occurs twice; keep one")


def _names(labels: object, path: Path, line: int) -> list[str]:
    """The names of a cell, sorted. Composed and decomposed accents are one name (Unicode's NFC)."""
    if labels is None or (isinstance(labels, float) and np.isnan(labels)):
        return []
    parts = labels.split(";") if isinstance(labels, str) else labels
    if not isinstance(parts, list | tuple | np.ndarray) or not all(isinstance(part, str) for part in parts):
        shown = str(labels) if len(str(labels)) <= 60 else f"{str(labels)[:57]}..."
        raise DataError(f"{path}: row {line}: labels: found {shown}, expected names, as one text with `;` between or as a list")
    return sorted({unicodedata.normalize("NFC", part.strip()) for part in parts} - {""})


def _check(frame: pd.DataFrame, path: Path, needs_test: bool) -> None:
    """Complain about the first row that is wrong, with the number of its line and how many more there are."""
    where = "line" if path.suffix != ".parquet" else "row"
    if frame.empty:
        raise DataError(f"{path}: no rows; list the images, one a row")

    def complain(bad: np.ndarray, text) -> None:
        rows = np.flatnonzero(bad)
        if len(rows):
            more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
            raise DataError(f"{path}: {where} {frame['line'][rows[0]]}: {text(frame.loc[rows[0]])}{more}")

    complain((frame["image"] == "").to_numpy(), lambda row: "column image is empty; name a file")
    complain(
        ~frame["split"].isin(SPLITS).to_numpy(),
        lambda row: f"split: found {row['split']!r}, allowed are {', '.join(SPLITS)}",
    )
    complain(
        np.array(
            [any(map(_unprintable, (image, *labels))) for image, labels in zip(frame["image"], frame["labels"], strict=True)]
        ),
        lambda row: f"found a control character in {row['image']!r} or in its labels; write the line again",
    )
    complain(
        ~np.array([inside(path.parent, image) for image in frame["image"]]),
        lambda row: f"image: {row['image']!r} leaves the folder of the table; move the images below it",
    )
    # One file under two spellings could be in train and in test.
    frame["file"] = [posixpath.normpath(image) for image in frame["image"]]
    first = dict(zip(frame["file"][::-1], frame["line"][::-1], strict=True))
    complain(
        frame["file"].duplicated().to_numpy(),
        lambda row: f"image: {row['image']!r} stands on {where} {first[row['file']]} already; keep one of them",
    )
    for split in ("train", "test") if needs_test else ("train",):
        if not (frame["split"] == split).any():
            way = ", or let own.test_share draw them" if split == "test" else ""
            raise DataError(f"{path}: no row of split {split}; mark some images {split}{way}")


def _unprintable(text: str) -> bool:
    return any(unicodedata.category(letter) == "Cc" for letter in text)


def _notes(items: list[Item], classes: list[str], ignored: int) -> list[str]:
    notes = []
    if ignored:
        notes.append(f"{ignored} rows of split unlabeled name labels, which were ignored")
    for split, other in (("train", "test"), ("test", "train")):
        seen = Counter(label for item in items if item.split == split for label in item.labels or ())
        absent = [name for i, name in enumerate(classes) if not seen[i]]
        if absent:
            effect = "they cannot be learned" if split == "train" else "their AP counts 0"
            names = ", ".join(absent[:10]) + (" ..." if len(absent) > 10 else "")
            notes.append(f"{len(absent)} classes occur only in {other}, so {effect}: {names}")
    return notes
