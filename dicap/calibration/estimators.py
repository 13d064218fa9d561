"""Estimators of the correctness rate beyond the paper's bins: P(y = 1 | p), learnt on D_est.

The paper counts 20 bins (dicap/calibration/rates.py). On the few images of D_est most bins hold next to nothing, while the curve
is smooth: three parameters describe it. Every estimator here returns the same `Curve`, so that artifacts, resuming and
prediction need not know how it was learnt.

Letters as in calibration.py: N images, C classes, K bins, G knots. Entries whose label is below 0 are unknown and left out.
"""

import numpy as np
import torch
from torch import Tensor

from dicap.calibration.curve import Curve, curve_of
from dicap.calibration.logistic import (
    beta_features,
    knots_of_confidence,
    logistic_rates,
    own_confidence,
    rates_of_classes,
    shares_of_classes,
)
from dicap.calibration.rates import Rates, bin_index, count_bins, pieces

ESTIMATORS = ("bins", "beta", "shrunk_bins", "class_rank", "class_score")
SHRINKAGE = 30.0  # entries that the beta fit counts for in a bin of `shrunk_bins`


def estimate_curve(estimator: str, p: Tensor, y: Tensor, p_unlabelled: Tensor, share: Tensor, *, bins: int = 20) -> Rates:
    """The rates of `fit_curve` (same arguments), with D_est's counts of the bins and the curve's mean in each bin.

    The mean is taken over the unlabelled entries of the bin, as the optimal rate is: a curve that is steep within a bin is
    far from that at the bin's centre. An estimator that knows the class gives a table per class, (C, K).
    """
    curve = fit_curve(estimator, p, y, p_unlabelled, share, bins=bins)
    assert not curve.log_odds, "Rates hold the knots of curves over confidence"
    per_class = curve.rate.ndim == 2
    n_pos, n_neg = count_bins(p, y, bins, per_class=per_class)
    return Rates(n_pos, n_neg, _mean_of_bins(curve, p_unlabelled, bins), curve.knots, curve.rate)


def _mean_of_bins(curve: Curve, p: Tensor, bins: int) -> Tensor:
    """Mean rate of the entries of each bin, (K,) or (C, K) float64; of a bin without entries, the rate at its centre."""
    centres = ((torch.arange(bins, device=p.device, dtype=torch.float64) + 0.5) / bins).unsqueeze(1)  # (K, 1)
    per_class = curve.rate.ndim == 2
    centre = curve.at(centres.expand(-1, p.shape[1])).T.contiguous() if per_class else curve.at(centres)[:, 0]  # (C, K) or (K,)
    table = torch.arange(p.shape[1], device=p.device) * (bins if per_class else 0)  # where each class's bins begin
    total = torch.zeros(centre.numel(), dtype=torch.float64, device=p.device)
    entries = torch.zeros(centre.numel(), dtype=torch.int64, device=p.device)
    for some in pieces(p):
        index = (bin_index(p[some], bins) + table).reshape(-1)
        total.index_add_(0, index, curve.at(p[some]).reshape(-1))
        entries += torch.bincount(index, minlength=len(total))
    total, entries = total.reshape(centre.shape), entries.reshape(centre.shape)
    return torch.where(entries > 0, total / entries.clamp_min(1), centre)


def fit_curve(
    estimator: str, p: Tensor, y: Tensor, p_unlabelled: Tensor | None = None, share: Tensor | None = None, *, bins: int = 20
) -> Curve:
    """Learn P(y = 1 | p) on D_est.

    Args:
        estimator: `beta`: logistic regression on log p and -log(1 - p), the three parameters of beta calibration;
            `shrunk_bins`: bins that fall back on the beta fit where they hold few entries;
            `class_rank`: the beta features, the class's share of positives, and the score's rank in its class;
            `class_score`: the same with the log-odds, standardised within the class, in place of the beta features.
        p, y: (N, C) confidences and labels of D_est, below 0 where unknown.
        p_unlabelled: (N_u, C) confidences of the unlabelled images, among which the estimators that know the class rank.
        share: (C,) share of positives of each class among the labelled images, strictly between 0 and 1, for those estimators.
        bins: K of `shrunk_bins`.

    Returns:
        The curve, non-decreasing in p, on the device of `p`, the same for the same input.
    """
    assert p.shape == y.shape and p.numel(), (p.shape, y.shape)
    p_, y_ = p.double().cpu().numpy(), y.cpu().numpy()
    if estimator in ("class_rank", "class_score"):
        assert p_unlabelled is not None and share is not None and p.shape[1] == p_unlabelled.shape[1] == len(share)
        shares = share.double().cpu().numpy()
        knots, r = rates_of_classes(p_, y_, p_unlabelled.cpu().numpy(), shares, standardised=estimator == "class_score")
    else:
        known = y_ >= 0
        beta = logistic_rates(beta_features(p_[known]), y_[known] > 0, *own_confidence(beta_features))
        if estimator == "shrunk_bins":
            knots = (np.arange(bins) + 0.5) / bins
            n_pos, n_neg = (n.cpu().numpy() for n in count_bins(p, y, bins))
            r = (n_pos + SHRINKAGE * beta(beta_features(knots))) / (n_pos + n_neg + SHRINKAGE)
            r = np.maximum.accumulate(r)
        else:
            assert estimator == "beta", estimator
            knots = knots_of_confidence()
            r = beta(beta_features(knots))
    return curve_of(knots, r).to(p.device)


def class_shares(y: Tensor) -> Tensor:
    """(C,) share of positives of each class among labels (N, C), half a positive and half a negative added to each."""
    return torch.from_numpy(shares_of_classes(y.cpu().numpy())).to(y.device)


def log_loss(r: Tensor, y: Tensor) -> float:
    """Mean of -log P(y) over entries for rates r (N, C) of y = 1; see `log_losses`."""
    return float(log_losses(r, y).mean())


def log_losses(r: Tensor, y: Tensor, floor: float = 1e-4) -> Tensor:
    """-log P(y) of each known entry, (n,) float64, for rates r (N, C) of y = 1, which are kept `floor` away from 0 and 1."""
    if y.is_signed():  # some may be unknown
        r, y = r[y >= 0], y[y >= 0]
    r = r.double().clamp(floor, 1 - floor)
    return -torch.where(y > 0, r, 1 - r).log().flatten()
