"""The weight of the loss by cross-validation on the labelled rows: all folds in one solve, begun where the one before ended."""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dicap.linear.folds import assign_folds, fold_weights, out_of_fold_scores
from dicap.linear.solver import rotate, solve

CANDIDATES = (0.001, 0.003, 0.01, 0.03, 0.1)
FOLDS = 5
DECADES = 2  # beyond the candidates that are tried
FALLS = 0.999  # of the loss: above it a further candidate is no better


def choose_loss_weight(x: NDArray, y: NDArray, fold: NDArray | None = None, *, seed: int = 0) -> float:
    """The weight of the loss, of labelled rows (n, D) and labels (n, C), by the log loss of their known entries out of fold.

    CANDIDATES are for features of mean square 1; of others a power of ten makes them so. From the first or the last of them the
    search goes on as long as the loss falls; where it still does after DECADES, a RuntimeWarning says so.

    Without folds they are dealt by `seed`. Of a single row, which has no folds, the middle candidate.
    """
    grid = _round(10.0 ** -np.round(np.log10(np.square(x).mean(dtype=np.float64) or 1)) * np.array(CANDIDATES))
    if len(y) < 2:
        return float(grid[len(grid) // 2])
    if fold is None:
        fold = assign_folds(y, min(FOLDS, len(y)), seed)
    losses = losses_out_of_fold(x, y, fold, grid)
    best, least = grid[int(np.argmin(losses))], losses.min()
    outwards = {grid[0]: (0.3, 0.1), grid[-1]: (3.0, 10.0)}.get(best, ())
    for _ in range(DECADES if outwards else 0):
        further = _round(best * np.array(outwards))
        losses = losses_out_of_fold(x, y, fold, further)
        if losses.min() > FALLS * least:
            return best
        best, least = further[int(np.argmin(losses))], losses.min()
        if best != further[-1]:
            return best
    if outwards:
        warnings.warn(f"C: auto: {best:g}, the best, is the last that was tried", RuntimeWarning, stacklevel=2)
    return best


def _round(values: NDArray) -> tuple[float, ...]:
    """Candidates without the rounding of products, 0.3 and not 0.30000000000000004."""
    return tuple(float(f"{value:.1g}") for value in values)


def losses_out_of_fold(x: NDArray, y: NDArray, fold: NDArray, candidates: Sequence[float], *, tolerance: float = 1e-2) -> NDArray:
    """Log loss (G,) of each candidate's out-of-fold scores: mean over known entries.

    Args:
        x: (n, D) rows; y: (n, C) labels, below 0 where unknown; fold: (n,) of each row, views of an image in the same one.
    """
    assert len(x) == len(y) == len(fold), (x.shape, y.shape, fold.shape)
    known, y = np.asarray(y >= 0, np.float32), np.where(y >= 0, y, 0).astype(y.dtype)
    heads, rows, solution, losses = fold_weights(fold) * known, rotate(x), None, []
    for loss_weight in candidates:
        solution = solve(rows, y, weight=heads, loss_weight=loss_weight, start=solution, tolerance=tolerance)
        z = out_of_fold_scores(solution.logits(x), fold).astype(np.float64)
        losses.append(float((known * (np.logaddexp(0, z) - y * z)).sum() / known.sum()))
    return np.array(losses)
