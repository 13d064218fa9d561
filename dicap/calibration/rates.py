"""Sections 3 and 4 of the paper as pure functions, in its order.

rates (counts per confidence bin on D_est) -> weights w(p, label) -> thresholds per class on D_sup -> pseudo-labels.

Letters: N images, C classes, K bins; p confidence in [0, 1]; y label, 1 or 0, below 0 where unknown: such an entry counts
nowhere. Everything is vectorised tensor code that runs where its inputs are; counts are float64.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from dicap.calibration.curve import Curve

__all__ = [
    "PseudoLabels",
    "Rates",
    "Thresholds",
    "bin_curve",
    "bin_index",
    "correctness_weight",
    "count_bins",
    "dual_thresholds",
    "estimate_rates",
    "hard_labels",
    "in_pieces",
    "pieces",
]

# Rows, and entries, that are handled at once: on a processor larger temporaries would leave its cache, on a GPU its memory.
PIECE, ENTRIES, ENTRIES_ON_GPU = 2048, 1 << 18, 1 << 26
EPS = 1e-8  # in r = n_pos / (n_pos + n_neg + eps); larger values would bias small bins (docs/methods.md 3.13-A5)


class Rates(NamedTuple):
    """Correctness rates per confidence bin (paper eq. for r_pos, r_neg; docs/methods.md 3.4) and the curve of the weights.

    One table for the data set, tensors (K,) and (G,), or one per class, tensors (C, K) and (C, G).
    """

    n_pos: Tensor
    n_neg: Tensor
    r_pos: Tensor  # mean rate of the entries of each bin
    knots: Tensor  # (G,) of the curve: a place in each bin, or those of dicap/calibration/estimators.py
    at_knots: Tensor  # its rates there

    @property
    def r_neg(self) -> Tensor:
        """r_neg = 1 - r_pos."""
        return 1 - self.r_pos

    @property
    def curve(self) -> Curve:
        """w(p, 1) as a function of p."""
        return Curve(self.knots, self.at_knots)


class Thresholds(NamedTuple):
    """Dual thresholds per class, tensors (C,)."""

    tau_pos: Tensor
    tau_neg: Tensor
    n_pos: Tensor  # labelled positives they were taken from
    n_neg: Tensor
    crossed: Tensor  # bool: tau_neg > tau_pos before the rule for crossed thresholds
    active: Tensor  # bool: false where the class is left out of pseudo-labelling


class PseudoLabels(NamedTuple):
    """What the main stage trains on for one epoch, tensors (N, C)."""

    confidence: Tensor  # p, float32
    label: Tensor  # int8: 1 positive, 0 negative, -1 uncertain
    weight: Tensor  # w(p, label), float32; 0 for uncertain entries
    soft: bool = False  # soft target: the opposite label counts with 1 - weight (docs/methods.md 3.10, reading b)


def bin_index(p: Tensor, bins: int) -> Tensor:
    """The bin of each confidence: k with k/K <= p < (k+1)/K, 0-based; p = 1 belongs to the last (docs/methods.md 3.13-A3).

    Args:
        p: confidences in [0, 1], any shape.

    Returns:
        int64 tensor of p's shape, in 0 .. K - 1.
    """
    return (p.double() * bins).long().clamp_(0, bins - 1)


def count_bins(p: Tensor, y: Tensor, bins: int, *, per_class: bool = False) -> tuple[Tensor, Tensor]:
    """n_pos[k], n_neg[k]: entries of bin k with y = 1 and with y = 0 (docs/methods.md 3.4).

    Args:
        p: (N, C) confidences; y: (N, C) labels 0/1, below 0 where unknown.
        per_class: count each class apart instead of pooling over classes.

    Returns:
        n_pos, n_neg: float64 (K,), or (C, K) with `per_class`.
    """
    assert p.shape == y.shape and p.ndim == 2, (p.shape, y.shape)
    classes = p.shape[1]
    table = torch.arange(classes, device=p.device) * (bins if per_class else 0)  # where each class's bins begin
    n_all = torch.zeros((classes if per_class else 1) * bins, dtype=torch.float64, device=p.device)
    n_pos = torch.zeros_like(n_all)
    for some in pieces(p):
        index = (bin_index(p[some], bins) + table).reshape(-1)
        n_all.index_add_(0, index, (y[some] >= 0).reshape(-1).double())
        n_pos.index_add_(0, index, (y[some] > 0).reshape(-1).double())
    shape = (classes, bins) if per_class else (bins,)
    return n_pos.reshape(shape), (n_all - n_pos).reshape(shape)


def estimate_rates(
    n_pos: Tensor,
    n_neg: Tensor,
    *,
    anchor: str = "left",
    empty_bin: str = "interpolate",
    smoothing: float = 0.0,
    isotonic: bool = False,
) -> Rates:
    """r_pos[k] = n_pos[k] / (n_pos[k] + n_neg[k] + eps) (docs/methods.md 3.4), with its gaps closed (3.13-A4).

    Args:
        n_pos, n_neg: counts, (K,) or (C, K).
        anchor: where in its bin a rate sits when weights are read, see `bin_curve`.
        empty_bin: `interpolate` fills a bin without entries linearly between its nearest neighbours with entries, extends
            the ends by the nearest rate, and uses bin centres if there is no entry at all; `zero` keeps the literal 0 / eps = 0.
        smoothing: pseudo-counts added to both counts of every bin that has entries.
        isotonic: make the rates non-decreasing in confidence, each bin weighted by its entries.
    """
    total = n_pos + n_neg
    seen = total > 0
    r_pos = (n_pos + smoothing) / (total + 2 * smoothing + EPS)
    r_pos = torch.where(seen, r_pos, torch.zeros_like(r_pos))
    if isotonic:
        r_pos = _isotonic(r_pos, total)
    if empty_bin == "interpolate":
        r_pos = _fill_empty(r_pos, seen)
    else:
        assert empty_bin == "zero", empty_bin
    return Rates(n_pos, n_neg, r_pos, *bin_curve(r_pos, anchor=anchor)[:2])


def _fill_empty(rates: Tensor, seen: Tensor) -> Tensor:
    """Linear interpolation over the bin number between bins that were seen; (..., K) -> (..., K)."""
    bins = rates.shape[-1]
    k = torch.arange(bins, device=rates.device).expand(rates.shape)
    left = torch.where(seen, k, torch.full_like(k, -1)).cummax(-1).values  # nearest seen bin at or before k, or -1
    right = torch.where(seen, k, torch.full_like(k, bins)).flip(-1).cummin(-1).values.flip(-1)  # at or after k, or K
    low, high = left.clamp_min(0), right.clamp_max(bins - 1)
    low, high = torch.where(left < 0, high, low), torch.where(right >= bins, low, high)
    r_low, r_high = rates.gather(-1, low), rates.gather(-1, high)
    share = (k - low) / (high - low).clamp_min(1)
    filled = torch.where(seen, rates, r_low + share * (r_high - r_low))
    centres = (k + 0.5) / bins
    return torch.where(seen.any(-1, keepdim=True), filled, centres.to(rates.dtype))


def _isotonic(rates: Tensor, total: Tensor) -> Tensor:
    """Weighted isotonic regression over the bins; scikit-learn does the regression."""
    from sklearn.isotonic import IsotonicRegression

    flat, counts = rates.reshape(-1, rates.shape[-1]).cpu(), total.reshape(-1, rates.shape[-1]).cpu()
    out = flat.clone()
    for row, count in zip(range(len(flat)), counts, strict=True):
        seen = (count > 0).numpy()
        if seen.any():
            x = torch.arange(flat.shape[1]).numpy()
            model = IsotonicRegression(out_of_bounds="clip").fit(x[seen], flat[row].numpy()[seen], count.numpy()[seen])
            out[row, torch.from_numpy(seen)] = torch.from_numpy(model.predict(x[seen])).to(out.dtype)
    return out.reshape(rates.shape).to(rates.device)


def bin_curve(r_pos: Tensor, *, anchor: str = "left") -> Curve:
    """w(p, 1) of the paper: the rates of bins, interpolated (docs/methods.md 3.4).

    With k/K <= p < (k+1)/K and the rates at their bins' left edges,
    w(p, 1) = K ((k+1)/K - p) r_pos[k] + K (p - k/K) r_pos[k+1]. The factor K is missing in print; without it no weight
    would exceed 1/K (docs/methods.md 3.13-A1). Where a neighbour is missing, the end bin's own rate stands in.

    Args:
        r_pos: (K,) rates, or (C, K) for a table per class.
        anchor: where in its bin a rate sits: `left`, `centre` or `right` (docs/methods.md 3.13-A2).
    """
    bins = r_pos.shape[-1]
    offset = {"left": 0.0, "centre": 0.5, "right": 1.0}[anchor]
    return Curve((torch.arange(bins, dtype=torch.float64, device=r_pos.device) + offset) / bins, r_pos.double())


def correctness_weight(p: Tensor, label: Tensor, rates: Rates | None, *, policy: str = "estimated", power: float = 1.0) -> Tensor:
    """w(p, label): how likely the pseudo-label is right (paper section 3; its weighting table, docs/methods.md 3.10).

    Args:
        p: (N, C) confidences; label: (N, C) int, 1 / 0 / -1.
        rates: estimated on D_est (`estimated`), D_sup (`labeled`) or D_u with true labels (`optimal`);
            unused by `uniform` (w = 1) and `confidence` (p for a positive, 1 - p for a negative).
        power: exponent of the weights (calibration.power).

    Returns:
        (N, C) float32; 0 where the label is -1; w(p, 0) = 1 - w(p, 1) except for `uniform` and other powers.
    """

    def of(p: Tensor, label: Tensor) -> Tensor:
        if policy == "uniform":
            return (label >= 0).float()
        if policy == "confidence":
            w_pos = p.double()
        else:
            assert rates is not None and policy in ("estimated", "labeled", "optimal"), policy
            w_pos = rates.curve.at(p)
        weight = torch.where(label == 1, w_pos, 1 - w_pos).masked_fill_(label < 0, 0).float()
        return weight if power == 1 else weight**power

    return in_pieces(of, p, label)


def dual_thresholds(
    p: Tensor,
    y: Tensor,
    *,
    rule: str = "midrange",
    fixed: tuple[float, float] = (0.5, 0.5),
    quantile: float = 0.5,
    crossed: str = "swap",
    unseen: str = "guard",
) -> Thresholds:
    """tau_pos[c] and tau_neg[c] from the scores on D_sup (paper section 4; docs/methods.md 3.5, 3.13-B).

    Args:
        p: (N, C) scores on D_sup; y: (N, C) labels.
        rule: `midrange`: (max + min) / 2 of the positives' and of the negatives' scores; `quantile`: of the same sets,
            `quantile` and 1 - `quantile`; `fixed`: the pair `fixed` = (tau_pos, tau_neg); `none`: 0.5 for both.
        crossed: where tau_neg > tau_pos: `swap` sorts them, so the overlap is uncertain; `priority` leaves them and the
            positive case is read first; `midpoint` sets both to their mean.
        unseen: a class without positives gets tau_pos = 1, one without negatives tau_neg = 0 (`guard`), or the class is
            left out (`skip`).
    """
    assert p.shape == y.shape and p.ndim == 2, (p.shape, y.shape)
    p, positive, negative = p.double(), y > 0, y == 0
    n_pos, n_neg = positive.sum(0), negative.sum(0)  # (C,)
    if rule == "midrange":
        tau_pos, tau_neg = _midrange(p, positive), _midrange(p, negative)
    elif rule == "quantile":
        tau_pos = torch.nanquantile(torch.where(positive, p, torch.nan), quantile, dim=0)
        tau_neg = torch.nanquantile(torch.where(negative, p, torch.nan), 1 - quantile, dim=0)
    else:
        assert rule in ("fixed", "none"), rule
        pair = fixed if rule == "fixed" else (0.5, 0.5)
        tau_pos, tau_neg = (torch.full((p.shape[1],), value, dtype=torch.float64, device=p.device) for value in pair)
    no_pos, no_neg = n_pos == 0, n_neg == 0
    is_crossed = (tau_neg > tau_pos) & ~no_pos & ~no_neg
    if crossed == "swap":
        tau_pos, tau_neg = torch.where(is_crossed, tau_neg, tau_pos), torch.where(is_crossed, tau_pos, tau_neg)
    elif crossed == "midpoint":
        middle = (tau_pos + tau_neg) / 2
        tau_pos, tau_neg = torch.where(is_crossed, middle, tau_pos), torch.where(is_crossed, middle, tau_neg)
    else:
        assert crossed == "priority", crossed
    if rule != "none":  # without thresholds there is nothing to guard: the weight alone speaks
        tau_pos = torch.where(no_pos, torch.ones_like(tau_pos), tau_pos)
        tau_neg = torch.where(no_neg, torch.zeros_like(tau_neg), tau_neg)
    active = ~(no_pos | no_neg) if unseen == "skip" and rule != "none" else torch.ones_like(no_pos)
    return Thresholds(tau_pos, tau_neg, n_pos, n_neg, is_crossed, active)


def _midrange(p: Tensor, chosen: Tensor) -> Tensor:
    """(max + min) / 2 of each column's chosen entries, (C,); meaningless where a column has none."""
    highest = torch.where(chosen, p, -torch.inf).amax(0)
    lowest = torch.where(chosen, p, torch.inf).amin(0)
    return torch.where(chosen.any(0), (highest + lowest) / 2, torch.zeros_like(highest))


def hard_labels(p: Tensor, thresholds: Thresholds, *, rule: str = "midrange") -> Tensor:
    """1 if p > tau_pos, 0 if p < tau_neg, else -1: the closed band is uncertain (docs/methods.md 3.6, 3.13-B5).

    Read top-down, so a crossed pair left in place by `priority` favours the positive. With `rule="none"`: 1[p >= 0.5].

    Returns:
        (N, C) int8; columns of classes that are not active are -1.
    """

    def of(p: Tensor) -> Tensor:
        if rule == "none":
            return (p >= 0.5).to(torch.int8)
        p = p.double()
        positive, negative = (p > thresholds.tau_pos).to(torch.int8), (p < thresholds.tau_neg).to(torch.int8)
        label = torch.where(positive == 1, positive, negative - 1)
        return torch.where(thresholds.active, label, torch.full_like(label, -1))

    return in_pieces(of, p)


def pieces(p: Tensor) -> Iterator[slice]:
    """The rows of a matrix (N, C), some at a time: temporaries of a piece are small, whatever N is."""
    on_processor = p.device.type == "cpu"
    rows = max(1, (ENTRIES if on_processor else ENTRIES_ON_GPU) // max(1, p[:1].numel()))
    rows = min(rows, PIECE) if on_processor else rows
    return (slice(start, start + rows) for start in range(0, max(1, len(p)), rows))


def in_pieces(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """function(*tensors) of tensors with N rows, where a row's result depends on that row alone."""
    out: Tensor | None = None
    for some in pieces(tensors[0]):
        part = function(*(tensor[some] for tensor in tensors))
        if len(part) == len(tensors[0]):
            return part
        if out is None:
            out = part.new_empty(len(tensors[0]), *part.shape[1:])
        out[some] = part
    assert out is not None
    return out


def pooled(estimated: Tensor, optimal: Tensor, entries: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Rates and entries of all classes together, (K,) each, from tables per class (C, K); those of one table as they are.

    Both rates are means over the same entries, so their difference is that of what the bin's entries get and are.
    """
    if estimated.ndim == 1:
        return estimated, optimal, entries
    total = entries.sum(0)
    estimated, optimal = ((rate * entries).sum(0) / total.clamp_min(1) for rate in (estimated, optimal))
    return estimated, optimal, total


def curve_error(estimated: Tensor, optimal: Tensor, entries: Tensor) -> float:
    """Mean absolute difference of two rate curves (K,), each bin weighted by its entries (K,); NaN without entries."""
    total = entries.sum()
    if total == 0:
        return float("nan")
    return float(((estimated - optimal).abs() * entries).sum() / total)
