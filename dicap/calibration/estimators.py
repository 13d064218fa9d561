"""Estimators of the correctness rate beyond the paper's bins: P(y = 1 | p), learnt on D_est.

The paper counts 20 bins (`dicap.calibration.rates`). On the few images of D_est most bins hold next to nothing, while the curve
is smooth: three parameters describe it. Every estimator returns a `Curve`, so that artifacts, resuming and prediction need not
know how it was learnt.

Letters: N images, C classes, K bins, G knots. Entries whose label is below 0 are unknown and left out.
"""

import torch
from numpy.typing import NDArray
from torch import Tensor

from dicap.calibration.curve import Curve, curve_of
from dicap.calibration.logistic import beta_features, logistic_rates, logit_grid, prior_entries, rates_of_classes
from dicap.calibration.rates import Rates, bin_index, count_bins, pieces


def estimate_curve(estimator: str, p: Tensor, y: Tensor, p_unlabelled: Tensor, share: NDArray, *, bins: int = 20) -> Rates:
    """The rates of `fit_curve` (same arguments), with D_est's counts of the bins and the curve's mean in each bin.

    The mean is taken over the unlabelled entries of the bin, as the optimal rate is: a curve that is steep within a bin is
    far from that at the bin's centre. An estimator that knows the class gives a table per class, (C, K).
    """
    curve = fit_curve(estimator, p, y, p_unlabelled, share)
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


def fit_curve(estimator: str, p: Tensor, y: Tensor, p_unlabelled: Tensor | None = None, share: NDArray | None = None) -> Curve:
    """Learn P(y = 1 | p) on D_est.

    Args:
        estimator: `beta`: one curve, logistic regression on log p and -log(1 - p), the three parameters of beta calibration;
            `class_score`: a curve per class (`dicap.calibration.logistic.rates_of_classes`).
        p, y: (N, C) confidences and labels of D_est, below 0 where unknown.
        p_unlabelled: (N_u, C) confidences of the unlabelled images, among which `class_score` ranks.
        share: (C,) share of positives of each class among the labelled images, strictly between 0 and 1, for `class_score`.

    Returns:
        The curve, non-decreasing in p, on the device of `p`, the same for the same input.
    """
    assert p.shape == y.shape and p.numel(), (p.shape, y.shape)
    p_, y_ = p.double().cpu().numpy(), y.cpu().numpy()
    if estimator == "class_score":
        assert p_unlabelled is not None and share is not None and p.shape[1] == p_unlabelled.shape[1] == len(share)
        knots, rates = rates_of_classes(p_, y_, p_unlabelled.cpu().numpy(), share)
    else:
        assert estimator == "beta", estimator
        known, knots = y_ >= 0, logit_grid()
        rates = logistic_rates(beta_features(p_[known]), y_[known] > 0, *prior_entries(beta_features))(beta_features(knots))
    return curve_of(knots, rates).to(p.device)


def log_loss(r: Tensor, y: Tensor) -> float:
    """Mean of -log P(y) over entries for rates r (N, C) of y = 1; see `log_losses`."""
    return float(log_losses(r, y).mean())


def log_losses(r: Tensor, y: Tensor, floor: float = 1e-4) -> Tensor:
    """-log P(y) of each known entry, (n,) float64, for rates r (N, C) of y = 1, which are kept `floor` away from 0 and 1."""
    if y.is_signed():  # some may be unknown
        r, y = r[y >= 0], y[y >= 0]
    r = r.double().clamp(floor, 1 - floor)
    return -torch.where(y > 0, r, 1 - r).log().flatten()
