"""Estimators of the correctness rate beyond the paper's bins: P(y = 1 | p), learnt on D_est.

The paper counts 20 bins (dicap/calibration.py). On the few images of D_est most bins hold next to nothing, while the curve
is smooth: three parameters describe it. Every estimator here returns the same `Curve`, so that artifacts, resuming and
prediction need not know how it was learnt.

Letters as in calibration.py: N images, C classes, K bins, G knots. Entries whose label is below 0 are unknown and left out.
"""

import numpy as np
import torch
from torch import Tensor

from dicap.calibration import Rates, bin_index, count_bins
from dicap.curve import FINEST, Curve, curve_by_rank, curve_of

ESTIMATORS = ("bins", "beta", "shrunk_bins", "class_rank", "class_score")
SHRINKAGE = 30.0  # entries that the beta fit counts for in a bin of `shrunk_bins`
PRIOR_ENTRIES = 2.0  # entries that the network's own confidence counts for; keeps a fit on one outcome finite
KNOTS = 401


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
    if curve.rate.ndim == 1:
        p, centre = p.reshape(-1, 1), curve.at(centres)[:, 0]  # (K,)
    else:
        centre = curve.at(centres.expand(-1, p.shape[1])).T.contiguous()  # (C, K)
    table = torch.arange(p.shape[1], device=p.device) * bins  # where each class's bins begin
    index, rate = (bin_index(p, bins) + table).reshape(-1), curve.at(p).reshape(-1)
    total = torch.zeros(p.shape[1] * bins, dtype=torch.float64, device=p.device).index_add_(0, index, rate)
    entries = torch.bincount(index, minlength=len(total)).reshape(centre.shape)
    return torch.where(entries > 0, total.reshape(centre.shape) / entries.clamp_min(1), centre)


def fit_curve(
    estimator: str, p: Tensor, y: Tensor, p_unlabelled: Tensor | None = None, share: Tensor | None = None, *, bins: int = 20
) -> Curve:
    """Learn P(y = 1 | p) on D_est.

    Args:
        estimator: `beta`: logistic regression on log p and -log(1 - p), the three parameters of beta calibration;
            `shrunk_bins`: bins that fall back on the beta fit where they hold few entries;
            `class_rank`: the beta features, the class's share of positives, and the score's rank in its class;
            `class_score`: the same with the log-odds, standardised within the class, in place of the beta features;
            `groups`: groups of as many entries each, by rank, that lean on a logistic fit: what a published model carries.
        p, y: (N, C) confidences and labels of D_est.
        p_unlabelled: (N_u, C) confidences of the unlabelled images, among which the estimators that know the class rank.
        share: (C,) share of positives of each class among the labelled images, strictly between 0 and 1, for those estimators.
        bins: K of `shrunk_bins`.

    Returns:
        The curve, non-decreasing in p, on the device of `p`, the same for the same input.
    """
    assert p.shape == y.shape and p.numel(), (p.shape, y.shape)
    p_, y_, known = p.double().cpu().numpy(), (y > 0).cpu().numpy(), (y >= 0).cpu().numpy()
    if estimator == "groups":
        return curve_by_rank(p, y)
    knots = _knots()
    if estimator in ("class_rank", "class_score"):
        assert p_unlabelled is not None and share is not None and p.shape[1] == p_unlabelled.shape[1] == len(share)
        unlabelled, shares = p_unlabelled.double().cpu().numpy(), share.double().cpu().numpy()
        r = _by_class(p_, y_, known, unlabelled, shares, knots, standardised=estimator == "class_score")
    else:
        beta = _fit(_beta_features(p_[known]), y_[known], *_own_confidence(_beta_features))
        if estimator == "shrunk_bins":
            knots = (np.arange(bins) + 0.5) / bins
            n_pos, n_neg = (n.cpu().numpy() for n in count_bins(p, y, bins))
            r = (n_pos + SHRINKAGE * beta(_beta_features(knots))) / (n_pos + n_neg + SHRINKAGE)
            r = np.maximum.accumulate(r)
        else:
            assert estimator == "beta", estimator
            r = beta(_beta_features(knots))
    return curve_of(knots, r).to(p.device)


def class_shares(y: Tensor) -> Tensor:
    """(C,) share of positives of each class among known labels (N, C), half a positive and half a negative added to each."""
    return ((y > 0).double().sum(0) + 0.5) / ((y >= 0).double().sum(0) + 1)


def log_loss(r: Tensor, y: Tensor, floor: float = 1e-4) -> float:
    """Mean of -log P(y) over entries for rates r (N, C) of y = 1; rates are kept `floor` away from 0 and 1."""
    r, y = r[y >= 0].double().clamp(floor, 1 - floor), y[y >= 0]
    return float(-torch.where(y > 0, r.log(), (1 - r).log()).mean())


def _knots() -> np.ndarray:
    """Confidences evenly spaced in log-odds, where beta curves are smooth, (G,)."""
    end = np.log((1 - FINEST) / FINEST)
    return 1 / (1 + np.exp(-np.linspace(-end, end, KNOTS)))


def _beta_features(p: np.ndarray) -> np.ndarray:
    """log p and -log(1 - p), (..., 2)."""
    p = np.clip(p, FINEST, 1 - FINEST)
    return np.stack([np.log(p), -np.log1p(-p)], axis=-1)


def _own_confidence(features) -> tuple[np.ndarray, np.ndarray]:
    """Pseudo-entries on which the network's own confidence is right, and their weights: PRIOR_ENTRIES in all."""
    p = (np.arange(20) + 0.5) / 20
    return features(p), np.stack([1 - p, p], axis=1) * (PRIOR_ENTRIES / len(p))


def _by_class(
    p: np.ndarray,
    y: np.ndarray,
    known: np.ndarray,
    p_unlabelled: np.ndarray,
    share: np.ndarray,
    knots: np.ndarray,
    *,
    standardised: bool,
) -> np.ndarray:
    """Rates (C, G) of an estimator that knows the class, learnt on the `known` entries of p and y, all (N, C)."""
    ordered = np.sort(p_unlabelled, axis=0)  # (N_u, C)
    odds_unlabelled = _beta_features(p_unlabelled).sum(-1)  # (N_u, C)
    mean, deviation = odds_unlabelled.mean(0), odds_unlabelled.std(0) + 1e-6

    def features(values: np.ndarray, c: int) -> np.ndarray:
        """(n, F): of the score, log-odds of the class's share, and how far inside the class's quota the score ranks."""
        above = (len(ordered) - np.searchsorted(ordered[:, c], values, side="left") + 0.5) / (len(ordered) + 1)
        odds = np.full(len(values), np.log(share[c] / (1 - share[c])))
        score = _beta_features(values)
        if standardised:
            score = (score.sum(1) - mean[c]) / deviation[c]
        return np.column_stack([score, odds, -np.log(above / share[c])])

    classes = range(p.shape[1])
    x = np.concatenate([features(p[known[:, c], c], c) for c in classes])
    middle = int(np.argsort(share)[len(share) // 2])
    rates = _fit(x, y.T[known.T], *_own_confidence(lambda values: features(values, middle)))
    return np.stack([np.maximum.accumulate(rates(features(knots, c))) for c in classes])


def _fit(x: np.ndarray, y: np.ndarray, x_prior: np.ndarray, weight_prior: np.ndarray):
    """Logistic regression of y (n,) on x (n, F), all of whose features should raise the odds.

    One that lowers them fits noise and is left out, as beta calibration does. The prior entries count once as negatives
    and once as positives, by the columns of weight_prior (m, 2). Returns the rates as a function of features.
    """
    from sklearn.linear_model import LogisticRegression

    everything = np.concatenate([x, x_prior, x_prior])
    target = np.concatenate([y, np.zeros(len(x_prior)), np.ones(len(x_prior))]).astype(int)
    weight = np.concatenate([np.ones(len(x)), weight_prior[:, 0], weight_prior[:, 1]])
    centre, scale = everything.mean(0), everything.std(0)
    kept = [f for f in range(x.shape[1]) if scale[f] > 0]

    def scaled(values: np.ndarray) -> np.ndarray:
        return (values[:, kept] - centre[kept]) / scale[kept]

    while kept:
        # C: features correlate, so a little ridge keeps their coefficients small at no cost in fit.
        model = LogisticRegression(C=100.0, max_iter=1000).fit(scaled(everything), target, sample_weight=weight)
        worst = int(np.argmin(model.coef_[0]))
        if model.coef_[0][worst] >= 0:
            slopes, constant = model.coef_[0].copy(), float(model.intercept_[0])
            return lambda values: 1 / (1 + np.exp(-(scaled(values) @ slopes + constant)))
        kept.pop(worst)
    rate = float((weight * target).sum() / weight.sum())
    return lambda values: np.full(len(values), rate)
