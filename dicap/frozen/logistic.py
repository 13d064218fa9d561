"""P(y = 1 | score) by logistic regression on a few features of the score, and of its class where that is known, on arrays.

Letters: n rows, C classes, G knots, F features; p confidence in [0, 1]; y label: 1, 0, or unknown, which is any number below 0 or
NaN.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dicap.calibration.ranks import FINEST, log_odds
from dicap.frozen.solver import solve

EXACT = 1e-6  # tolerance: a few features, solved to the last digits at once
PRIOR_ENTRIES = 2.0  # entries that the network's own confidence counts for; keeps a fit on one outcome finite
KNOTS = 401
FEW = 10  # unlabelled entries below which they do not say where a class's scores lie


def rates_of_classes(p: NDArray, y: NDArray, p_unlabelled: NDArray, share: NDArray) -> tuple[NDArray, NDArray]:
    """The rate of every class as a function of the confidence, learnt from known entries (calibration.estimator: class_score).

    Logistic regression on the log-odds of the class's share of positives, on how far inside the class's quota the score ranks
    among the unlabelled entries of its class, and on the score's log-odds, standardised within the class.

    Args:
        p, y: (n, C) confidences and labels of rows that the model was not trained on.
        p_unlabelled: (m, C) confidences of unlabelled entries; NaN where an entry is none. Each class has at least one, unless
            there is no row at all: then the rows of `p` stand in for the images that a confidence is compared with.
        share: (C,) share of positives of each class among all labelled rows, strictly between 0 and 1.

    Returns:
        knots: (G,) confidences; rates: (C, G), non-decreasing in the knots, linear between them.
    """
    p_unlabelled = p_unlabelled if len(p_unlabelled) else p
    end = np.log((1 - FINEST) / FINEST)
    knots = 1 / (1 + np.exp(-np.linspace(-end, end, KNOTS)))  # (G,) evenly spaced in log-odds, where the curves are smooth
    known, positive = np.asarray(y >= 0), np.asarray(y > 0)
    p = np.asarray(p, np.float64)
    middle = int(np.argsort(share)[len(share) // 2])
    x, at_knots, prior = [], [], None
    for c, features in enumerate(_features_of_classes(p_unlabelled, share, np.where(known, p, np.nan))):
        x.append(features(p[known[:, c], c]))
        at_knots.append(features(knots))
        if c == middle:
            prior = prior_entries(features)
    assert prior is not None, "the middle is one of the classes"
    right = np.concatenate([positive[known[:, c], c] for c in range(len(share))])
    rates = logistic_rates(np.concatenate(x), right, *prior)
    return knots, np.stack([np.maximum.accumulate(rates(each)) for each in at_knots])


@dataclass(frozen=True)
class _Features:
    """Scores (n,) of one class -> (n, F): of the score, log-odds of the class's share, and how far inside the class's quota the
    score ranks."""

    ordered: NDArray  # (m,) the class's unlabelled scores, ascending
    mean: float  # of their log-odds
    deviation: float
    share: float

    def __call__(self, values: NDArray) -> NDArray:
        count = len(self.ordered)
        above = (count - np.searchsorted(self.ordered, values, side="left") + 0.5) / (count + 1)
        odds = np.full(len(values), np.log(self.share / (1 - self.share)))
        score = (log_odds(values) - self.mean) / self.deviation
        return np.column_stack([score, odds, -np.log(above / self.share)])


def _features_of_classes(p: NDArray, share: NDArray, labelled: NDArray) -> Iterator[_Features]:
    """The features of each class in turn, from unlabelled entries p (m, C) and labelled ones (n, C), NaN where there is none.

    Scores are standardised by the unlabelled entries, where they are few by both: of a single one any other score would be
    infinitely far, and the one fit for all classes would follow it.
    """
    p = np.asarray(p, np.float64)
    ordered, count = np.sort(p, axis=0), (~np.isnan(p)).sum(0)  # NaN comes last
    odds = log_odds(np.concatenate([p, np.where(count < FEW, labelled, np.nan)]))
    mean, deviation = np.nanmean(odds, 0), np.nanstd(odds, 0) + 1e-6
    for c, its_share in enumerate(share):
        yield _Features(ordered[: count[c], c], mean[c], deviation[c], its_share)


def class_shares(y: NDArray) -> NDArray:
    """(C,) share of positives among the known labels (n, C), half a positive and half a negative added to each."""
    return ((y > 0).sum(0, dtype=np.float64) + 0.5) / ((y >= 0).sum(0) + 1)


def prior_entries(features: Callable[[NDArray], NDArray]) -> tuple[NDArray, NDArray]:
    """Pseudo-entries on which the network's own confidence is right, and their weights: PRIOR_ENTRIES in all."""
    p = (np.arange(20) + 0.5) / 20
    return features(p), np.stack([1 - p, p], axis=1) * (PRIOR_ENTRIES / len(p))


def logistic_rates(x: NDArray, y: NDArray, x_prior: NDArray, weight_prior: NDArray) -> Callable[[NDArray], NDArray]:
    """Logistic regression of y (n,) on x (n, F), all of whose features should raise the odds.

    One that lowers them fits noise and is left out, as beta calibration does. The prior entries count once as negatives
    and once as positives, by the columns of weight_prior (m, 2). Returns the rates as a function of features.
    """
    everything = np.concatenate([x, x_prior, x_prior])
    target = np.concatenate([y, np.zeros(len(x_prior)), np.ones(len(x_prior))])
    weight = np.concatenate([np.ones(len(x)), weight_prior[:, 0], weight_prior[:, 1]])
    centre, scale = everything.mean(0), everything.std(0)
    kept = [f for f in range(x.shape[1]) if scale[f] > 0]

    def scaled(values: NDArray) -> NDArray:
        return (values[:, kept] - centre[kept]) / scale[kept]

    while kept:
        # The loss weight: features correlate, so a little ridge keeps their coefficients small at no cost in fit.
        model = solve(scaled(everything), target[:, None], weight=weight[:, None], loss_weight=100.0, tolerance=EXACT)
        slopes, constant = model.w[0, 0], model.b[0, 0]
        worst = int(np.argmin(slopes))
        if slopes[worst] >= 0:
            return lambda values: expit(scaled(values) @ slopes + constant)
        kept.pop(worst)
    rate = float((weight * target).sum() / weight.sum())
    return lambda values: np.full(len(values), rate)
