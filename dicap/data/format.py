"""The files of a converted set: their names, their schema, and reading them with every check that is cheap.

A converted set is a folder `data/converted/` with

- `images.npy`, (N, H, W, 3) uint8, C order (`store: array`), or `images.jpg.npy`, the bytes of N JPEG files one after
  the other, with `offsets.npy`, (N + 1,) int64 (`store: jpeg`);
- `index.parquet`, a row an image in the order of the array: id, path, width, height (of the original), split, labels; where some
  images are labelled in part, `absent` too: the classes known not to be there, null where that is all classes without a label;
- `meta.json`, written last: classes, counts, rejected files, checksums. A folder without it is not a set.

A large set has its images in shards: `images-00000.npy`, `images-00001.npy` ... (`images-00000.jpg.npy` with
`offsets-00000.npy`), each like the one file of a small set, and in `meta.json` their numbers of images, `shards`. Shard after
shard they are in the order of the index. `dicap.data.shards` says which images are in which."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dicap.errors import DataError, first_line

SCHEMA = 1
PARTIAL_SCHEMA = 2  # of sets with a column `absent`, which a reader of schema 1 would take for fully labelled ones
SHARDED_SCHEMA = 3  # of sets in shards, labelled in part or not
AGAIN = "run `dicap-stage convert` again"
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


def write_index(path: Path, tables: Iterable[pa.Table], *, partial: bool = False) -> None:
    """Write `index.parquet`, a group of rows a table; pages carry checksums, or a flipped bit in one could be read without a
    word.

    Args:
        tables: the columns of INDEX_SCHEMA, and where the set is labelled in part, ABSENT; others are left out.
    """
    schema = INDEX_SCHEMA.append(ABSENT) if partial else INDEX_SCHEMA
    with pq.ParquetWriter(path, schema, write_page_checksum=True) as writer:
        for table in tables:
            writer.write_table(table.select(schema.names).cast(schema).combine_chunks())


def is_partial(meta: dict[str, Any]) -> bool:
    """Whether some images of a set are labelled in part, so that its index has a column `absent`."""
    return meta["schema"] == PARTIAL_SCHEMA or (meta["schema"] == SHARDED_SCHEMA and "unknown" in meta)


def numbered(name: str, shard: int | None) -> str:
    """The name of a shard's file: `images-00003.jpg.npy` of `images.jpg.npy`; `name` itself where the set has no shards."""
    stem, dot, end = name.partition(".")
    return name if shard is None else f"{stem}-{shard:05d}{dot}{end}"


def pixel_files(store: str) -> list[str]:
    """The files of a set or shard that hold its images."""
    return [ARRAY] if store == "array" else [JPEGS, OFFSETS]


def index_rows(folder: Path) -> int:
    """The number of rows of `index.parquet`, by its end alone.

    Raises:
        DataError: the file is missing or damaged.
    """
    with _index_trouble(folder / INDEX):
        return pq.read_metadata(folder / INDEX).num_rows


def read_index(folder: Path, columns: list[str] | None = None) -> pa.Table:
    """Read `index.parquet` (some columns of it), verifying the checksum of every page read.

    Raises:
        DataError: the file is missing, damaged, or has not the columns of the schema.
    """
    with _index_trouble(folder / INDEX):
        return pq.read_table(folder / INDEX, columns=columns, page_checksum_verification=True)


@contextmanager
def _index_trouble(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; run `dicap-stage convert`") from None
    except (pa.ArrowException, OSError) as error:
        reason = first_line(error)
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
    if not isinstance(meta, dict) or meta.get("schema") not in (SCHEMA, PARTIAL_SCHEMA, SHARDED_SCHEMA):
        found = meta.get("schema") if isinstance(meta, dict) else None
        raise DataError(f"{path}: schema is {found!r}, expected {SCHEMA}; run `dicap-stage convert` again")
    keys = (*META_KEYS, "shards") if meta["schema"] == SHARDED_SCHEMA else META_KEYS
    missing = [key for key in keys if key not in meta]
    if missing:
        raise DataError(f"{path}: {missing[0]} is missing; run `dicap-stage convert` again")
    return meta


def identity(meta: dict[str, Any]) -> str:
    """One checksum for the whole set, from the checksums of its files and what gives them meaning."""
    parts = {key: meta[key] for key in ("schema", "dataset", "image_size", "store", "classes", "checksums")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def shard_identity(meta: dict[str, Any], shard: int) -> str:
    """One checksum for the images of a shard, whatever other shards the set has."""
    checksums = [meta["checksums"][numbered(name, shard)] for name in pixel_files(meta["store"])]
    return hashlib.sha256(json.dumps([meta["image_size"], meta["store"], checksums]).encode()).hexdigest()


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
    reason = first_line(error)
    return "no NumPy file, or one with Python objects, which are not loaded" if "pickle" in reason else reason


def open_npy(path: Path, dtype: type, shape: tuple[int | None, ...]) -> np.ndarray:
    """Map an .npy file; None in `shape` stands for any size.

    The map is private (copy on write): the pages are shared with every other process that reads the file, and
    nothing written to the array reaches the disk.

    Raises:
        DataError: the file is missing, truncated, or of another shape or type.
    """
    with _npy_trouble(path):
        array = np.load(path, mmap_mode="c", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: holds an archive of arrays (npz), expected one array; run `dicap-stage convert` again")
    _check_npy(path, array, dtype, shape)
    return array


def map_npy(path: Path, dtype: type, shape: tuple[int | None, ...], again: str = AGAIN) -> np.ndarray:
    """As `open_npy`, read-only and without keeping the file open: a process may open some thousand files, and a set have as
    many shards (NumPy's maps keep theirs).

    Args:
        again: what to do about a damaged file.

    Raises:
        DataError: as `open_npy`.
    """
    with _npy_trouble(path, again), path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise ValueError(f"version {version} of the npy format")
        found, fortran, kind = np.lib.format.read_array_header_1_0(file)
        start = file.tell()
        if fortran:
            raise ValueError("columns before rows")
        with pa.memory_map(str(path)) as mapped:
            buffer = mapped.read_buffer()  # outlives the file
        count = math.prod(found)
        if buffer.size - start != count * kind.itemsize:
            raise ValueError(f"{buffer.size - start} bytes of {count * kind.itemsize}")
        array = np.frombuffer(buffer, kind, count, start).reshape(found) if count else np.empty(found, kind)
    _check_npy(path, array, dtype, shape, again)
    return array


@contextmanager
def _npy_trouble(path: Path, again: str = AGAIN) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; {again}") from None
    except (ValueError, OSError, EOFError, pa.ArrowException) as error:
        raise DataError(f"{path}: not readable ({npy_trouble(error)}); {again}") from None


def _check_npy(path: Path, array: np.ndarray, dtype: type, shape: tuple[int | None, ...], again: str = AGAIN) -> None:
    fits = array.dtype == dtype and array.ndim == len(shape)
    if not fits or any(want is not None and want != have for want, have in zip(shape, array.shape, strict=True)):
        wanted = "x".join("?" if size is None else str(size) for size in shape)
        found = "x".join(map(str, array.shape))
        name = np.dtype(dtype).name
        raise DataError(f"{path}: holds {found} {array.dtype}, meta.json says {wanted} {name}; {again}")
