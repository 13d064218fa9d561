"""Dual thresholds per class from the scores on D_sup, then pseudo-labels, as pure functions (docs/methods.md 3.5 and 3.6).

Letters: N images, C classes; p confidence in [0, 1]; y label, 1 or 0, below 0 where unknown: such an entry counts nowhere.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from dicap.calibration.rates import in_pieces

__all__ = ["PseudoLabels", "Thresholds", "dual_thresholds", "hard_labels"]


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

    confidence: Tensor  # p: float32
    label: Tensor  # int8: 1 positive, 0 negative, -1 uncertain
    weight: Tensor  # w(p, label), float32; 0 for uncertain entries
    soft: bool = False  # soft target: the opposite label counts with 1 - weight (docs/methods.md 3.10, reading b)


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
