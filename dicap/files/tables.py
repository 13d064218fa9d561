"""Parquet files with page checksums, so that a flipped bit is an error and not a wrong number; and small CSV tables.

Matrices are columns of lists.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dicap.errors import DataError, first_line
from dicap.files.atomic import replacing

if TYPE_CHECKING:
    import pandas as pd


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write a table with page checksums, atomically."""
    # Dictionary encoding is only for columns with few distinct values, such as labels; for ids and floats it wastes time.
    distinct = ["id", *(f"{field.name}.list.element" for field in table.schema if field.type == pa.list_(pa.float32()))]
    leaves = (f"{field.name}.list.element" if pa.types.is_list(field.type) else field.name for field in table.schema)
    encoded = [leaf for leaf in leaves if leaf not in distinct]
    options: dict[str, Any] = {"use_dictionary": encoded, "write_statistics": encoded, "write_batch_size": 65536}
    with (
        replacing(path) as temporary,
        pq.ParquetWriter(temporary, table.schema, write_page_checksum=True, compression="zstd", **options) as writer,
    ):
        writer.write_table(table)


def read_parquet(path: Path, columns: Sequence[str] | None = None, again: str = "") -> pa.Table:
    """Read one Parquet file and verify every page's checksum. Raises DataError if it is missing, damaged or lacks a column.

    Args:
        again: the remedy in the error.
    """
    try:
        return pq.read_table(path, columns=columns, page_checksum_verification=True, partitioning=None)  # type: ignore[arg-type]
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; {again or '`dvc repro` makes it'}") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path}: damaged ({first_line(error)}); {again or 'remove it and run `dvc repro`'}") from None


def read_csv(path: Path, *columns: str) -> "pd.DataFrame":
    """Read a CSV table of numbers; a column `class` may hold names.

    Raises:
        DataError: the file is missing or damaged, lacks one of the `columns`, or has text in place of a number.
    """
    import pandas as pd

    again = "run its stage again with `dvc repro -f`"
    try:
        frame = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype={"class": str})
        frame = frame.apply(lambda column: column if column.name == "class" else pd.to_numeric(column))
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; `dvc repro` makes it") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: damaged ({first_line(error)}); {again}") from None
    if missing := [column for column in columns if column not in frame]:
        raise DataError(f"{path}: lacks the column {missing[0]}; {again}")
    return frame


def lists(matrix: np.ndarray) -> pa.Array:
    """An (n, C) array as a list column of its type, without a Python loop."""
    n, width = matrix.shape
    offsets = pa.array(np.arange(0, (n + 1) * width, width, dtype=np.int32) if width else np.zeros(n + 1, np.int32))
    return pa.ListArray.from_arrays(offsets, pa.array(np.ascontiguousarray(matrix).ravel()))


def matrix(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """A list column, all lists of one length, as an (n, C) array."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    n = len(column)
    values = column.flatten().to_numpy(zero_copy_only=False)
    return values.reshape(n, -1) if n else values.reshape(0, 0)
