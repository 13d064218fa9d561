"""The labels of a converted set, apart from its images.

Training may only ask for rows whose labels the split allows (roles sup and est); scoring for test rows. Only
diagnostics ask for the hidden labels of simulated-unlabelled images.
"""

import os
from pathlib import Path

import numpy as np

from dicap.data import format as files
from dicap.errors import DataError


def read_labels(folder: str | os.PathLike, rows: np.ndarray) -> np.ndarray:
    """The label matrix of some rows, (n, C) uint8 of 0 and 1.

    Raises:
        DataError: one of the rows is truly unlabelled, or the set is damaged.
    """
    folder = Path(folder)
    rows = np.asarray(rows, dtype=np.int64)
    column = files.read_index(folder, ["labels"])["labels"].combine_chunks().take(rows)
    if column.null_count:
        row = int(rows[np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]])
        raise DataError(f"{folder / files.INDEX}: row {row} has no labels (split unlabeled), so it cannot be used here")
    lengths = column.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    matrix = np.zeros((len(rows), len(files.read_meta(folder)["classes"])), dtype=np.uint8)
    classes = column.flatten().to_numpy(zero_copy_only=False)
    strange = (classes < 0) | (classes >= matrix.shape[1])  # NumPy would count a negative one from the end
    if strange.any():
        raise DataError(
            f"{folder / files.INDEX}: label {classes[strange][0]} of {matrix.shape[1]} classes (0 to {matrix.shape[1] - 1}); "
            "run `dicap-stage convert` again"
        )
    matrix[np.repeat(np.arange(len(rows)), lengths), classes] = 1
    return matrix


def labelled_mask(folder: str | os.PathLike) -> np.ndarray:
    """Which images have labels at all (hidden or not), (N,) bool."""
    return files.read_index(Path(folder), ["labels"])["labels"].is_valid().to_numpy()
