"""How mAP grows with the number of labelled images, by heads on smaller draws of them, and a forecast for more of them.

The labelled rows are dealt into folds, and heads of several sizes are solved on draws of the rows outside each fold: so every
labelled image is scored by heads of every size that never saw it, and all sizes are judged by the same images. Their mAP follows
a power law, a - b m^-c of m labelled images (Hestness et al., 2017): for a given decay c it is a line in m^-c, so the forecast
is a weighted sum of the measured values, and the jackknife over the scored images gives its bias and interval, as of any mAP.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dicap.linear.folds import assign_folds, fold_weights, out_of_fold_scores
from dicap.linear.solver import rotate, solve
from dicap.metrics.ranking import can_be_tested, jackknife_interval, leave_one_out

FOLDS = 5
SHARES = (0.25, 0.35, 0.5, 0.7, 1.0)  # of the rows outside a fold that a draw takes
DRAWS = 4
DECAYS = (0.25, 0.5, 1.0)  # from slow to fast: mAP on photographs grew between them (benchmarks/promises.py)


class Curve(NamedTuple):
    """mAP in percent of M sizes, each the mean over draws."""

    images: NDArray  # (M,) labelled images learnt from, ascending
    maps: NDArray  # (M,)
    left_out: NDArray  # (M, n) without each scored image


class Forecast(NamedTuple):
    """mAP in percent with its 95 % interval, of a head that has learnt from so many images."""

    images: int
    value: float
    low: float
    high: float


def measure(rows: NDArray, y: NDArray, *, loss_weight: float, seed: int = 0, draws: int = DRAWS) -> Curve:
    """The curve of heads on the labelled rows alone.

    Args:
        rows: (n, D) as the head scales them; y: (n, C) labels, -1 where unknown; loss_weight: as of `dicap.linear.solver.solve`.

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
        logits = heads.logits(rows).reshape(len(sizes), FOLDS, len(y), -1)
        found.append([leave_one_out(out_of_fold_scores(own, fold), y) for own in logits])
    maps = np.mean([[value for value, _ in draw] for draw in found], axis=0)
    return Curve(sizes, maps, np.mean([[left for _, left in draw] for draw in found], axis=0))


def corrected(curve: Curve) -> list[Forecast]:
    """What was measured, each value without what few images add to mAP."""
    return [
        Forecast(int(m), (low + high) / 2, low, high)
        for m, (low, high) in zip(curve.images, map(jackknife_interval, curve.maps, curve.left_out), strict=True)
    ]


def forecast(curve: Curve, images: int) -> Forecast:
    """mAP of a head on so many labelled images: by the decay that fits best, with the interval of all decays together."""
    found, misfit = [], []
    for decay in DECAYS:
        line = np.stack([np.ones(len(curve.images)), curve.images**-decay], axis=1)  # (M, 2)
        weights = np.array([1, float(images) ** -decay]) @ np.linalg.pinv(line)  # (M,)
        found.append(jackknife_interval(float(weights @ curve.maps), weights @ curve.left_out))
        misfit.append(np.square(line @ np.linalg.pinv(line) @ curve.maps - curve.maps).sum())
    low, high = found[int(np.argmin(misfit))]
    ends = np.array(found)
    value, lowest, highest = np.clip([(low + high) / 2, ends[:, 0].min(), ends[:, 1].max()], 0, 100)
    return Forecast(images, float(value), float(lowest), float(highest))
