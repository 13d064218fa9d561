"""Find labels that are probably wrong: those that surprise a model which did not learn from them.

A network remembers the labels it was trained on, also wrong ones, so its scores of its training images reveal little.
`out_of_fold` scores every labelled image out of sample, by linear heads on features that were learnt without labels of this
data set: the head that scores an image was fitted without the image's fold.
"""

from dataclasses import dataclass

import numpy as np

from dicap.calibration.ranks import curve_by_rank
from dicap.frozen import crossfit
from dicap.frozen.folds import assign_folds, fold_weights
from dicap.frozen.neighbours import averaged
from dicap.frozen.solver import rotate, solve
from dicap.scaling import scaling_of

FOLDS = 10
NEIGHBOURS = 10  # number of images whose features are averaged with an image's own
LOSS_WEIGHT = 0.003  # of the heads, scikit-learn's C; benchmarks/review.py tried 0.0003 to 0.01
# From benchmarks/review.py: the exponent of a class's share in the surprise, and the weight of the most surprising absent class
# relative to the most surprising label.
SHARE, ABSENT = 0.3, 0.5
LOWEST = 1e-3  # lower scores surprise no more than this one
LIKELY = 0.5  # score from which an absent class is pointed out
MOST_ODD = 3  # largest number of classes that are pointed out in an image


@dataclass(frozen=True)
class Doubt:
    """A labelled image whose label is worth a look.

    Attributes:
        row: index of the image among those that were ranked.
        surprise: larger is more surprising.
        odd: the classes whose entry is surprising, the most surprising first.
    """

    row: int
    surprise: float
    odd: list[int]


def among_neighbours(features: np.ndarray) -> np.ndarray:
    """Turn pooled features (N, D) into rows (N, r) float32 for the recommended head, averaged over the nearest images.

    Unlabelled images count as neighbours, too.
    """
    return averaged(rotate(scaled(features)), NEIGHBOURS)


def scaled(features: np.ndarray) -> np.ndarray:
    """Scale pooled features (N, D) for the recommended head: standardised signed roots, normalised to one length, float32."""
    return scaling_of(features, "root").apply(features)


def out_of_fold(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Scores (n, C) float64 of the labelled images, by logistic regressions fitted without the image's fold; deterministic.

    Args:
        rows: (n, r) float32 of the labelled images, from `among_neighbours`, n at least 2.
        labels: (n, C) of 0 and 1, -1 where unknown.
    """
    assert len(rows) == len(labels) > 1, (rows.shape, labels.shape)
    y = labels.astype(np.float32)
    fold = assign_folds(y, min(FOLDS, len(y)), seed=0)
    heads = solve(rows, y, weight=fold_weights(fold) * (y >= 0), loss_weight=LOSS_WEIGHT)
    return crossfit.scores_out_of_fold(heads, rows, fold)[0]


def entry_surprise(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How surprising each entry of the labels is, (n, C) float64; 0 and below: not at all.

    The surprise of a label is -log(score) + SHARE log(share), with the share of the *other* images that have the label; without
    the second term rare classes would always rank first. The surprise of an absent class is -log(1 - score), that of an unknown
    entry (label below 0) is -infinity.
    """
    p = np.clip(scores, LOWEST, 1 - LOWEST)
    y, known = labels > 0, labels >= 0
    n = known.sum(0)
    share = np.clip((y.sum(0) - y) / np.maximum(n - 1, 1), 0.5 / np.maximum(n, 1), 1)
    return np.where(known, np.where(y, -np.log(p) + SHARE * np.log(share), -np.log1p(-p)), -np.inf)


def doubts(scores: np.ndarray, labels: np.ndarray, ranked: np.ndarray | None = None) -> list[Doubt]:
    """Rank labelled images by their most surprising label plus ABSENT times their most surprising absent class.

    Args:
        scores: (n, C) in [0, 1], by a model that did not learn from these labels (out of fold).
        labels: (n, C) of 0 and 1, -1 where unknown.
        ranked: (n,) bool, the rows to rank; None: all.
    """
    assert scores.shape == labels.shape, (scores.shape, labels.shape)
    y = labels > 0
    entries = entry_surprise(scores, labels)
    worst = [np.where(side, entries, -np.inf).max(1) for side in (y, labels == 0)]
    of_labels, of_absent = (np.where(np.isneginf(surprise), 0.0, surprise) for surprise in worst)
    total = of_labels + ABSENT * of_absent
    rows = np.arange(len(y)) if ranked is None else np.flatnonzero(ranked)
    ranking = []
    for row in rows[np.argsort(-total[rows], kind="stable")]:
        order = np.argsort(-entries[row], kind="stable")
        known = [int(c) for c in order if labels[row, c] >= 0]
        pointed = [c for c in known if (y[row, c] and entries[row, c] > 0) or scores[row, c] >= LIKELY][:MOST_ODD]
        ranking.append(Doubt(int(row), float(total[row]), pointed or [int(order[0])]))
    return ranking


def chances(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The measured chance behind each score, (n, C): the share of known entries with a similar score that are labels."""
    p = np.clip(scores, LOWEST, 1 - LOWEST)
    return curve_by_rank(p, labels).at(p)
