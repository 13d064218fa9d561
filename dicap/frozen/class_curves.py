"""P(y = 1 | score, class): one logistic regression for all classes, on the score within its class and the class's share.

Letters: n, m rows, C classes; p confidence in [0, 1]; y label: 1, 0, or unknown, which is any number below 0 or NaN.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from dicap.calibration.ranks import log_odds

PENALTY = 0.01  # of the squared coefficients beside the summed log loss: what keeps them finite where all labels are alike
FEW = 10  # unlabelled entries below which they do not say where a class's scores lie


class ClassCurves(NamedTuple):
    """The chance that a class is present: expit(slope (log-odds of p - mean[c]) / deviation[c] + constant[c])."""

    mean: NDArray  # (C,) of the log-odds of the class's scores
    deviation: NDArray  # (C,)
    slope: float  # at least 0: the chance does not fall with the confidence
    constant: NDArray  # (C,) by the class's share of positives

    def at(self, p: NDArray) -> NDArray:
        """(n, C) float64 chances at confidences p (n, C)."""
        return expit(self.slope * (log_odds(p) - self.mean) / self.deviation + self.constant)


def curves_of_classes(p: NDArray, y: NDArray, p_unlabelled: NDArray) -> ClassCurves:
    """The curves, from known entries of rows that the model was not trained on.

    Neither coefficient may be below 0: one that lowers the odds fits noise, and becomes 0, as in beta calibration.

    Args:
        p, y: (n, C) confidences and labels.
        p_unlabelled: (m, C) confidences of unlabelled entries, NaN for other entries. They give mean and deviation of a
            class's scores; if they are fewer than FEW, together with the labelled entries: one score alone has no deviation.
    """
    known, positive = np.asarray(y >= 0), np.asarray(y > 0, np.float64)
    few = (~np.isnan(p_unlabelled)).sum(0) < FEW
    places = log_odds(np.concatenate([p_unlabelled, np.where(few & known, p, np.nan)]))
    none = np.isnan(places).all(0)
    places[:1, none] = 0
    mean, deviation = np.nanmean(places, 0), np.nanstd(places, 0)
    deviation[none | (deviation < 1e-6)] = 1
    share = (positive.sum(0) + 0.5) / (known.sum(0) + 1)  # half a positive and half a negative entry more: none is 0 or 1
    odds = np.broadcast_to(np.log(share / (1 - share)), y.shape)
    x = np.stack([((log_odds(p) - mean) / deviation)[known], odds[known], np.ones(known.sum())], 1)  # (entries, 3)
    target = positive[known]

    def loss(v: NDArray) -> tuple[float, NDArray]:
        """Penalised log loss of the coefficients of score and share and the constant, with its gradient."""
        z = x @ v
        return (np.logaddexp(0, z) - target * z).sum() + PENALTY * v @ v / 2, (expit(z) - target) @ x + PENALTY * v

    bounds = [(0, None), (0, None), (None, None)]
    slope, weight, constant = minimize(loss, [1.0, 1.0, 0.0], jac=True, method="L-BFGS-B", bounds=bounds, tol=1e-12).x
    return ClassCurves(mean, deviation, slope, weight * odds[0] + constant)
