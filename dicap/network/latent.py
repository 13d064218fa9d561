"""PCLP's encoder head: a Gaussian latent whose first C means are the label logits (docs/methods.md 4.7)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dicap.network import Network


class ResidualBlock(nn.Module):
    """x + MLP(x), with BatchNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width), nn.BatchNorm1d(width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, D)."""
        return F.relu(x + self.mlp(x))


class LatentHead(nn.Module):
    """Pooled features -> mean and log-variance of z.

    Args:
        channels: D_in of the feature map; classes: C; latent: length of z, at least C.
    """

    def __init__(self, channels: int, classes: int, latent: int, *, width: int = 1024) -> None:
        super().__init__()
        assert latent >= classes, (latent, classes)
        self.classes = classes
        self.mlp = nn.Sequential(nn.Linear(channels, width), nn.BatchNorm1d(width), nn.ReLU(), ResidualBlock(width))
        self.out = nn.Linear(width, 2 * latent)

    def gaussian(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Feature map (B, D_in, h, w) -> mean, log-variance of z, (B, L) float32 each."""
        mean, logvar = self.out(self.mlp(features.mean((2, 3)))).float().chunk(2, 1)
        return mean, logvar

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Feature map (B, D_in, h, w) -> label logits (B, C), embeddings (B, C, 1): the logits themselves."""
        logits = self.gaussian(features)[0][:, : self.classes]
        return logits, logits.unsqueeze(2)


class LatentNetwork(Network):
    """Backbone and `LatentHead`."""

    head: LatentHead

    def gaussian(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images (B, 3, H, W) uint8 -> mean, log-variance (B, L)."""
        return self.head.gaussian(self.features(images))


def sample(mean: Tensor, logvar: Tensor) -> Tensor:
    """z = mean + exp(logvar / 2) * epsilon, (B, L); epsilon is from torch's generator, which every step seeds."""
    return mean + torch.exp(0.5 * logvar) * torch.randn_like(mean)
