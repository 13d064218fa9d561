"""Folds of the labelled rows, and scores of every row by the head that never saw it."""

import numpy as np
from numpy.typing import NDArray

FOLDS = 5  # K, of the labelled rows


def assign_folds(y: NDArray, folds: int, seed: int) -> NDArray:
    """A fold for each row, (n,) int64, sizes differing by at most one, and each class spread evenly over the folds.

    Iterative stratification (Sechidis, Tsoumakas and Vlahavas, ECML 2011): the class with the fewest rows left is dealt out
    first, each of its rows to the fold that lacks most of that class, then to the emptiest fold, then by lot.

    Args:
        y: (n, C) labels; positive where > 0 (unknown entries, -1 or NaN, count as not positive).
        folds: K, at most n.
        seed: of the lots.
    """
    n = len(y)
    assert 1 < folds <= n, f"{folds} folds of {n} rows"
    rng = np.random.default_rng(seed)
    positive = np.asarray(y > 0)
    room = np.full(folds, n // folds)  # rows a fold still takes
    room[rng.permutation(folds)[: n % folds]] += 1
    lacks = positive.sum(0) / folds * np.ones((folds, 1))  # (K, C): positives a fold still wants
    fold = np.full(n, -1)
    order = rng.permutation(n)
    left = positive.sum(0)  # (C,) rows not dealt out yet
    while left.any():
        c = int(np.argmin(np.where(left > 0, left, n + 1)))
        for i in order[positive[order, c] & (fold[order] < 0)]:
            k = _neediest(lacks[:, c], room, rng)
            fold[i] = k
            room[k] -= 1
            lacks[k] -= positive[i]
            left -= positive[i]
    rest = order[fold[order] < 0]  # rows without a positive fill what is free
    fold[rest] = rng.permutation(np.repeat(np.arange(folds), room))
    return fold


def deal_folds(rank: NDArray, y: NDArray, folds: int, seed: int, groups: NDArray | None = None) -> NDArray:
    """Folds (n,) that follow the rows: neither their order nor that of the classes matters. Rows of a group have one fold.

    Args:
        rank: (n,) the rows' own order: by their names, or by their features.
        y, folds, seed: as `assign_folds`; of fewer rows or groups there are as many folds.
        groups: (n,) of anything that can be sorted; None: each row is one of its own.

    Raises:
        ValueError: all rows are of one group.
    """
    inverse = np.arange(len(y))
    if groups is not None:
        first, inverse = np.unique(groups, return_index=True, return_inverse=True)[1:]
        inverse = inverse.reshape(-1)
        if len(first) < 2 <= len(y):
            raise ValueError("all labelled samples are of one group, so that none can be held out")
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


def _neediest(lack: NDArray, room: NDArray, rng: np.random.Generator) -> int:
    """The fold with room that lacks most. Ties: most room first, then random."""
    key = np.where(room > 0, np.round(lack, 9), -np.inf)
    best = np.flatnonzero(key == key.max())
    best = best[room[best] == room[best].max()]
    return int(rng.choice(best))


def n_folds(fold: NDArray) -> int:
    """K; 0 without cross-fitting, where every row's fold is -1."""
    return int(fold.max(initial=-1)) + 1


def fold_weights(fold: NDArray) -> NDArray:
    """Row weights (K, n, 1) of K heads: 0 where the row is of the head's own fold. A row of fold -1 is in every head."""
    return (fold != np.arange(n_folds(fold))[:, None]).astype(np.float32)[:, :, None]


def out_of_fold_scores(scores: NDArray, fold: NDArray) -> NDArray:
    """Out-of-fold scores (n, C): each row's scores by the head that never saw it, out of those of all heads (K, n, C)."""
    assert (fold >= 0).all(), "a row without a fold was seen by every head"
    return scores[fold, np.arange(len(fold))]
