"""The L2 penalty by cross-validation on the labelled rows: every fold in one solve, begun where the candidate before ended."""

import warnings
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dicap.linear.folds import assign_folds, left_out, of_own_head
from dicap.linear.solver import solve, turn
from dicap.metrics.ranking import average_precision

CANDIDATES = (0.001, 0.003, 0.01, 0.03, 0.1)
FOLDS = 5
DECADES = 2  # beyond the candidates that are tried
FALLS = 0.999  # of the loss: above it a further candidate is no better


class Choice(NamedTuple):
    """What cross-validation found."""

    l2: float  # the best candidate (scikit-learn's C)
    candidates: NDArray  # (G,)
    log_loss: NDArray  # (G,): mean over known entries, out of fold
    precision: NDArray  # (G,): mAP in percent of the out-of-fold scores, over classes with positives; NaN unless it decides


def choose_penalty(x: NDArray, y: NDArray, fold: NDArray | None = None, *, seed: int = 0) -> float:
    """The penalty of labelled rows (n, D) and labels (n, C), by the log loss of their known entries out of fold.

    CANDIDATES are for features of mean square 1; of others a power of ten makes them so. From the first or the last of them the
    search goes on as long as the loss falls; where it still does after DECADES, a RuntimeWarning says so.

    Without folds they are dealt by `seed`. Of a single row, which has no folds, the middle candidate.
    """
    grid = _round(10.0 ** -np.round(np.log10(np.square(x).mean(dtype=np.float64) or 1)) * np.array(CANDIDATES))
    if len(y) < 2:
        return float(grid[len(grid) // 2])
    if fold is None:
        fold = assign_folds(y, min(FOLDS, len(y)), seed)
    known = y >= 0
    target, weight = np.where(known, y, 0).astype(y.dtype), 1.0 if known.all() else known
    best = choose_l2(x, target, fold, weight=weight, candidates=grid)
    outwards = {grid[0]: (0.3, 0.1), grid[-1]: (3.0, 10.0)}.get(best.l2, ())
    for _ in range(DECADES if outwards else 0):
        further = choose_l2(x, target, fold, weight=weight, candidates=_round(best.l2 * np.array(outwards)))
        if further.log_loss.min() > FALLS * best.log_loss.min():
            return best.l2
        best = further
        if best.l2 != best.candidates[-1]:
            return best.l2
    if outwards:
        warnings.warn(f"l2: auto: {best.l2:g}, the best, is the last that was tried", RuntimeWarning, stacklevel=2)
    return best.l2


def _round(l2: NDArray) -> tuple[float, ...]:
    """Candidates without the rounding of products, 0.3 and not 0.30000000000000004."""
    return tuple(float(f"{value:.1g}") for value in l2)


def choose_l2(
    x: NDArray,
    y: NDArray,
    fold: NDArray,
    *,
    weight: ArrayLike = 1.0,
    candidates: tuple[float, ...] = CANDIDATES,
    criterion: Literal["log_loss", "precision"] = "log_loss",
    tolerance: float = 1e-2,
) -> Choice:
    """The candidate whose out-of-fold scores are best.

    Args:
        x: (n, D) rows; y: (n, C) targets; fold: (n,) of each row, views of an image in the same one.
        weight: broadcasts to (n, C), in the fit and in the log loss.
        criterion: `log_loss` decides by entries, `precision` by the order within each class. On photographs the log loss finds
            the same candidate in nearly every split; the precision, of few positives a class, wanders over a decade.

    Returns:
        The choice, with the figures of every candidate.
    """
    assert len(x) == len(y) == len(fold), (x.shape, y.shape, fold.shape)
    weight = np.broadcast_to(np.asarray(weight, dtype=np.float32), y.shape)
    heads, rows, solution = left_out(fold, int(fold.max()) + 1) * weight, turn(x), None
    losses, precisions = np.zeros(len(candidates)), np.full(len(candidates), np.nan)
    for g, l2 in enumerate(candidates):
        solution = solve(rows, y, weight=heads, l2=l2, start=solution, tolerance=tolerance)
        z = of_own_head(solution.logits(x), fold).astype(np.float64)
        losses[g] = float((weight * (np.logaddexp(0, z) - y * z)).sum() / weight.sum())
        if criterion == "precision":
            precisions[g] = mean_precision(z, y, weight)
    best = int(np.argmin(losses)) if criterion == "log_loss" else int(np.argmax(precisions))
    return Choice(float(candidates[best]), np.asarray(candidates), losses, precisions)


def mean_precision(scores: NDArray, y: NDArray, weight: NDArray) -> float:
    """mAP in percent over known entries (weight above 0) of the classes that have a positive among them."""
    values = []
    for c in range(y.shape[1]):
        known = weight[:, c] > 0
        if (y[known, c] > 0.5).any():
            values.append(average_precision(scores[known, c, None], (y[known, c, None] > 0.5))[0])
    return 100 * float(np.mean(values)) if values else float("nan")
