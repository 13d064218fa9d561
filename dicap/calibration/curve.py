"""One curve for every way of learning how often a confidence is right: P(y = 1 | p), and the one that a published model carries.

Letters: N images, C classes, G knots; p confidence in [0, 1]; y label, 1 or 0.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dicap.calibration import ranks


class Curve(NamedTuple):
    """P(y = 1 | p), however it was learnt: rates at knots, linear between them and flat beyond the first and the last."""

    knots: Tensor  # (G,) float64, ascending: confidences, or their log-odds
    rate: Tensor  # (G,) float64 for all classes, or (C, G) for each
    log_odds: bool = False  # what the knots are, and what the rate is linear in

    def at(self, p: Tensor) -> Tensor:
        """The rate at confidences (N, C); float64 (N, C).

        Between the knots x[k] <= p < x[k+1], as the paper writes it (docs/methods.md 3.4, Equation (7)):
        r(p) = ((x[k+1] - p) r[k] + (p - x[k]) r[k+1]) / (x[k+1] - x[k]).
        """
        p = log_odds(p) if self.log_odds else p.double()
        # G + 1 intervals: the first and the last are endless, so nothing there is ever nearer to their other end.
        x = torch.cat([self.knots[:1], self.knots])  # (G + 1,) where each begins
        width = torch.nn.functional.pad(self.knots.diff(), (1, 1), value=torch.inf)  # (G + 1,)
        rate = torch.cat([self.rate[..., :1], self.rate, self.rate[..., -1:]], -1)  # (..., G + 2) at their ends
        k = torch.searchsorted(self.knots, p.contiguous(), right=True)  # the interval of each confidence, (N, C)
        share = (p - x[k]).div_(width[k])  # in [0, 1]
        if rate.ndim == 1:
            left, right = rate[k], rate[k + 1]
        else:  # entry (i, c) looks into its class's row
            c = torch.arange(len(rate), device=p.device)
            left, right = rate[c, k], rate[c, k + 1]
        return (1 - share) * left + share * right

    def to(self, device: torch.device | str) -> "Curve":
        """The same curve on a device."""
        return self._replace(knots=self.knots.to(device), rate=self.rate.to(device))


def log_odds(p: Tensor) -> Tensor:
    """log(p / (1 - p)) in float64, finite at 0 and 1: `dicap.calibration.ranks.log_odds` where p is."""
    p = p.double().clamp(ranks.FINEST, 1 - ranks.FINEST)
    return p.log() - torch.log1p(-p)


def curve_of(knots: np.ndarray, rate: np.ndarray, log_odds: bool = False) -> Curve:
    """A curve from arrays (G,) and (G,) or (C, G)."""
    return Curve(torch.from_numpy(np.ascontiguousarray(knots)), torch.from_numpy(np.ascontiguousarray(rate)), log_odds)


def curve_by_rank(p: Tensor, y: Tensor) -> Curve:
    """P(y = 1 | p) of groups by rank, what a published model carries (`dicap.calibration.ranks.curve_by_rank`).

    Args:
        p, y: (N, C) confidences and labels, of images that the network was not trained on; entries with y below 0 are left out.
    """
    assert p.shape == y.shape and p.numel(), (p.shape, y.shape)
    knots, rate = ranks.curve_by_rank(p.double().cpu().numpy(), y.cpu().numpy())
    return curve_of(knots, rate, log_odds=True).to(p.device)


def carry_over(curve: Curve, before: Tensor, after: Tensor) -> Curve:
    """The curve of a network that was trained on after its curve was measured, on the very images that measured it.

    Counting on those images again would find them too often right. Other images, whose labels nobody knows, say how the new
    confidences relate to the old ones: the rate at a new confidence is the mean rate of the old confidences there.

    Args:
        curve: of the network before.
        before, after: (N, C) confidences of the two networks on images that neither was trained on with labels.
    """
    assert before.shape == after.shape and before.numel(), (before.shape, after.shape)
    x, rate = ranks.log_odds(after.cpu().numpy().ravel()), curve.at(before).cpu().numpy().ravel()
    groups = ranks.by_rank(x)
    knots, rates = ranks.isotonic_knots([x[group].mean() for group in groups], [rate[group].mean() for group in groups], groups)
    return curve_of(knots, rates, log_odds=True).to(after.device)


def log_loss(r: Tensor, y: Tensor) -> float:
    """Mean of -log P(y) over entries for rates r (N, C) of y = 1; see `log_losses`."""
    return float(log_losses(r, y).mean())


def log_losses(r: Tensor, y: Tensor, floor: float = 1e-4) -> Tensor:
    """-log P(y) of each known entry, (n,) float64, for rates r (N, C) of y = 1, which are kept `floor` away from 0 and 1."""
    if y.is_signed():  # some may be unknown
        r, y = r[y >= 0], y[y >= 0]
    r = r.double().clamp(floor, 1 - floor)
    return -torch.where(y > 0, r, 1 - r).log().flatten()
