"""The files of a converted set: their names, their schemas, and readers with cheap checks.

A converted set is a folder `data/converted/` with

- `images.npy`, (N, H, W, 3) uint8, C order;
- `index.parquet`, one row per image in the order of the array: id, path, width, height (of the original), split, labels. If some
  images are labelled in part, a column `absent` has the classes known to be absent; null: all classes that are not in `labels`.
  If images belong together in every split (a patient, near-duplicates), a column `group` has one id of the group, else null;
- `meta.json`, written last: classes, counts, rejected files, checksums. A folder without it is not a set.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dicap.errors import DataError
from dicap.files.json_files import check_kinds, read_json
from dicap.files.tables import read_parquet

SCHEMA = 1
PARTIAL_SCHEMA = 2  # of sets with a column `absent`, which a reader of schema 1 would treat as fully labelled
AGAIN = "run `dicap-stage convert` again"
META = "meta.json"
INDEX = "index.parquet"
ARRAY = "images.npy"
SPLITS = ("train", "test", "unlabeled")

# The types of the values in every `meta.json`, besides its schema number.
META_KINDS = {"dataset": str, "image_size": int, "classes": list[str], "counts": dict[str, int]}
META_KINDS |= {"rejected": list[dict[str, str]], "checksums": dict[str, str], "notes": list[str]}

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
GROUP = pa.field("group", pa.string())


def write_index(path: Path, columns: dict[str, Any]) -> None:
    """Write `index.parquet` with page checksums, so that a flipped bit is noticed.

    Args:
        columns: {name: values} of INDEX_SCHEMA; of ABSENT if the set is labelled in part; of GROUP if it has groups.
    """
    schema = pa.schema([*INDEX_SCHEMA, *(field for field in (ABSENT, GROUP) if field.name in columns)])
    table = pa.table(columns, schema=schema)
    pq.write_table(table, path, write_page_checksum=True, row_group_size=16_384)


def is_partial(meta: dict[str, Any]) -> bool:
    """Whether some images of a set are labelled in part, so that its index has a column `absent`."""
    return meta["schema"] == PARTIAL_SCHEMA


def read_groups(folder: Path) -> np.ndarray | None:
    """The group of each image, (N,) strings, or its own id if it has no group; None if no image has one. Raises DataError."""
    if not read_meta(folder).get("grouped"):
        return None
    table = read_index(folder, ["id", "group"])
    return pc.coalesce(table["group"], table["id"]).to_numpy()  # type: ignore[attr-defined]


def read_index(folder: Path, columns: list[str] | None = None) -> pa.Table:
    """Read `index.parquet` or some of its columns, verifying the checksum of every page read. Raises DataError."""
    return read_parquet(folder / INDEX, columns, AGAIN)


def write_meta(folder: Path, meta: dict[str, Any]) -> None:
    """Write `meta.json`, the last file of a set. It contains no times or paths, so equal sets have equal bytes."""
    (folder / META).write_text(json.dumps(meta, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_meta(folder: Path) -> dict[str, Any]:
    """Read `meta.json`. Raises DataError if the folder is not a converted set, or has another schema."""
    path = folder / META
    if not path.exists():
        raise DataError(f"{path}: no such file, so {folder} is not a converted set; run `dicap-stage convert`")
    meta = read_json(path, AGAIN)
    if meta.get("schema") not in (SCHEMA, PARTIAL_SCHEMA):
        raise DataError(f"{path}: schema is {meta.get('schema')!r}, expected {SCHEMA}; {AGAIN}")
    check_kinds(meta, META_KINDS, path, AGAIN)
    return meta


def identity(meta: dict[str, Any]) -> str:
    """One checksum of the whole set: of its files' checksums, and of schema, data set, image size and classes."""
    parts = {key: meta[key] for key in ("schema", "dataset", "image_size", "classes", "checksums")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
