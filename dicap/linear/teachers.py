"""Heads on the labelled rows, each without some folds: out-of-fold scores of labelled entries, and scores of all others.

Nothing that reaches the student of fold k may depend on a label of fold k, but for the one penalty of all heads, where that was
chosen on all labels (`dicap.linear.selection`). What it learns from has out-of-fold scores itself, so a teacher is solved without
each fold and without each pair of folds.

Letters: n rows, of which the first n_l are labelled; D features, C classes, H heads; y label: 1, 0, or unknown, which is any
number below 0 or NaN. An *open* entry is one without a label: of an unlabelled row, or unknown. Classes do not share weights, so
no head has learnt from an open entry, and its score there is out of sample as it stands.
"""

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dicap.linear.neighbours import averaged
from dicap.linear.solver import solve


@dataclass(frozen=True)
class Teachers:
    """Heads, and what they say of every row.

    Attributes:
        fold: (n_l,) fold of each labelled row; -1 without cross-fitting.
        open: (n, C) bool: entries without a label.
        without: the folds each head leaves out, ascending: none, each one, each pair.
        logits: (H, n, C).
    """

    fold: NDArray
    open: NDArray
    without: list[tuple[int, ...]]
    logits: NDArray

    def scores(self, without: tuple[int, ...] = ()) -> NDArray:
        """The scores (n, C) float32 in [0, 1] that the student without these folds may learn from.

        Open entries are scored by the head without them. A labelled entry of fold j is scored by the head that leaves out j
        besides: an out-of-fold score. Head j's scores are brought to the scale of the first by their mean and deviation over
        the open entries, class by class.
        """
        own = self.logits[self.without.index(without)]
        scores = own.copy()
        mean, deviation = self._moments(own)
        for j in set(range(number_of(self.fold))) - set(without):
            other = self.logits[self.without.index(tuple(sorted((*without, j))))]
            other_mean, other_deviation = self._moments(other)
            ratio = deviation / np.maximum(other_deviation, 1e-6)
            here = np.flatnonzero(self.fold == j)
            out_of_fold = (other[here] - other_mean) * ratio + mean
            scores[here] = np.where(self.open[here], own[here], out_of_fold)
        return (1 / (1 + np.exp(-scores.astype(np.float64)))).astype(np.float32)

    def _moments(self, logits: NDArray) -> tuple[NDArray, NDArray]:
        """Mean and deviation of a head's open entries, (C,) each; 0 and 1 of a class with fewer than two of them."""
        whole = np.logical_and.reduce(self.open, axis=1)
        if whole.sum() > 1 and (self.open == whole[:, None]).all():  # a row has all labels or none
            return logits[whole].mean(0), logits[whole].std(0)
        count = self.open.sum(0)
        some = np.maximum(count, 1)
        mean = np.where(self.open, logits, 0).sum(0) / some
        deviation = np.sqrt((np.where(self.open, logits - mean, 0) ** 2).sum(0) / some)
        enough = count > 1
        return np.where(enough, mean, 0).astype(logits.dtype), np.where(enough, deviation, 1).astype(logits.dtype)


def number_of(fold: NDArray) -> int:
    """K; 0 without cross-fitting."""
    return int(fold.max(initial=-1)) + 1


def solve_teachers(rows: NDArray, y: NDArray, fold: NDArray, *, l2: float, neighbours: int = 0) -> Teachers:
    """All teachers in one solve.

    Args:
        rows: (n, D) float32, labelled rows first; y: (n_l, C) labels; fold: (n_l,), -1 without cross-fitting.
        l2: the penalty, as in `dicap.linear.solver.solve`.
        neighbours: nearest rows with which a teacher's rows are averaged; 0: none.
    """
    if neighbours:
        rows = averaged(rows, neighbours)
    known = y >= 0
    folds = range(number_of(fold))
    without = [(), *((k,) for k in folds), *itertools.combinations(folds, 2)]
    seen = np.stack([~np.isin(fold, leave) for leave in without]).astype(np.float32)[:, :, None]  # (H, n_l, 1)
    heads = solve(rows[: len(y)], y, weight=seen if known.all() else seen * known, l2=l2)
    unlabelled = np.ones((len(rows) - len(y), y.shape[1]), bool)
    return Teachers(fold, np.concatenate([~known, unlabelled]), without, heads.logits(rows))
