"""How mAP grows with the number of labelled images, by heads on smaller draws of them, and a forecast of what more would add.

The labelled rows are dealt into folds, and heads of several sizes are solved on draws of the rows outside each fold: so every
labelled image is scored by heads of every size that never saw it, and all sizes are judged by the same images. Each head's
scores are standardised before they are put together. mAP follows a power law, a - b m^-c of m labelled images (Hestness et al.,
2017): for a given decay c it is a line in m^-c, so what more images add is a weighted sum of the measured values, and the
jackknife over the scored images gives its bias and interval, as of any difference of mAP. What is forecast is this gain and not
mAP itself, whose level depends on how rare the classes of few scored images are.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dicap.frozen.folds import assign_folds, fold_weights, out_of_fold_scores
from dicap.frozen.solver import rotate, solve
from dicap.metrics.ranking import can_be_tested, jackknife_interval, leave_one_out

FOLDS = 5
SHARES = (0.25, 0.35, 0.5, 0.7, 1.0)  # of the rows outside a fold that a draw takes
DRAWS = 4
DECAYS = (0.1, 0.3, 1.0)  # from slow to fast; the interval holds all of them


class Curve(NamedTuple):
    """mAP in percent of M sizes, each the mean over draws."""

    images: NDArray  # (M,) labelled images learnt from, ascending
    maps: NDArray  # (M,)
    left_out: NDArray  # (M, n) without each scored image


class Value(NamedTuple):
    """Points of mAP with their 95 % interval, at so many labelled images."""

    images: int
    value: float
    low: float
    high: float


def measure(rows: NDArray, y: NDArray, *, loss_weight: float, seed: int = 0, draws: int = DRAWS) -> Curve:
    """The curve of heads on the labelled rows alone.

    Args:
        rows: (n, D) as the head scales them; y: (n, C) labels, -1 where unknown; loss_weight: as of `dicap.frozen.solver.solve`.

    Raises:
        ValueError: fewer than 2 FOLDS rows, or no class with a positive and a negative.
    """
    tested = can_be_tested(y)
    if len(y) < 2 * FOLDS or not tested.any():
        raise ValueError(f"{len(y)} labelled images, {int(tested.sum())} classes that can be tested: too few for a curve")
    y = y[:, tested]
    axes, rng = rotate(rows), np.random.default_rng(seed)
    sizes = np.unique(np.round(np.array(SHARES) * (len(y) - -(-len(y) // FOLDS))).astype(int))
    found = []
    for draw in range(draws):
        fold = assign_folds(y, FOLDS, seed + draw)
        order = np.array([np.argsort(np.where(fold == k, 2, 0) + rng.random(len(y))).argsort() for k in range(FOLDS)])
        within = (order < sizes[:, None, None]).reshape(-1, len(y), 1) & (np.tile(fold_weights(fold), (len(sizes), 1, 1)) > 0)
        heads = solve(axes, y, weight=(within & (y >= 0)).astype(np.float32), loss_weight=loss_weight, tolerance=1e-2)
        logits = heads.logits(rows)  # (M K, n, C)
        logits = (logits - logits.mean(1, keepdims=True)) / np.maximum(logits.std(1, keepdims=True), 1e-6)
        logits = logits.reshape(len(sizes), FOLDS, len(y), -1)
        found.append([leave_one_out(out_of_fold_scores(own, fold), y) for own in logits])
    maps = np.mean([[value for value, _ in draw] for draw in found], axis=0)
    return Curve(sizes, maps, np.mean([[left for _, left in draw] for draw in found], axis=0))


def corrected(curve: Curve) -> list[Value]:
    """What was measured, without what few images add to mAP."""
    ends = map(jackknife_interval, curve.maps, curve.left_out)
    return [Value(int(m), (low + high) / 2, low, high) for m, (low, high) in zip(curve.images, ends, strict=True)]


def gain(curve: Curve, now: int, images: int) -> Value:
    """Points of mAP that a head on so many labelled images is above one on `now`: by the decay that fits best."""
    found, misfit = [], []
    for decay in DECAYS:
        line = np.stack([np.ones(len(curve.images)), curve.images**-decay], axis=1)  # (M, 2)
        fit = np.linalg.pinv(line)
        weights = np.array([0, float(images) ** -decay - float(now) ** -decay]) @ fit  # (M,)
        found.append(jackknife_interval(float(weights @ curve.maps), weights @ curve.left_out))
        misfit.append(np.square(line @ fit @ curve.maps - curve.maps).sum())
    ends = np.array(found)  # (decays, 2)
    return Value(images, float(ends[int(np.argmin(misfit))].mean()), float(ends[:, 0].min()), float(ends[:, 1].max()))
