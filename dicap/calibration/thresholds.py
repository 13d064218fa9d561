"""Dual thresholds per class from the scores on D_sup, then pseudo-labels, as pure functions (docs/methods.md 3.5 and 3.6).

Letters: N images, C classes; p confidence in [0, 1]; y label, 1 or 0, below 0 if unknown. Unknown entries are ignored.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from dicap.calibration.rates import check_labels


class Thresholds(NamedTuple):
    """Dual thresholds per class, tensors (C,)."""

    tau_pos: Tensor
    tau_neg: Tensor
    n_pos: Tensor  # labelled positives that tau_pos is computed from
    n_neg: Tensor
    crossed: Tensor  # bool: tau_neg was above tau_pos, and the two were exchanged
    active: Tensor  # bool: false if CAP or D2L gives this class no pseudo-labels


class PseudoLabels(NamedTuple):
    """Pseudo-labels of one epoch of the main stage, tensors (N, C)."""

    confidence: Tensor  # p: float32
    label: Tensor  # int8: 1 positive, 0 negative, -1 uncertain
    weight: Tensor  # w(p, label), float32; 0 for uncertain entries
    soft: bool = False  # soft target: the opposite label counts with 1 - weight (docs/methods.md 3.10, reading b)


def dual_thresholds(p: Tensor, y: Tensor, *, rule: str = "midrange") -> Thresholds:
    """tau_pos[c] and tau_neg[c] from the scores on D_sup (docs/methods.md 3.5, Equation (8), 3.13-B).

    A class without positives gets tau_pos = 1, a class without negatives tau_neg = 0. If tau_neg > tau_pos the two are
    exchanged. Scores between the two thresholds are uncertain.

    Args:
        p: (N, C) scores on D_sup; y: (N, C) labels. Labels other than 1, 0 and below 0 raise ValueError (`check_labels`).
        rule: `midrange`: (max + min) / 2 of the positives' scores, and of the negatives' scores; `none`: 0.5 for both.

    >>> p, y = torch.tensor([[0.9], [0.7], [0.3], [0.1]]), torch.tensor([[1], [1], [0], [0]])
    >>> thresholds = dual_thresholds(p, y)
    >>> round(thresholds.tau_pos.item(), 2), round(thresholds.tau_neg.item(), 2)
    (0.8, 0.2)
    """
    assert p.shape == y.shape and p.ndim == 2 and rule in ("midrange", "none"), (p.shape, y.shape, rule)
    check_labels(y)
    p, positive, negative = p.double(), y > 0, y == 0
    n_pos, n_neg = positive.sum(0), negative.sum(0)  # (C,)
    no_pos, no_neg = n_pos == 0, n_neg == 0
    all_classes = torch.ones_like(no_pos)
    if rule == "none":  # no class needs a guard: weights alone decide what an entry contributes
        half = torch.full(n_pos.shape, 0.5, dtype=torch.float64, device=p.device)
        return Thresholds(half, half, n_pos, n_neg, ~all_classes, all_classes)
    tau_pos, tau_neg = _midrange(p, positive), _midrange(p, negative)
    crossed = tau_neg > tau_pos
    tau_pos, tau_neg = torch.where(crossed, tau_neg, tau_pos), torch.where(crossed, tau_pos, tau_neg)
    return Thresholds(tau_pos.masked_fill(no_pos, 1), tau_neg.masked_fill(no_neg, 0), n_pos, n_neg, crossed, all_classes)


def _midrange(p: Tensor, chosen: Tensor) -> Tensor:
    """(max + min) / 2 of each column's chosen entries, (C,); NaN for a column without chosen entries."""
    highest = torch.where(chosen, p, -torch.inf).amax(0)
    lowest = torch.where(chosen, p, torch.inf).amin(0)
    return (highest + lowest) / 2


def hard_labels(p: Tensor, thresholds: Thresholds, *, rule: str = "midrange") -> Tensor:
    """1 if p > tau_pos, 0 if p < tau_neg, else -1: the closed band is uncertain (docs/methods.md 3.6, Equation (9), 3.13-B4).

    With `rule="none"`: 1[p >= 0.5].

    Returns:
        (N, C) int8.
    """
    if rule == "none":
        return (p >= 0.5).to(torch.int8)
    p = p.double()
    label = torch.where(p > thresholds.tau_pos, 1, torch.where(p < thresholds.tau_neg, 0, -1))
    return label.to(torch.int8)
