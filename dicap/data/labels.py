"""The labels of a converted set: 1 present, 0 absent, -1 unknown. Images are in `dicap.data.store`.

Training may read only rows of the roles sup and est, evaluation only test rows. Only diagnostics read the hidden labels of
images that the split treats as unlabelled.
"""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from dicap.data import format as files
from dicap.errors import DataError

UNKNOWN = -1  # the label of an unknown entry; readers of labels treat every number below 0 as unknown


def read_labels(folder: str | os.PathLike, rows: np.ndarray, *, partial: bool = False) -> np.ndarray:
    """The label matrix of some rows, (n, C): uint8 of 0 and 1, or int8 with UNKNOWN if entries of these rows are unknown.

    Args:
        partial: the caller can handle unknown entries.

    Raises:
        DataError: a row has no labels, or is labelled in part without `partial`, or the set is damaged.
    """
    folder = Path(folder)
    rows = np.asarray(rows, dtype=np.int64)
    meta = files.read_meta(folder)
    columns = ["labels", "absent"] if files.is_partial(meta) else ["labels"]
    table = files.read_index(folder, columns).take(rows)
    column = table["labels"].combine_chunks()
    if column.null_count:
        row = int(rows[np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]])
        raise DataError(f"{folder / files.INDEX}: row {row} has no labels (split unlabeled), so it cannot be used here")
    present = _one_hot(folder, column, len(meta["classes"]))
    if "absent" not in table.column_names or not (in_part := table["absent"].is_valid().to_numpy()).any():
        return present
    known = present | _one_hot(folder, table["absent"].combine_chunks(), len(meta["classes"]))
    known[~in_part] = 1
    if known.all():
        return present
    if not partial:
        row = int(rows[np.flatnonzero(~known.all(1))[0]])
        raise DataError(f"{folder / files.INDEX}: row {row} is labelled in part, and here every label has to be known")
    return np.where(known, present.astype(np.int8), np.int8(UNKNOWN))


def _one_hot(folder: Path, column: pa.ListArray, width: int) -> np.ndarray:
    """A column of lists of classes as (n, C) uint8; a null counts as an empty list."""
    lengths = np.nan_to_num(column.value_lengths().to_numpy(zero_copy_only=False)).astype(np.int64)
    matrix = np.zeros((len(column), width), dtype=np.uint8)
    classes = column.flatten().to_numpy(zero_copy_only=False)
    invalid = (classes < 0) | (classes >= width)  # NumPy would count a negative index from the end
    if invalid.any():
        raise DataError(
            f"{folder / files.INDEX}: label {classes[invalid][0]} of {width} classes (0 to {width - 1}); "
            "run `dicap-stage convert` again"
        )
    matrix[np.repeat(np.arange(len(column)), lengths), classes] = 1
    return matrix


def labelled_mask(folder: str | os.PathLike) -> np.ndarray:
    """Whether each image has labels, hidden or not, (N,) bool."""
    return files.read_index(Path(folder), ["labels"])["labels"].is_valid().to_numpy()
