"""Heads on labelled and pseudo-labelled entries together: the student, and beside it one for each fold that never sees it.

Letters: n rows, of which the first n_l are labelled; D features, C classes, H heads; y label: 1, 0, or unknown, which is any
number below 0 or NaN.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dicap.linear.folds import left_out, of_own_head
from dicap.linear.solver import Solution, solve, turn
from dicap.linear.teachers import number_of


class Pseudo(NamedTuple):
    """Pseudo-labels of all rows for one student."""

    target: NDArray  # (m, C) float32 in [0, 1]
    weight: NDArray  # (m, C) float32: 0 where there is no pseudo-label


def solve_students(
    rows: NDArray,
    y: NDArray,
    fold: NDArray,
    pseudo: list[Pseudo],
    *,
    l2: float,
    pseudo_weight: float,
    start: Solution | None = None,
) -> Solution:
    """The fold students and, last, the student of all labels, in one solve.

    Args:
        rows: (n, D) float32, labelled rows first; y: (n_l, C) labels; fold: (n_l,), -1 without cross-fitting.
        pseudo: of each fold's student and, last, of the student: of the n - n_l unlabelled rows, or of all n rows, where unknown
            entries of labelled rows have pseudo-labels too.
        pseudo_weight: of a pseudo-labelled entry of weight 1 beside a labelled one.
        start: an earlier solution of the same shape to begin with.
    """
    folds, n = number_of(fold), len(y)
    assert len(pseudo) == folds + 1, (len(pseudo), folds)
    seen = np.ones((len(pseudo), n, 1), np.float32)
    if folds:
        seen[:-1] = left_out(fold, folds)
    made, weight = (np.stack([part[i] for part in pseudo]) for i in (0, 1))  # (H, m, C) each
    known, labels = y >= 0, np.broadcast_to(y, (len(pseudo), *y.shape))
    weight = pseudo_weight * weight
    if made.shape[1] > len(rows) - n:  # labelled rows have pseudo-labels where they have no label
        own, labels = weight[:, :n], np.where(known, labels, made[:, :n])
        label_weight = seen * np.where(known, np.float32(1), own)
        made, weight = made[:, n:], weight[:, n:]
    else:
        label_weight = np.broadcast_to(seen if known.all() else seen * known, labels.shape)
    target, weight = np.concatenate([labels, made], axis=1), np.concatenate([label_weight, weight], axis=1)
    return solve(turn(rows), target, weight=weight, l2=l2, start=start)


def out_of_fold(w: NDArray, b: NDArray, rows: NDArray, fold: NDArray) -> NDArray:
    """Confidences (n_l, C) of labelled rows (n_l, D), each by the student (w (H, C, D), b (H, C)) of its own fold."""
    logits = np.einsum("nd,hcd->hnc", rows, w) + b[:, None]  # (H, n_l, C)
    return 1 / (1 + np.exp(-of_own_head(logits, fold)))
