"""Smoothed scores in a network: what `dicap.frozen.smoothing` is on arrays."""

import torch
from torch import Tensor, nn

from dicap.frozen import smoothing
from dicap.frozen.neighbours import POWER
from dicap.frozen.smoothing import OWN, SAME, SHORT, TIE


class Smoothing(nn.Module):
    """A score and the mean score of the nearest of the unlabelled rows of its fit: the letters are those of the arrays."""

    axes: Tensor  # (D, r)
    unit: Tensor  # (n, r)
    logits: Tensor  # (n, C)
    share: Tensor  # ()
    k: Tensor  # ()

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)
        self._k = int(self.k)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """Scaled features (B, D), and their logits (B, C) -> smoothed logits (B, C)."""
        if torch.is_autocast_enabled(x.device.type):  # half precision tells no row from its neighbours
            with torch.autocast(x.device.type, enabled=False):
                return self(x.float(), z.float())
        x = x @ self.axes
        cosine = (x / x.norm(dim=1, keepdim=True).clamp_min(SHORT)) @ self.unit.T  # (B, n)
        cosine = cosine.masked_fill(cosine > SAME, 0)
        last = cosine.topk(self._k, dim=1).values[:, -1:]
        weight = cosine.clamp_min(0).pow(POWER) * (cosine >= last - TIE)  # (B, n)
        mean = (weight @ self.logits + OWN * z) / (weight.sum(1, keepdim=True) + OWN)
        return (1 - self.share) * z + self.share * mean


def to_tensors(found: smoothing.Smoothing) -> dict[str, Tensor]:
    """The buffers of a smoothing on arrays."""
    return {name: torch.as_tensor(value) for name, value in found._asdict().items()}


def from_tensors(tensors: dict[str, Tensor]) -> smoothing.Smoothing:
    """The smoothing on arrays of such buffers."""
    axes, unit, logits = (tensors[name].numpy() for name in ("axes", "unit", "logits"))
    return smoothing.Smoothing(axes, unit, logits, float(tensors["share"]), int(tensors["k"]))
