"""Folds of the labelled rows, and out-of-fold scores."""

import numpy as np
from numpy.typing import NDArray

FOLDS = 5  # K, the number of folds


def assign_folds(y: NDArray, folds: int, seed: int) -> NDArray:
    """A fold for each row, (n,) int64: fold sizes differ by at most one, and each class is spread evenly over the folds.

    Iterative stratification (Sechidis, Tsoumakas and Vlahavas, ECML 2011): the class with the fewest remaining rows is assigned
    first. Each of its rows goes to the fold that lacks most positives of the class; ties go to the emptiest fold, then at random.

    Args:
        y: (n, C) labels; positive if > 0 (unknown entries, -1 or NaN, count as not positive).
        folds: K, at most n.
        seed: seed of the random ties.
    """
    n = len(y)
    assert 1 < folds <= n, f"{folds} folds of {n} rows"
    rng = np.random.default_rng(seed)
    positive = np.asarray(y > 0)
    room = np.full(folds, n // folds)  # (K,) rows that each fold can still take
    room[rng.permutation(folds)[: n % folds]] += 1
    deficit = positive.sum(0) / folds * np.ones((folds, 1))  # (K, C) positives that each fold still lacks
    fold = np.full(n, -1)
    order = rng.permutation(n)
    remaining = positive.sum(0)  # (C,) positive rows without a fold
    while remaining.any():
        c = int(np.argmin(np.where(remaining > 0, remaining, n + 1)))
        for i in order[positive[order, c] & (fold[order] < 0)]:
            k = _neediest(deficit[:, c], room, rng)
            fold[i] = k
            room[k] -= 1
            deficit[k] -= positive[i]
            remaining -= positive[i]
    rest = order[fold[order] < 0]  # rows without a positive fill the remaining room
    fold[rest] = rng.permutation(np.repeat(np.arange(folds), room))
    return fold


def deal_folds(rank: NDArray, y: NDArray, folds: int, seed: int, groups: NDArray | None = None) -> NDArray:
    """Folds (n,) that do not depend on the order of rows or classes. All rows of a group get the same fold.

    Args:
        rank: (n,) an order of the rows by their content, for example by names or features.
        y, folds, seed: as in `assign_folds`; with fewer rows or groups than `folds` there are fewer folds.
        groups: (n,) sortable values; None: each row is its own group.

    Raises:
        ValueError: all rows are of one group.
    """
    inverse = np.arange(len(y))
    if groups is not None:
        first, inverse = np.unique(groups, return_index=True, return_inverse=True)[1:]
        inverse = inverse.reshape(-1)
        if len(first) < 2 <= len(y):
            raise ValueError("all labelled samples are of one group, so no sample can be held out")
        positive = np.zeros((len(first), y.shape[1]), y.dtype)
        np.maximum.at(positive, inverse, y)
        lowest = np.full(len(first), np.iinfo(np.int64).max)
        np.minimum.at(lowest, inverse, rank)
        rank, y = lowest, positive
    rows = np.lexsort((*y.T, (y > 0).sum(1), rank))
    columns = np.lexsort(y[rows][::-1])
    fold = np.empty(len(y), np.int64)
    fold[rows] = assign_folds(y[rows][:, columns], min(folds, len(y)), seed)
    return fold[inverse]


def _neediest(deficit: NDArray, room: NDArray, rng: np.random.Generator) -> int:
    """The fold with the largest deficit among folds with room. Ties: most room first, then random."""
    key = np.where(room > 0, np.round(deficit, 9), -np.inf)
    best = np.flatnonzero(key == key.max())
    best = best[room[best] == room[best].max()]
    return int(rng.choice(best))


def n_folds(fold: NDArray) -> int:
    """K; 0 without cross-fitting (all folds are -1)."""
    return int(fold.max(initial=-1)) + 1


def fold_weights(fold: NDArray) -> NDArray:
    """Row weights (K, n, 1) of K heads: 0 if the row is in the head's fold, else 1. Fold -1 has weight 1 in all heads."""
    return (fold != np.arange(n_folds(fold))[:, None]).astype(np.float32)[:, :, None]


def out_of_fold_scores(scores: NDArray, fold: NDArray) -> NDArray:
    """Out-of-fold scores (n, C) from the scores of all heads (K, n, C): each row gets the scores of the head without its fold."""
    assert (fold >= 0).all(), "a row without a fold has no out-of-fold score"
    return scores[fold, np.arange(len(fold))]
