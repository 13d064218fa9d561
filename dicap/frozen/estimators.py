"""The estimator of the correctness rate beyond the paper's bins: P(y = 1 | p, class), learnt on D_est (`class_score`).

The paper counts 20 bins (`dicap.calibration.rates`). On the few images of D_est most bins hold next to nothing, while the curve
is smooth: a few parameters describe it. The estimator returns a `Curve`, so that artifacts, resuming and prediction need not
know how it was learnt.

Letters: N images, C classes, K bins, G knots. Entries whose label is below 0 are unknown and left out.
"""

import torch
from numpy.typing import NDArray
from torch import Tensor

from dicap.calibration.curve import Curve, curve_of
from dicap.calibration.rates import Rates, bin_index, count_bins, pieces
from dicap.frozen.logistic import class_shares, rates_of_classes


def estimate_curve(p: Tensor, y: Tensor, p_unlabelled: Tensor, y_labelled: Tensor, *, bins: int = 20) -> Rates:
    """The rates of `fit_curve`, a table per class: D_est's counts of the bins and the curve's mean in each.

    The mean is taken over the unlabelled entries of the bin, as the optimal rate is: a curve that is steep within a bin is
    far from that at the bin's centre.

    Args:
        p, y, p_unlabelled: as in `fit_curve`.
        y_labelled: (n, C) labels of all labelled images, whose shares of positives are those of the classes.
    """
    curve = fit_curve(p, y, p_unlabelled, class_shares(y_labelled.cpu().numpy()))
    n_pos, n_neg = count_bins(p, y, bins, per_class=True)
    return Rates(n_pos, n_neg, _mean_of_bins(curve, p_unlabelled, bins), knots=curve.knots, at_knots=curve.rate)


def _mean_of_bins(curve: Curve, p: Tensor, bins: int) -> Tensor:
    """Mean rate of the entries of each class and bin, (C, K) float64; of a bin without entries, the rate at its centre."""
    centres = ((torch.arange(bins, device=p.device, dtype=torch.float64) + 0.5) / bins).unsqueeze(1)  # (K, 1)
    centre = curve.at(centres.expand(-1, p.shape[1])).T.contiguous()  # (C, K)
    table = torch.arange(p.shape[1], device=p.device) * bins  # where each class's bins begin
    total = torch.zeros(centre.numel(), dtype=torch.float64, device=p.device)
    entries = torch.zeros(centre.numel(), dtype=torch.int64, device=p.device)
    for some in pieces(p):
        index = (bin_index(p[some], bins) + table).reshape(-1)
        total.index_add_(0, index, curve.at(p[some]).reshape(-1))
        entries += torch.bincount(index, minlength=len(total))
    total, entries = total.reshape(centre.shape), entries.reshape(centre.shape)
    return torch.where(entries > 0, total / entries.clamp_min(1), centre)


def fit_curve(p: Tensor, y: Tensor, p_unlabelled: Tensor, share: NDArray) -> Curve:
    """Learn P(y = 1 | p) of each class on D_est (`dicap.frozen.logistic.rates_of_classes`).

    Args:
        p, y: (N, C) confidences and labels of D_est, below 0 where unknown.
        p_unlabelled: (N_u, C) confidences of the unlabelled images, among which a score ranks.
        share: (C,) share of positives of each class among the labelled images, strictly between 0 and 1.

    Returns:
        The curves, non-decreasing in p, on the device of `p`, the same for the same input.
    """
    assert p.shape == y.shape and p.numel() and p.shape[1] == p_unlabelled.shape[1] == len(share), (p.shape, y.shape)
    knots, rates = rates_of_classes(p.double().cpu().numpy(), y.cpu().numpy(), p_unlabelled.cpu().numpy(), share)
    return curve_of(knots, rates).to(p.device)
