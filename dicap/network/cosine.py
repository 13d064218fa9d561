"""BBAM's head: cosines between a feature and the class weights, balanced by angle statistics (docs/methods.md 4.8)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Cosines are clamped to +-(1 - CLAMP) before the arccos, because rounding can exceed 1. The published code does not do this.
CLAMP = 1e-6


class CosineHead(nn.Module):
    """Head from a feature map to balanced cosines.

    The angle statistics are buffers, part of the model, because its scores depend on them. A variance of 0 means that a class has
    no statistics (yet); then `transform` is the identity.

    Args:
        channels: D_in of the feature map; classes: C.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, channels: int, classes: int, *, hidden: int = 512, dim: int = 256) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(channels, hidden), nn.GELU(), nn.Linear(hidden, dim))
        self.weight = nn.Parameter(torch.empty(classes, dim).uniform_(-1 / 16, 1 / 16))
        self.register_buffer("mean", torch.zeros(2, classes))  # row 0: angles of negatives, row 1: angles of positives
        self.register_buffer("variance", torch.zeros(2, classes))

    def hidden(self, features: Tensor) -> Tensor:
        """Feature map (B, D_in, H, W) -> h (B, D) float32, not normalised."""
        return self.mlp(features.mean((2, 3))).float()

    def embed(self, features: Tensor) -> Tensor:
        """Feature map (B, D_in, H, W) -> unit vectors h / |h| (B, D), float32."""
        return F.normalize(self.hidden(features), dim=1)

    def cosines(self, features: Tensor) -> Tensor:
        """Feature map (B, D_in, H, W) -> cosines with the class weights (B, C), float32."""
        h = self.embed(features)
        with torch.autocast(h.device.type, enabled=False):  # bfloat16's 8 bits of mantissa cannot represent angles near 0
            return h @ F.normalize(self.weight.float(), dim=1).T

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Feature map (B, D_in, H, W) -> balanced cosines (B, C), the test-time logits; embeddings h * W_c (B, C, D)."""
        z = self.embed(features).unsqueeze(1) * F.normalize(self.weight.float(), dim=1)  # (B, C, D)
        return balance(z.sum(2), self.mean, self.variance), z


def transform(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """The angle map theta' = a theta + b of each label value v: a_v = sqrt(var_mean / var_v), b_v = (1 - a_v) mu_v.

    Args:
        mean, variance: (2, C) statistics of the angles of negatives (row 0) and positives (row 1).

    Returns:
        a, b (2, C); the identity for a class with a variance of 0 (unknown).
    """
    defined = (variance > 0).all(0)
    a = (variance.mean(0) / variance.clamp_min(torch.finfo(variance.dtype).tiny)).sqrt()
    a = torch.where(defined, a, torch.ones_like(a))
    return a, (1 - a) * mean


def balance(cosine: Tensor, mean: Tensor, variance: Tensor, value: Tensor | None = None) -> Tensor:
    """cos(a theta + b), theta = arccos(cosine), (B, C) (Equation (25)). `value`: (B, C) labels; None: the mean of both maps."""
    theta = torch.arccos(cosine.float().clamp(-1 + CLAMP, 1 - CLAMP))
    a, b = transform(mean, variance)
    if value is None:
        return torch.cos(a.mean(0) * theta + b.mean(0))
    positive = value > 0
    return torch.cos(torch.where(positive, a[1], a[0]) * theta + torch.where(positive, b[1], b[0]))
