"""The weights of pseudo-labels as pure functions, in the order of the paper's equations (docs/methods.md 3.4).

The order is: bins of confidence, counts per bin on D_est, rates, the interpolated curve w(p, 1), weights w(p, label).
Thresholds and pseudo-labels follow in `dicap.calibration.thresholds`.

Letters: N images, C classes, K bins; p confidence in [0, 1]; y label, 1 or 0, below 0 if unknown. Unknown entries are never
counted. All functions are vectorised and run on the device of their inputs; counts are float64.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

ENTRIES = 1 << 18  # per piece in `in_pieces`: larger temporaries do not fit the processor's cache and take 2.5 times as long
EPS = 1e-8  # in r = n_pos / (n_pos + n_neg + eps); a larger eps would bias small bins (docs/methods.md 3.13-A5)


class Rates(NamedTuple):
    """Correctness rates per bin, tensors (K,), pooled over the classes, and their curve w(p, 1) (docs/methods.md 3.4)."""

    n_pos: Tensor
    n_neg: Tensor
    r_pos: Tensor  # share of positives in each bin
    anchor: str = "left"  # position of a rate within its bin, see `interpolated`

    @property
    def r_neg(self) -> Tensor:
        """r_neg = 1 - r_pos."""
        return 1 - self.r_pos

    def cpu(self) -> "Rates":
        """These rates on the CPU."""
        return self._replace(**{name: value.cpu() for name, value in self._asdict().items() if isinstance(value, Tensor)})

    def at(self, p: Tensor) -> Tensor:
        """w(p, 1) of confidences p, float64 of their shape (Equation (7))."""
        return interpolated(p, self.r_pos, anchor=self.anchor)


def bin_index(p: Tensor, bins: int) -> Tensor:
    """The bin of each confidence: k with k/K <= p < (k+1)/K, 0-based; p = 1 belongs to the last bin (docs/methods.md 3.13-A3).

    Args:
        p: confidences in [0, 1], any shape.

    Returns:
        int64 tensor of p's shape, in 0 .. K - 1.
    """
    return (p.double() * bins).long().clamp_(0, bins - 1)


def check_labels(y: Tensor) -> None:
    """Raise ValueError for a label that is not 1, 0 or below 0. On a GPU nothing is checked, because that would synchronise."""
    if y.device.type == "cpu" and not (allowed := (y == 0) | (y == 1) | (y < 0)).all():
        raise ValueError(f"labels: found {float(y[~allowed][0]):g}, expected 1, 0, or -1 where unknown")


def count_bins(p: Tensor, y: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """n_pos[k], n_neg[k]: entries of bin k with y = 1 and with y = 0 (docs/methods.md 3.4, Equation (5)).

    Args:
        p: (N, C) confidences; y: (N, C) labels 0/1, below 0 where unknown.

    Returns:
        n_pos, n_neg: float64 (K,).

    Raises:
        ValueError: a confidence is NaN or not in [0, 1], or `check_labels` refuses a label; both are checked on the CPU only.
    """
    assert p.shape == y.shape and p.ndim == 2, (p.shape, y.shape)
    check_labels(y)
    inside = (p >= 0) & (p <= 1)
    if p.device.type == "cpu" and not inside.all():
        raise ValueError(f"p: found {float(p[~inside][0]):g}, expected confidences in [0, 1]; apply the sigmoid to logits")
    n_all = torch.zeros(bins, dtype=torch.float64, device=p.device)
    n_pos = torch.zeros_like(n_all)
    index = bin_index(p, bins).reshape(-1)
    n_all.index_add_(0, index, (y >= 0).reshape(-1).double())
    n_pos.index_add_(0, index, (y > 0).reshape(-1).double())
    return n_pos, n_all - n_pos


def estimate_rates(n_pos: Tensor, n_neg: Tensor, *, anchor: str = "left", empty_bin: str = "interpolate") -> Rates:
    """r_pos[k] = n_pos[k] / (n_pos[k] + n_neg[k] + eps) (docs/methods.md 3.4, Equation (6)), with empty bins filled (3.13-A4).

    Args:
        n_pos, n_neg: counts, (K,).
        anchor: position of a rate within its bin when weights are interpolated, see `interpolated`.
        empty_bin: `interpolate` fills an empty bin linearly from the nearest bins with entries, fills the two ends with the
            nearest rate, and uses bin centres if all bins are empty; `zero` keeps the literal 0 / eps = 0.
    """
    total = n_pos + n_neg
    has_entries = total > 0
    r_pos = n_pos / (total + EPS)
    if empty_bin == "interpolate":
        r_pos = _fill_empty(r_pos, has_entries)
    else:
        assert empty_bin == "zero", empty_bin
    return Rates(n_pos, n_neg, r_pos, anchor)


def _fill_empty(rates: Tensor, has_entries: Tensor) -> Tensor:
    """Linear interpolation over the bin index between bins with entries; (K,) -> (K,)."""
    bins = len(rates)
    k = torch.arange(bins, device=rates.device)
    position = k.to(rates.dtype)  # quotients of integers would be float32
    left = torch.where(has_entries, k, -1).cummax(0).values  # nearest bin with entries at or before k, or -1
    right = torch.where(has_entries, k, bins).flip(0).cummin(0).values.flip(0)  # nearest bin with entries at or after k, or K
    low, high = left.clamp_min(0), right.clamp_max(bins - 1)
    low, high = torch.where(left < 0, high, low), torch.where(right >= bins, low, high)
    share = (position - low) / (high - low).clamp_min(1)
    filled = torch.where(has_entries, rates, rates[low] + share * (rates[high] - rates[low]))
    return torch.where(has_entries.any(), filled, (position + 0.5) / bins)


def interpolated(p: Tensor, r_pos: Tensor, *, anchor: str = "left") -> Tensor:
    """w(p, 1) by linear interpolation between the rates of neighbouring bins (docs/methods.md 3.4, Equation (7)).

    With the rates at the left edges of their bins and k/K <= p < (k+1)/K,
    w(p, 1) = K ((k+1)/K - p) r_pos[k] + K (p - k/K) r_pos[k+1]. The paper prints this without the factor K, but then no weight
    would exceed 1/K (docs/methods.md 3.13-A1). Beyond the outermost anchors the curve is constant.

    Args:
        p: confidences in [0, 1], any shape; r_pos: (K,) rates.
        anchor: position of a rate within its bin: `left`, `centre` or `right` (docs/methods.md 3.13-A2).

    Returns:
        float64 of p's shape.

    >>> interpolated(torch.tensor([0.0, 0.25, 0.5, 1.0]), torch.tensor([0.2, 0.8])).tolist()
    [0.2, 0.5, 0.8, 0.8]
    """
    bins = len(r_pos)
    x = (bins * p.double() - {"left": 0.0, "centre": 0.5, "right": 1.0}[anchor]).clamp(0, bins - 1)  # K p: in bin widths
    k = x.long()
    r_pos = r_pos.double()
    return (k + 1 - x) * r_pos[k] + (x - k) * r_pos[(k + 1).clamp_max(bins - 1)]


def correctness_weight(p: Tensor, label: Tensor, rates: Rates | None, *, policy: str = "estimated") -> Tensor:
    """w(p, label): the estimated probability that the pseudo-label is right (paper section 3; policies: docs/methods.md 3.10).

    Args:
        p: (N, C) confidences; label: (N, C) int, 1 / 0 / -1.
        rates: counted on D_est (`estimated`), on D_sup (`labeled`), or on D_u with its true labels (`optimal`); `uniform`
            (w = 1) and `confidence` (p for a positive, 1 - p for a negative) ignore them.

    Returns:
        (N, C) float32; 0 where the label is -1; w(p, 0) = 1 - w(p, 1) except for `uniform`. Raises what `check_labels` raises.

    >>> p_est, y_est = torch.tensor([[0.1], [0.2], [0.7], [0.9]]), torch.tensor([[0], [0], [0], [1]])
    >>> rates = estimate_rates(*count_bins(p_est, y_est, 2), anchor="centre")  # rate 0 below a confidence of 0.5, 0.5 above
    >>> correctness_weight(torch.tensor([[0.9, 0.1, 0.5]]), torch.tensor([[1, 0, -1]]), rates)
    tensor([[0.5000, 1.0000, 0.0000]])
    """
    check_labels(label)
    if policy == "uniform":
        return (label >= 0).float()
    if policy == "confidence":
        w_pos = p.double()
    else:
        assert rates is not None and policy in ("estimated", "labeled", "optimal"), policy
        w_pos = rates.at(p)
    return torch.where(label == 1, w_pos, 1 - w_pos).masked_fill(label < 0, 0).float()


def in_pieces(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """function(*tensors) for tensors (N, C), computed in pieces of rows; each row's result must depend on this row alone."""
    rows = max(1, ENTRIES // max(1, tensors[0][:1].numel()))
    return torch.cat([function(*piece) for piece in zip(*(tensor.split(rows) for tensor in tensors), strict=True)])


def curve_error(estimated: Tensor, optimal: Tensor, entries: Tensor) -> float:
    """Mean absolute difference of two rate curves (K,), each bin weighted by its entries (K,); NaN without entries."""
    return float(((estimated - optimal).abs() * entries).sum() / entries.sum())


def surprisals(r: Tensor, y: Tensor, floor: float = 1e-4) -> Tensor:
    """-log P(y) of each known entry, (n,) float64. r (N, C) are probabilities of y = 1, clipped to [floor, 1 - floor]."""
    if y.is_signed():  # some labels may be unknown
        r, y = r[y >= 0], y[y >= 0]
    r = r.double().clamp(floor, 1 - floor)
    return -torch.where(y > 0, r, 1 - r).log().flatten()
