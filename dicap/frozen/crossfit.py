"""K-fold cross-fitting of teacher and student heads: no label of fold k reaches student k, except through two common choices.

Teachers are solved on the labelled rows and score all rows, pseudo-labels are made of the scores, students are solved on both.
Two things that all heads share may be chosen on all labels: the weight of the loss (`dicap.frozen.loss_weight`) and how much of
the students is used (`dicap.frozen.recommended`). So student k's scores of fold k measure how often a confidence is right. Its
pseudo-labels and their weights rest on out-of-fold scores too, hence the teachers without one fold and without two.

Letters: n rows, the first n_l labelled; D features, C classes, K folds, H heads; y label: 1, 0, or unknown, which is
any number below 0 or NaN. An *open* entry is one without a label: of an unlabelled row, or unknown. Classes do not share weights,
so no head has learnt from an open entry, and its score there is out of sample as it stands.
"""

import itertools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dicap.frozen.folds import fold_weights, n_folds, out_of_fold_scores
from dicap.frozen.solver import PrincipalAxes, Solution, solve

# Of all heads. Against 1e-3 a fit is a fifth quicker, and mAP changed by 0.02 in the mean and 0.07 at most on photographs; on
# tables of a few dozen labelled rows by 0.35 at most, where the student was or was not used.
TOLERANCE = 1e-2
MOST_OTHERS = 2000  # rows by which ranks are compared: more would move no threshold


# -- teachers


@dataclass(frozen=True)
class Teachers:
    """Heads on the labelled rows, and what they say of every row.

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
        besides: an out-of-fold score.
        """
        own = self.logits[self.without.index(without)]
        scores = own.copy()
        for j in set(range(n_folds(self.fold))) - set(without):
            other, here = self.logits[self.without.index(tuple(sorted((*without, j))))], np.flatnonzero(self.fold == j)
            scores[here] = np.where(self.open[here], own[here], other[here])
        return expit(scores.astype(np.float64)).astype(np.float32)


def solve_teachers(rows: NDArray, y: NDArray, fold: NDArray, *, loss_weight: float) -> Teachers:
    """All teachers in one solve.

    Args:
        rows: (n, D) float32, labelled rows first; y: (n_l, C) labels; fold: (n_l,), -1 without cross-fitting.
        loss_weight: of all heads, as in `dicap.frozen.solver.solve`.
    """
    known = y >= 0
    folds = range(n_folds(fold))
    without = [(), *((k,) for k in folds), *itertools.combinations(folds, 2)]
    seen = np.stack([~np.isin(fold, leave) for leave in without]).astype(np.float32)[:, :, None]  # (H, n_l, 1)
    weight = seen if known.all() else seen * known
    heads = solve(rows[: len(y)], y, weight=weight, loss_weight=loss_weight, tolerance=TOLERANCE)
    unlabelled = np.ones((len(rows) - len(y), y.shape[1]), bool)
    return Teachers(fold, np.concatenate([~known, unlabelled]), without, heads.logits(rows))


# -- students


class Pseudo(NamedTuple):
    """Pseudo-labels for one student."""

    target: NDArray  # (n, C) float32 in [0, 1]
    weight: NDArray  # (n, C) float32: 0 where there is no pseudo-label


def solve_students(
    rows: PrincipalAxes,
    y: NDArray,
    fold: NDArray,
    pseudo: list[Pseudo],
    *,
    loss_weight: float,
    pseudo_weight: float,
) -> Solution:
    """The fold students and, last, the student of all labels, in one solve; arguments as of `solve_teachers`.

    Args:
        rows: all n rows, rotated; the same serve every choice of `pseudo` and `pseudo_weight`.
        pseudo: of each fold's student and, last, of the student.
        pseudo_weight: of a pseudo-labelled entry of weight 1 beside a labelled one.
    """
    n = len(y)
    seen = _student_weights(fold)  # (K + 1, n_l, 1)
    assert len(pseudo) == len(seen), (len(pseudo), len(seen))
    target, weight = (np.stack([part[i] for part in pseudo]) for i in (0, 1))  # (H, n, C) each
    known, weight = y >= 0, pseudo_weight * weight
    target[:, :n] = np.where(known, y, target[:, :n])
    weight[:, :n] = seen * np.where(known, np.float32(1), weight[:, :n])
    return solve(rows, target, weight=weight, loss_weight=loss_weight, tolerance=TOLERANCE)


def solve_labelled(rows: NDArray, y: NDArray, fold: NDArray, *, loss_weight: float) -> Solution:
    """The same heads on the labelled rows (n_l, D) alone."""
    return solve(rows, y, weight=_student_weights(fold) * (y >= 0), loss_weight=loss_weight, tolerance=TOLERANCE)


def _student_weights(fold: NDArray) -> NDArray:
    """Row weights (K + 1, n_l, 1): of heads without a fold each and, last, of the one with all."""
    return np.concatenate([fold_weights(fold), np.ones((1, len(fold), 1), np.float32)])


def scores_out_of_fold(heads: Solution, rows: NDArray, fold: NDArray) -> tuple[NDArray, NDArray]:
    """Confidences (n_l, C) of the labelled rows, the first of rows (n, D), each by the student of its own fold (n_l,); and the
    same `at_rank` of the last student.
    """
    n = len(fold)
    others = rows[n :: -(-(len(rows) - n) // MOST_OTHERS) or 1]
    logits = out_of_fold_scores(_logits(heads, rows[:n]), fold)
    return expit(logits), expit(at_rank(logits, fold, _logits(heads, others)))


def at_rank(logits: NDArray, fold: NDArray, others: NDArray) -> NDArray:
    """Out-of-fold logits (n_l, C), each moved to the last student's of equal rank among those (H, m, C) of unlabelled rows.

    A student without a fold has less to learn from and states smaller logits, so a threshold on its scores lets the last one say
    yes too often. Beyond all other rows a logit keeps its distance to the outermost; without other rows it stays.
    """
    moved, ordered = logits.copy(), np.sort(others, axis=1)
    for k, c in itertools.product(range(n_folds(fold) if others.size else 0), range(logits.shape[1])):
        here, own = fold == k, ordered[k, :, c]
        z = logits[here, c]
        moved[here, c] = np.interp(z, own, ordered[-1, :, c]) + z - np.clip(z, own[0], own[-1])
    return moved


def _logits(heads: Solution, rows: NDArray) -> NDArray:
    """Logits (H, n, C) float64 of rows (n, D) float32."""
    return rows.astype(np.float64) @ heads.w.swapaxes(1, 2) + heads.b[:, None]
