"""Standardisation of features: the mean and deviation of all training rows, labelled or not."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Standard(NamedTuple):
    """What a row is shifted and divided by, float64 (D,)."""

    mean: NDArray
    scale: NDArray

    def apply(self, x: NDArray) -> NDArray:
        """Rows (..., D) standardised, float32."""
        return ((x - self.mean) / self.scale).astype(np.float32)


def standard_of(x: NDArray) -> Standard:
    """Mean and deviation of rows (..., D): those of every training image and view; no label is looked at.

    A feature that never changes has deviation 1, so that it becomes 0 everywhere.
    """
    rows = x.reshape(-1, x.shape[-1])
    mean, scale = rows.mean(0, dtype=np.float64), rows.std(0, dtype=np.float64)
    return Standard(mean, np.where(scale > 1e-12 * np.maximum(np.abs(mean), 1), scale, 1.0))


def views_as_rows(x: NDArray) -> tuple[NDArray, NDArray]:
    """V views (V, n, D) of n images as V n rows of weight 1/V: rows (V n, D) and the image of each (V n,)."""
    views, n = x.shape[:2]
    return x.reshape(views * n, -1), np.tile(np.arange(n), views)
