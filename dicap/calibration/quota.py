"""CAP's rank rule on arrays: in each class the share of pseudo-positives equals the share of labelled positives.

Letters: n rows, C classes; p score; y label: 1, 0, or unknown, which is any number below 0 or NaN.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Quota(NamedTuple):
    """Score thresholds per class, (C,) float64; infinite where the quota is 0."""

    threshold: NDArray  # the quota's threshold: scores of at least this value are positive
    tau_pos: NDArray  # entries with a score of at least tau_pos are used in training
    tau_neg: NDArray  # and entries with a score of at most tau_neg
    n_pos: NDArray  # labelled positives and negatives, int64
    n_neg: NDArray
    active: NDArray  # bool: the quota is not 0

    def labels(self, p: NDArray) -> NDArray:
        """(n, C) int8: 1 for scores of at least `threshold`, else 0; -1 between tau_neg and tau_pos and in inactive classes."""
        trains = self.active & ((p >= self.tau_pos) | (p <= self.tau_neg))
        return np.where(trains, p >= self.threshold, -1).astype(np.int8)


def quota_of(p: NDArray, y: NDArray, *, eta_pos: float = 1.0, eta_neg: float = 0.998) -> Quota:
    """The quota's thresholds (docs/methods.md 4.6, Equation (18); Equation (19) for the entries that are used in training).

    f and g are the shares of positives and of negatives among the known labels, n is the number of scores. The int(f n)-th
    largest score is the threshold. The int(eta_pos f n) largest and the int(eta_neg g n) smallest scores are used in training;
    ties may select more. As in the published code g is counted, not 1 - f: the integers differ if one of them is rounded.

    A class has a quota of 0 if all its known labels are positive and other labelled rows are unknown.

    Args:
        p: (n, C) scores of unlabelled entries; NaN for other entries.
        y: (n_l, C) labels.
    """
    y = y[(y >= 0).any(1)]
    p, count = np.asarray(p, np.float64), (~np.isnan(p)).sum(0)
    n_pos, known = (y > 0).sum(0), (y >= 0).sum(0)
    n_neg = known - n_pos
    f, g = n_pos / np.maximum(known, 1), n_neg / np.maximum(known, 1)
    f = np.where((n_neg == 0) & (n_pos < len(y)), 0.0, f)  # no negatives were recorded: a share of 1 is meaningless
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


def _ranked(ascending: NDArray, index: NDArray, valid: NDArray, default: ArrayLike) -> NDArray:
    """Each column's value at its index (C,); `default` where `valid` (C,) is false."""
    if not len(ascending):
        return np.full(len(index), default)
    return np.where(valid, ascending[np.clip(index, 0, len(ascending) - 1), np.arange(len(index))], default)
