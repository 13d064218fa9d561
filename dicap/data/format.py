"""The files of a converted set: their names, their schema, and reading them with every check that is cheap.

A converted set is a folder `data/converted/` with

- `images.npy`, (N, H, W, 3) uint8, C order (`store: array`), or `images.jpg.npy`, the bytes of N JPEG files one after
  the other, with `offsets.npy`, (N + 1,) int64 (`store: jpeg`);
- `index.parquet`, a row an image in the order of the array: id, path, width, height (of the original), split, labels; where some
  images are labelled in part, `absent` too: the classes known not to be there, null where that is all classes without a label;
- `meta.json`, written last: classes, counts, rejected files, checksums. A folder without it is not a set.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dicap.errors import DataError

SCHEMA = 1
PARTIAL_SCHEMA = 2  # of sets with a column `absent`, which a reader of schema 1 would take for fully labelled ones
META = "meta.json"
INDEX = "index.parquet"
ARRAY = "images.npy"
JPEGS = "images.jpg.npy"
OFFSETS = "offsets.npy"
SPLITS = ("train", "test", "unlabeled")
META_KEYS = ("dataset", "image_size", "store", "classes", "counts", "rejected", "checksums", "notes")

INDEX_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("path", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("split", pa.string()),
        ("labels", pa.list_(pa.int16())),
    ]
)
ABSENT = pa.field("absent", pa.list_(pa.int16()))


def write_index(path: Path, columns: dict[str, list]) -> None:
    """Write `index.parquet`; pages carry checksums, or a flipped bit in one could be read without a word."""
    schema = INDEX_SCHEMA.append(ABSENT) if ABSENT.name in columns else INDEX_SCHEMA
    pq.write_table(pa.table(columns, schema=schema), path, write_page_checksum=True)


def is_partial(meta: dict[str, Any]) -> bool:
    """Whether some images of a set are labelled in part, so that its index has a column `absent`."""
    return meta["schema"] == PARTIAL_SCHEMA


def read_index(folder: Path, columns: list[str] | None = None) -> pa.Table:
    """Read `index.parquet` (some columns of it), verifying the checksum of every page read.

    Raises:
        DataError: the file is missing, damaged, or has not the columns of the schema.
    """
    path = folder / INDEX
    try:
        return pq.read_table(path, columns=columns, page_checksum_verification=True)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; run `dicap-stage convert`") from None
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path}: damaged ({reason}); run `dicap-stage convert` again") from None


def write_meta(folder: Path, meta: dict[str, Any]) -> None:
    """Write `meta.json`: the last file of a set, and free of times and paths, so that equal sets are equal bytes."""
    (folder / META).write_text(json.dumps(meta, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_meta(folder: Path) -> dict[str, Any]:
    """Read `meta.json`.

    Raises:
        DataError: the folder is not a converted set, or one of another schema.
    """
    path = folder / META
    try:
        meta = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file, so {folder} is not a converted set; run `dicap-stage convert`") from None
    except (ValueError, OSError) as error:
        raise DataError(f"{path}: not readable ({error}); run `dicap-stage convert` again") from None
    if not isinstance(meta, dict) or meta.get("schema") not in (SCHEMA, PARTIAL_SCHEMA):
        found = meta.get("schema") if isinstance(meta, dict) else None
        raise DataError(f"{path}: schema is {found!r}, expected {SCHEMA}; run `dicap-stage convert` again")
    missing = [key for key in META_KEYS if key not in meta]
    if missing:
        raise DataError(f"{path}: {missing[0]} is missing; run `dicap-stage convert` again")
    return meta


def identity(meta: dict[str, Any]) -> str:
    """One checksum for the whole set, from the checksums of its files and what gives them meaning."""
    parts = {key: meta[key] for key in ("schema", "dataset", "image_size", "store", "classes", "checksums")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def sha256(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def npy_header(shape: tuple[int, ...]) -> bytes:
    """The 128-byte head of an .npy file of uint8 in C order, so that rows can be written before N is known."""
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape!r}, }}"
    head = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.ljust(117).encode() + b"\n"
    assert len(head) == 128, "the shape is too long for the head"
    return head


def npy_trouble(error: Exception) -> str:
    """NumPy's reason in one line. Its advice to load a pickle is left out: one would run whatever it holds."""
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return "no NumPy file, or one with Python objects, which are not loaded" if "pickle" in reason else reason


def open_npy(path: Path, dtype: type, shape: tuple[int | None, ...]) -> np.ndarray:
    """Map an .npy file; None in `shape` stands for any size.

    The map is private (copy on write): the pages are shared with every other process that reads the file, and
    nothing written to the array reaches the disk.

    Raises:
        DataError: the file is missing, truncated, or of another shape or type.
    """
    try:
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; run `dicap-stage convert` again") from None
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{path}: not readable ({npy_trouble(error)}); run `dicap-stage convert` again") from None
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: holds an archive of arrays (npz), expected one array; run `dicap-stage convert` again")
    fits = array.dtype == dtype and array.ndim == len(shape)
    if not fits or any(want is not None and want != have for want, have in zip(shape, array.shape, strict=True)):
        wanted = "x".join("?" if size is None else str(size) for size in shape)
        found = "x".join(map(str, array.shape))
        name = np.dtype(dtype).name
        raise DataError(f"{path}: holds {found} {array.dtype}, meta.json says {wanted} {name}; run `dicap-stage convert` again")
    return array
