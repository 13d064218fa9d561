"""CAP's rank rule on arrays: each class gets as large a share of pseudo-positives as of labelled positives.

Letters: n rows, C classes; p score; y label: 1, 0, or unknown, which is any number below 0 or NaN.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Quota(NamedTuple):
    """Thresholds of each class among the scores, (C,) float64; infinite where the quota is 0."""

    threshold: NDArray  # that of the quota itself: positive from here on
    tau_pos: NDArray  # an entry trains from here on
    tau_neg: NDArray  # and up to here
    n_pos: NDArray  # labelled positives and negatives, int64
    n_neg: NDArray
    active: NDArray  # bool: the quota is not 0

    def labels(self, p: NDArray) -> NDArray:
        """(n, C) int8: whether a score is at least the threshold; -1 between tau_neg and tau_pos, and for classes not active."""
        trains = self.active & ((p >= self.tau_pos) | (p <= self.tau_neg))
        return np.where(trains, p >= self.threshold, -1).astype(np.int8)


def quota_of(p: NDArray, y: NDArray, *, eta_pos: float = 1.0, eta_neg: float = 0.998) -> Quota:
    """The quota's thresholds (docs/methods.md 4.6, Equation (18), and Equation (19) for what trains).

    With f and g the shares of positives and of negatives among the known labels and n scores, the int(f n)-th largest score is
    the threshold. An entry trains if it is among the int(eta_pos f n) largest or the int(eta_neg g n) smallest; ties may
    select more. As in the published code g is counted, not 1 - f: the integers differ where one of the two is rounded.

    A class whose known labels are all positive, others of labelled rows being unknown, has a quota of 0.

    Args:
        p: (n, C) scores of unlabelled entries; NaN for other entries.
        y: (n_l, C) labels.
    """
    y = y[(y >= 0).any(1)]
    p, count = np.asarray(p, np.float64), (~np.isnan(p)).sum(0)
    n_pos, known = (y > 0).sum(0), (y >= 0).sum(0)
    n_neg = known - n_pos
    f, g = n_pos / np.maximum(known, 1), n_neg / np.maximum(known, 1)
    f = np.where((n_neg == 0) & (n_pos < len(y)), 0.0, f)  # no negative was looked for: a share of 1 would say nothing
    positives = (f * count).astype(np.int64)  # int() as in the published code: 0 for a class without labelled positives
    high, low = (eta_pos * f * count).astype(np.int64), (eta_neg * g * count).astype(np.int64)
    ascending = np.sort(p, axis=0)  # (n, C), NaN last
    return Quota(
        _ranked(ascending, count - positives, positives > 0, np.inf),
        _ranked(ascending, count - high, high > 0, np.inf),
        _ranked(ascending, low - 1, low > 0, -np.inf),
        n_pos,
        n_neg,
        positives > 0,
    )


def _ranked(ascending: NDArray, index: NDArray, there: NDArray, otherwise: ArrayLike) -> NDArray:
    """Each column's value at its own index (C,), or `otherwise` where it is not `there`."""
    if not len(ascending):
        return np.full(len(index), otherwise)
    return np.where(there, ascending[np.clip(index, 0, len(ascending) - 1), np.arange(len(index))], otherwise)
