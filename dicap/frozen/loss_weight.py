"""Chooses the weight of the loss by cross-validation. All folds are one solve; each candidate starts at the previous solution."""

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dicap.frozen.folds import fold_weights, out_of_fold_scores
from dicap.frozen.solver import rotate, solve

CANDIDATES = (0.001, 0.003, 0.01, 0.03, 0.1)
DECADES = 2  # how many powers of ten the search goes beyond CANDIDATES
FALLS = 0.999  # a further candidate is better only if its loss is below this share of the best loss


def choose_loss_weight(x: NDArray, y: NDArray, fold: NDArray) -> float:
    """The weight of the loss with the lowest out-of-fold log loss on the known entries of labels (n, C) of rows (n, D).

    A single row has no folds and gets the middle candidate. CANDIDATES are for features of mean square 1; for other features a
    power of ten scales them. If the first or the last candidate is best, the search continues beyond it as long as the loss
    falls. If the loss still falls after DECADES, there is a RuntimeWarning.
    """
    scale = 10.0 ** -np.round(np.log10(np.square(x).mean(dtype=np.float64) or 1))
    grid = _round(scale * np.array(CANDIDATES))
    if len(y) < 2:
        return grid[len(grid) // 2]

    def least_of(candidates: Sequence[float]) -> tuple[float, float]:
        """The best candidate, and its loss."""
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
            warnings.warn(f"C: auto: the best value {best:g} is the last one tried", RuntimeWarning, stacklevel=2)
    return best


def _round(values: NDArray) -> tuple[float, ...]:
    """Candidates rounded to one digit, so that a product is 0.3 and not 0.30000000000000004."""
    return tuple(float(f"{value:.1g}") for value in values)


def logits_out_of_fold(x: NDArray, y: NDArray, fold: NDArray, candidates: Sequence[float], *, tolerance: float = 1e-2) -> NDArray:
    """Out-of-fold logits (G, n, C) float64 for each of G candidates.

    Args:
        x: (n, D) rows; y: (n, C) labels, below 0 if unknown; fold: (n,), equal for all views of an image.
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
    return np.array([float((np.logaddexp(0, logits) - y * logits)[known].mean()) for logits in z])
