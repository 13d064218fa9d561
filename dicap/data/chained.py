"""Arrays in several files, read by row as if they were one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

LARGE = 2**16  # bytes of a row from which many are copied one by one: a copy past the processor's cache is slower


class Chained:
    """Arrays of rows of one shape, one behind the other.

    Attributes:
        shape: of the whole, (N, ...).
        dtype: of the elements.
        starts: (S,) int64, the row of the whole that each array begins with.
    """

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        assert len({(array.dtype, array.shape[1:]) for array in arrays}) == 1
        counts = [len(array) for array in arrays]
        self.shape: tuple[int, ...] = (sum(counts), *arrays[0].shape[1:])
        self.dtype = arrays[0].dtype
        self.starts = np.cumsum([0, *counts[:-1]], dtype=np.int64)
        self._arrays = arrays
        self._row_bytes = int(np.prod(self.shape[1:])) * self.dtype.itemsize
        self._bytes = [_bytes(array) for array in arrays]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> np.ndarray:
        """A fresh array of rows, by a slice or (n,) ints; by a tuple, of the element of each row that the other indices name."""
        if not isinstance(key, tuple):
            return self.take(np.arange(len(self))[key] if isinstance(key, slice) else np.atleast_1d(key))
        rows, *rest = np.broadcast_arrays(*key)
        which, local = locate(self.starts, rows)
        first = self._arrays[0]
        found = np.empty((len(rows), *first.shape[len(key) :]), self.dtype)
        for number in np.unique(which).tolist():
            at = which == number
            found[at] = self._arrays[number][(local[at], *(index[at] for index in rest))]
        return found

    def take(self, rows: np.ndarray) -> np.ndarray:
        """The rows at (n,) int64 `rows`, (n, ...), in a fresh array."""
        found = np.empty((len(rows), *self.shape[1:]), self.dtype)
        which, local = locate(self.starts, rows)
        runs = np.arange(len(rows))
        if self._row_bytes < LARGE:  # small rows that follow one another: one copy
            runs = runs[(np.diff(which, prepend=-1) != 0) | (np.diff(local, prepend=-2) != 1)]
        # Bytes by memoryview: NumPy's own indexing takes longer for each row than to copy a small one.
        out, width, parts, place = _bytes(found), self._row_bytes, self._bytes, 0
        lengths = np.diff(runs, append=len(rows)) * width
        for number, begin, length in zip(which[runs].tolist(), (local[runs] * width).tolist(), lengths.tolist(), strict=True):
            out[place : place + length] = parts[number][begin : begin + length]
            place += length
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.concatenate(self._arrays).astype(dtype or self.dtype, copy=False)


def _bytes(array: np.ndarray) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def locate(starts: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The array that each row of the whole lies in, and its row there."""
    which = np.searchsorted(starts, rows, side="right") - 1
    return which, rows - starts[which]
