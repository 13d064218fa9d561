"""The files of a converted set: their names, their schema, and reading them with every check that is cheap.

A converted set is a folder `data/converted/` with

- `images.npy`, (N, H, W, 3) uint8, C order;
- `index.parquet`, a row an image in the order of the array: id, path, width, height (of the original), split, labels; where some
  images are labelled in part, `absent` too: the classes known not to be there, null where that is all classes without a label;
  where some belong on one side of every split (a patient, copies), `group` too: the id of one of them, null for the others;
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
PARTIAL_SCHEMA = 2  # of sets with a column `absent`, which a reader of schema 1 would take for fully labelled ones
AGAIN = "run `dicap-stage convert` again"
META = "meta.json"
INDEX = "index.parquet"
ARRAY = "images.npy"
SPLITS = ("train", "test", "unlabeled")

# What every `meta.json` holds, beside its schema.
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
    """Write `index.parquet`; pages carry checksums, or a flipped bit in one could be read without a word.

    Args:
        columns: those of INDEX_SCHEMA by their names, where the set is labelled in part that of ABSENT, and where it has groups
            that of GROUP.
    """
    schema = pa.schema([*INDEX_SCHEMA, *(field for field in (ABSENT, GROUP) if field.name in columns)])
    table = pa.table(columns, schema=schema)
    pq.write_table(table, path, write_page_checksum=True, row_group_size=16_384)


def is_partial(meta: dict[str, Any]) -> bool:
    """Whether some images of a set are labelled in part, so that its index has a column `absent`."""
    return meta["schema"] == PARTIAL_SCHEMA


def read_groups(folder: Path) -> np.ndarray | None:
    """The group of each image, (N,) of texts, its own id where it has none; None where no image has one. Raises DataError."""
    if not read_meta(folder).get("grouped"):
        return None
    table = read_index(folder, ["id", "group"])
    return pc.coalesce(table["group"], table["id"]).to_numpy()  # type: ignore[attr-defined]


def read_index(folder: Path, columns: list[str] | None = None) -> pa.Table:
    """Read `index.parquet` (some columns of it), verifying the checksum of every page read. Raises DataError."""
    return read_parquet(folder / INDEX, columns, AGAIN)


def write_meta(folder: Path, meta: dict[str, Any]) -> None:
    """Write `meta.json`: the last file of a set, and free of times and paths, so that equal sets are equal bytes."""
    (folder / META).write_text(json.dumps(meta, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_meta(folder: Path) -> dict[str, Any]:
    """Read `meta.json`. Raises DataError where the folder is not a converted set, or one of another schema."""
    path = folder / META
    if not path.exists():
        raise DataError(f"{path}: no such file, so {folder} is not a converted set; run `dicap-stage convert`")
    meta = read_json(path, AGAIN)
    if meta.get("schema") not in (SCHEMA, PARTIAL_SCHEMA):
        raise DataError(f"{path}: schema is {meta.get('schema')!r}, expected {SCHEMA}; {AGAIN}")
    check_kinds(meta, META_KINDS, path, AGAIN)
    return meta


def identity(meta: dict[str, Any]) -> str:
    """One checksum for the whole set, from the checksums of its files and what gives them meaning."""
    parts = {key: meta[key] for key in ("schema", "dataset", "image_size", "classes", "checksums")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
