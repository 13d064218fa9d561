"""The L2 penalty by cross-validation on the labelled rows: every fold and every candidate in one solve."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dicap.linear.folds import assign_folds, left_out, of_own_head
from dicap.linear.solver import Turned, solve, turn
from dicap.metrics import average_precision

CANDIDATES = (0.001, 0.003, 0.01, 0.03, 0.1)
FOLDS = 5


class Choice(NamedTuple):
    """What cross-validation found."""

    l2: float  # the best candidate (scikit-learn's C)
    candidates: NDArray  # (G,)
    log_loss: NDArray  # (G,): mean over known entries, out of fold
    precision: NDArray  # (G,): mAP in percent of the out-of-fold scores, over classes with positives; NaN unless it decides


def choose_penalty(x: NDArray, y: NDArray, fold: NDArray | None = None, *, seed: int = 0) -> float:
    """The penalty of labelled rows (n, D) and labels (n, C), by the log loss of their known entries out of fold.

    Without folds they are dealt by `seed`. Of a single row, which has no folds, the middle candidate.
    """
    if len(y) < 2:
        return CANDIDATES[len(CANDIDATES) // 2]
    if fold is None:
        fold = assign_folds(y, min(FOLDS, len(y)), seed)
    known = y >= 0
    return choose_l2(x, np.where(known, y, 0).astype(y.dtype), fold, weight=1.0 if known.all() else known).l2


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
    folds, count = int(fold.max()) + 1, len(candidates)
    weight = np.broadcast_to(np.asarray(weight, dtype=np.float32), y.shape)
    heads = (left_out(fold, folds) * weight)[None].repeat(count, 0).reshape(count * folds, *y.shape)
    l2 = np.repeat(np.asarray(candidates), folds)[:, None]
    rows: Turned = turn(x)
    solution = solve(rows, y, weight=heads, l2=l2, tolerance=tolerance)
    scores = solution.logits(x).reshape(count, folds, *y.shape)
    losses, precisions = np.zeros(count), np.full(count, np.nan)
    for g in range(count):
        z = of_own_head(scores[g], fold).astype(np.float64)
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
