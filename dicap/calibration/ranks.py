"""P(y = 1 | score), estimated on groups of entries of similar rank: the curve behind the chances that a published model states.

Letters: n entries, G knots; p confidence in [0, 1]; y label: 1, 0, or unknown, which is any number below 0 or NaN.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit

FINEST = 1e-6  # confidences are clipped to this distance from 0 and 1 before taking logarithms
# A group has about GROUP entries. Fewer than LEAST_GROUPS would be flat where a class is rare: its best scores would share a
# group with negatives, and no score would have a chance above 0.5.
GROUP, LEAST_GROUPS, MOST_GROUPS = 20, 20, 60
# The logistic curve counts as LEAN prior entries in each group, and as more if fewer than MANY entries are known: with few
# images the rate of a group is noisier than the curve.
LEAN, MANY = 40.0, 6000
PENALTY = 1e-4  # of the squared slope, added to the summed log loss: keeps the slope finite if scores separate the labels


class Curve(NamedTuple):
    """P(y = 1 | p), pooled over classes: piecewise linear in the log-odds of p, constant beyond the outermost knots."""

    knots: NDArray  # (G,) float64 log-odds, ascending
    rate: NDArray  # (G,) float64, non-decreasing

    def at(self, p: NDArray) -> NDArray:
        """The rate at confidences p; float64 of their shape."""
        return np.interp(log_odds(p), self.knots, self.rate)


def log_odds(p: NDArray) -> NDArray:
    """log(p / (1 - p)), finite at 0 and 1; float64 of p's shape."""
    p = np.clip(np.asarray(p, np.float64), FINEST, 1 - FINEST)
    return np.log(p) - np.log1p(-p)


def curve_by_rank(p: NDArray, y: NDArray) -> Curve:
    """P(y = 1 | p) from the known entries, on groups of entries of similar rank.

    It suits confidences that crowd near 0 and 1, where bins of equal width are either full or empty.

    A group's rate is (n_pos + L s) / (n + L). s is the group's mean on the logistic curve fitted to all n_known entries, and
    L = LEAN max(1, sqrt(MANY / n_known)). On digits, with a D_est of 40 images, its error is half that of bins of equal width.

    Args:
        p, y: held-out confidences and their labels, same shape; at least one entry is known.
    """
    known = np.asarray(y >= 0)
    x, positive = log_odds(p[known]), np.asarray(y[known] > 0, np.float64)
    # Indices of x in ascending order, cut into groups of equal size.
    count = min(len(x), max(LEAST_GROUPS, min(MOST_GROUPS, len(x) // GROUP)))
    groups = np.array_split(np.argsort(x, kind="stable"), count)
    smooth = logistic_curve(x, positive)
    prior = LEAN * max(1.0, np.sqrt(MANY / len(x)))
    value = np.unique(x, return_inverse=True)[1]
    positive = (np.bincount(value, positive) / np.bincount(value))[value]  # ties share their mean, so their order is irrelevant
    rates = [(positive[group].sum() + prior * smooth[group].mean()) / (len(group) + prior) for group in groups]
    return Curve(*isotonic_knots([x[group].mean() for group in groups], rates, groups))


def isotonic_knots(knots: list[float], rates: list[float], groups: list[NDArray]) -> tuple[NDArray, NDArray]:
    """Knots and rates from the means of the groups, after isotonic regression of the rates.

    Equal knots become one with the mean of their rates, because interpolation needs strictly ascending knots.
    """
    rate = isotonic_regression(rates, weights=[len(group) for group in groups]).x.clip(0, 1)
    unique, index = np.unique(np.array(knots), return_inverse=True)
    return unique, np.bincount(index, rate) / np.bincount(index)


def logistic_curve(x: NDArray, y: NDArray) -> NDArray:
    """Logistic regression of y on x, evaluated at x (Platt scaling); the mean of y if y is constant or the slope not positive."""
    if y.min() == y.max() or x.min() == x.max():
        return np.full(len(x), y.mean())
    deviation = x.std()
    t, penalty = (x - x.mean()) / deviation, PENALTY / (len(x) * deviation**2)

    def loss(v: NDArray) -> tuple[float, NDArray]:
        """Mean log loss of slope and bias, with its gradient."""
        z = v[0] * t + v[1]
        error = expit(z) - y
        value = (np.logaddexp(0, z) - y * z).mean() + penalty * v[0] ** 2 / 2
        return value, np.array([(error * t).mean() + penalty * v[0], error.mean()])

    slope, bias = minimize(loss, [0.0, 0.0], jac=True, method="BFGS", options={"gtol": 1e-9}).x
    return expit(slope * t + bias) if slope > 0 else np.full(len(x), y.mean())
