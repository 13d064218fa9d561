"""K-fold cross-fitting of teacher and student heads: no label of fold k leaks into student k, except through two common choices.

Teachers are solved on the labelled rows and score all rows. The scores give pseudo-labels. Students are solved on labels and
pseudo-labels. Student k does not see the labels of fold k, so its scores of fold k measure how often a confidence is right. Its
pseudo-labels and their weights come from out-of-fold scores too, so there are teachers without one fold and without two folds.
Only two choices use all labels: the weight of the loss (`dicap.frozen.loss_weight`) and the share of the students in the result
(`dicap.frozen.recommended`).

Letters: n rows, the first n_l labelled; D features, C classes, K folds, H heads; y label: 1, 0, or unknown (below 0 or NaN). An
*open* entry has no label: it belongs to an unlabelled row, or is unknown. Classes share no weights, so no head has learnt from an
open entry, and every score of an open entry is out of sample.
"""

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dicap.frozen.folds import fold_weights, n_folds, out_of_fold_scores
from dicap.frozen.solver import PrincipalAxes, Solution, solve

# Tolerance of all heads. A fit is a fifth faster than with 1e-3. mAP changed by 0.02 on average and by at most 0.07 on
# photographs, by at most 0.35 on tables of a few dozen labelled rows, where the choice of the students changed.
TOLERANCE = 1e-2
MOST_OTHERS = 2000  # unlabelled rows for comparing ranks: more rows do not change a threshold


# -- teachers


@dataclass(frozen=True)
class Teachers:
    """Heads on the labelled rows, and their logits of all rows.

    Attributes:
        fold: (n_l,) fold of each labelled row; -1 without cross-fitting.
        open: (n, C) bool: entries without a label.
        without: the folds that each head leaves out: no fold, one fold, or two folds in ascending order.
        logits: (H, n, C).
    """

    fold: NDArray
    open: NDArray
    without: list[tuple[int, ...]]
    logits: NDArray

    def scores(self, without: tuple[int, ...] = ()) -> NDArray:
        """The scores (n, C) float32 in [0, 1] for a student without the folds `without`.

        The head without these folds scores open entries. For a labelled entry of fold j the head also leaves out j, so the score
        is out of fold.
        """
        base = self.logits[self.without.index(without)]
        scores = base.copy()
        for j in set(range(n_folds(self.fold))) - set(without):
            held_out, rows = self.logits[self.without.index(tuple(sorted((*without, j))))], np.flatnonzero(self.fold == j)
            scores[rows] = np.where(self.open[rows], base[rows], held_out[rows])
        return expit(scores.astype(np.float64)).astype(np.float32)


def solve_teachers(rows: NDArray, y: NDArray, fold: NDArray, *, loss_weight: float) -> Teachers:
    """All teachers in one solve.

    Args:
        rows: (n, D) float32, labelled rows first; y: (n_l, C) labels; fold: (n_l,), -1 without cross-fitting.
        loss_weight: see `dicap.frozen.solver.solve`.
    """
    known = y >= 0
    folds = range(n_folds(fold))
    without = [(), *((k,) for k in folds), *itertools.combinations(folds, 2)]
    row_weight = np.stack([~np.isin(fold, leave) for leave in without]).astype(np.float32)[:, :, None]  # (H, n_l, 1)
    weight = row_weight if known.all() else row_weight * known
    heads = solve(rows[: len(y)], y, weight=weight, loss_weight=loss_weight, tolerance=TOLERANCE)
    unlabelled = np.ones((len(rows) - len(y), y.shape[1]), bool)
    return Teachers(fold, np.concatenate([~known, unlabelled]), without, heads.logits(rows))


# -- students


class Pseudo(NamedTuple):
    """Pseudo-labels for one student."""

    target: NDArray  # (n, C) float32 in [0, 1]
    weight: NDArray  # (n, C) float32: 0 for entries without a pseudo-label


def solve_students(
    rows: PrincipalAxes,
    y: NDArray,
    fold: NDArray,
    pseudo: list[Pseudo],
    *,
    loss_weight: float,
    pseudo_weight: float,
) -> Solution:
    """The K fold students and, last, the student of all labels, in one solve.

    Args:
        rows: all n rows, rotated; y, fold, loss_weight: see `solve_teachers`.
        pseudo: pseudo-labels of each fold student and, last, of the student of all labels.
        pseudo_weight: factor of the pseudo-labels' weights, relative to the weight 1 of a labelled entry.
    """
    n = len(y)
    row_weight = _student_weights(fold)  # (K + 1, n_l, 1)
    assert len(pseudo) == len(row_weight), (len(pseudo), len(row_weight))
    target, weight = (np.stack([part[i] for part in pseudo]) for i in (0, 1))  # (H, n, C) each
    known, weight = y >= 0, pseudo_weight * weight
    target[:, :n] = np.where(known, y, target[:, :n])
    weight[:, :n] = row_weight * np.where(known, np.float32(1), weight[:, :n])
    return solve(rows, target, weight=weight, loss_weight=loss_weight, tolerance=TOLERANCE)


def solve_labelled(rows: NDArray, y: NDArray, fold: NDArray, *, loss_weight: float) -> Solution:
    """The heads of `solve_students` without pseudo-labels, on the labelled rows (n_l, D) alone."""
    return solve(rows, y, weight=_student_weights(fold) * (y >= 0), loss_weight=loss_weight, tolerance=TOLERANCE)


def _student_weights(fold: NDArray) -> NDArray:
    """Row weights (K + 1, n_l, 1): of the heads without one fold and, last, of the head with all rows."""
    return np.concatenate([fold_weights(fold), np.ones((1, len(fold), 1), np.float32)])


def scores_out_of_fold(heads: Solution, rows: NDArray, fold: NDArray) -> tuple[NDArray, NDArray]:
    """Out-of-fold confidences (n_l, C) of the labelled rows (the first of rows (n, D)), and these confidences after `at_rank`."""
    n = len(fold)
    others = rows[n :: -(-(len(rows) - n) // MOST_OTHERS) or 1]
    logits = out_of_fold_scores(_logits(heads, rows[:n]), fold)
    return expit(logits), expit(at_rank(logits, fold, _logits(heads, others)))


def at_rank(logits: NDArray, fold: NDArray, others: NDArray) -> NDArray:
    """Out-of-fold logits (n_l, C) mapped to the scale of the last student, by ranks among logits (H, m, C) of unlabelled rows.

    A fold student learns from fewer labels and its logits are smaller, so with a threshold from its scores the last student would
    say yes too often. Outside the range of `others` a logit keeps its distance to the range; without `others` it stays.
    """
    moved, ordered = logits.copy(), np.sort(others, axis=1)
    for k, c in itertools.product(range(n_folds(fold) if others.size else 0), range(logits.shape[1])):
        rows, own = fold == k, ordered[k, :, c]
        z = logits[rows, c]
        moved[rows, c] = np.interp(z, own, ordered[-1, :, c]) + z - np.clip(z, own[0], own[-1])
    return moved


def _logits(heads: Solution, rows: NDArray) -> NDArray:
    """Logits (H, n, C) float64 of rows (n, D) float32."""
    return rows.astype(np.float64) @ heads.w.swapaxes(1, 2) + heads.b[:, None]
