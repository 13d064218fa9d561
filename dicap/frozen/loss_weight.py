"""The weight of the loss by cross-validation on the labelled rows: all folds in one solve, begun where the one before ended."""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dicap.frozen.folds import fold_weights, out_of_fold_scores
from dicap.frozen.solver import rotate, solve

CANDIDATES = (0.001, 0.003, 0.01, 0.03, 0.1)
DECADES = 2  # beyond the candidates that are tried
FALLS = 0.999  # of the loss: above it a further candidate is no better


def choose_loss_weight(x: NDArray, y: NDArray, fold: NDArray) -> float:
    """The weight of the loss, of labelled rows (n, D) and labels (n, C), by the log loss of their known entries out of fold.

    A single row is in no fold and gets the middle candidate. CANDIDATES are for features of mean square 1; for other features a
    power of ten scales them. Beyond the first or the last candidate the search goes on as long as the loss falls; if it still
    falls after DECADES, a RuntimeWarning says so.
    """
    scale = 10.0 ** -np.round(np.log10(np.square(x).mean(dtype=np.float64) or 1))
    grid = _round(scale * np.array(CANDIDATES))
    if len(y) < 2:
        return grid[len(grid) // 2]

    def least_of(candidates: Sequence[float]) -> tuple[float, float]:
        """The best of them, and its loss."""
        losses = log_losses(logits_out_of_fold(x, y, fold, candidates), y)
        return candidates[int(np.argmin(losses))], float(losses.min())

    best, least = least_of(grid)
    outwards = {grid[0]: (0.3, 0.1), grid[-1]: (3.0, 10.0)}.get(best, ())
    for _ in range(DECADES if outwards else 0):
        further = _round(best * np.array(outwards))
        other, loss = least_of(further)
        if loss > FALLS * least:
            break
        best, least = other, loss
        if best != further[-1]:
            break
    else:
        if outwards:
            warnings.warn(f"C: auto: {best:g}, the best, is the last that was tried", RuntimeWarning, stacklevel=2)
    return best


def _round(values: NDArray) -> tuple[float, ...]:
    """Candidates without the rounding of products, 0.3 and not 0.30000000000000004."""
    return tuple(float(f"{value:.1g}") for value in values)


def logits_out_of_fold(x: NDArray, y: NDArray, fold: NDArray, candidates: Sequence[float], *, tolerance: float = 1e-2) -> NDArray:
    """Out-of-fold logits (G, n, C) float64 of heads with each candidate.

    Args:
        x: (n, D) rows; y: (n, C) labels, below 0 where unknown; fold: (n,) of each row, views of an image in the same one.
    """
    assert len(x) == len(y) == len(fold), (x.shape, y.shape, fold.shape)
    known, y = np.asarray(y >= 0, np.float32), np.where(y >= 0, y, 0).astype(y.dtype)
    heads, rows, solution, logits = fold_weights(fold) * known, rotate(x), None, []
    for loss_weight in candidates:
        solution = solve(rows, y, weight=heads, loss_weight=loss_weight, start=solution, tolerance=tolerance)
        logits.append(out_of_fold_scores(solution.logits(x), fold).astype(np.float64))
    return np.stack(logits)


def log_losses(z: NDArray, y: NDArray) -> NDArray:
    """Log loss (G,) of logits (G, n, C): mean over the known entries of y (n, C)."""
    known = y >= 0
    return np.array([float((np.logaddexp(0, each) - y * each)[known].mean()) for each in z])
