"""Which labels are probably wrong: labelled images whose labels surprise a model that did not learn from them.

A network remembers the labels it was trained on, the wrong ones too, so its own scores of its training images find little.
`out_of_fold` gives out-of-sample scores of every labelled image: of linear heads on features that know no label of this
data set, each image scored by the head that never saw its fold.
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
NEIGHBOURS = 10  # of an image, whose features are averaged with its own
LOSS_WEIGHT = 0.003  # of the heads, scikit-learn's C; benchmarks/review.py tried 0.0003 to 0.01
# Of `surprise`, from benchmarks/review.py: exponent of a class's share, and what the worst of the classes that are not labelled
# counts beside the worst of those that are.
SHARE, ABSENT = 0.3, 0.5
LOWEST = 1e-3  # a score below it surprises no more than at it
LIKELY = 0.5  # chance from which a class that an image is not labelled with is pointed out
MOST_ODD = 3  # classes of an image that are pointed out


@dataclass(frozen=True)
class Doubt:
    """A labelled image whose label is worth a look.

    Attributes:
        row: of what was ranked.
        surprise: of its label; larger is more surprising.
        odd: the classes whose entry is surprising, the most surprising first.
    """

    row: int
    surprise: float
    odd: list[int]


def among_neighbours(features: np.ndarray) -> np.ndarray:
    """Features (N, D), pooled, as rows (N, r) float32: as the recommended head takes them, averaged with the nearest images'.

    Images without labels take part: they say what is alike.
    """
    return averaged(rotate(scaled(features)), NEIGHBOURS)


def scaled(features: np.ndarray) -> np.ndarray:
    """Features (N, D), pooled, as the recommended head takes them: standardised signed roots of one length, float32."""
    return scaling_of(features, "root").apply(features)


def out_of_fold(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Scores (n, C) float64 of the labelled images, each by logistic regressions that were solved without its fold.

    The same input gives the same scores.

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

    A class that is labelled: -log(score) + SHARE log(share), with the share of the *other* images that bear it. Between
    "unlikely" and "less likely than in any other image": by the first alone rare classes would always be in front.
    A class that is not there: -log(1 - score). An unknown entry (label below 0): -infinity.
    """
    p = np.clip(scores, LOWEST, 1 - LOWEST)
    y, known = labels > 0, labels >= 0
    n = known.sum(0)
    share = np.clip((y.sum(0) - y) / np.maximum(n - 1, 1), 0.5 / np.maximum(n, 1), 1)
    return np.where(known, np.where(y, -np.log(p) + SHARE * np.log(share), -np.log1p(-p)), -np.inf)


def doubts(scores: np.ndarray, labels: np.ndarray, ranked: np.ndarray | None = None) -> list[Doubt]:
    """Labelled images, the most surprising first: the worst entry of the classes it bears plus ABSENT times that of the others.

    Args:
        scores: (n, C) in [0, 1], by a model that did not learn from these labels (out of fold).
        labels: (n, C) of 0 and 1, -1 where unknown.
        ranked: (n,) bool: rows that are ranked. None: all.
    """
    assert scores.shape == labels.shape, (scores.shape, labels.shape)
    y = labels > 0
    entries = entry_surprise(scores, labels)
    worst_on, worst_off = (np.where(chosen, entries, -np.inf).max(1) for chosen in (y, labels == 0))
    total = np.where(np.isneginf(worst_on), 0.0, worst_on) + ABSENT * np.where(np.isneginf(worst_off), 0.0, worst_off)
    rows = np.arange(len(y)) if ranked is None else np.flatnonzero(ranked)
    ranking = []
    for row in rows[np.argsort(-total[rows], kind="stable")]:
        order = np.argsort(-entries[row], kind="stable")
        known = [int(c) for c in order if labels[row, c] >= 0]
        pointed = [c for c in known if (y[row, c] and entries[row, c] > 0) or scores[row, c] >= LIKELY][:MOST_ODD]
        ranking.append(Doubt(int(row), float(total[row]), pointed or [int(order[0])]))
    return ranking


def chances(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """What the scores are worth, (n, C): the share of the known labels that bear a class at such a score."""
    p = np.clip(scores, LOWEST, 1 - LOWEST)
    return curve_by_rank(p, labels).at(p)
