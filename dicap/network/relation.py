"""DRML's head: projector, two classifiers and a relation network on pooled features (docs/methods.md 4.5)."""

import torch
from torch import Tensor, nn

from dicap.network import Network


class RelationHead(nn.Module):
    """Projector P, classifiers C1 and C2, relation network R, and the linear classifier that the warm-up trains.

    Args:
        channels: D of the pooled features; classes: C.
    """

    relational: Tensor

    def __init__(self, channels: int, classes: int, *, width: int = 1024, hidden: int = 800, relation: int = 1000) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, classes)
        self.projector = nn.Sequential(nn.Linear(channels, width), nn.LeakyReLU(0.1), nn.Linear(width, width))
        self.c1, self.c2 = (nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, classes)) for _ in range(2))
        self.relation = nn.Sequential(nn.Linear(classes * classes, relation), nn.ReLU(), nn.Linear(relation, classes))
        self.register_buffer("relational", torch.zeros((), dtype=torch.bool))  # false until the main stage begins

    def classify(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Pooled features (B, D) -> sigmoid outputs of C1 and C2, (B, C) float32 each."""
        h = self.projector(x)
        return torch.sigmoid(self.c1(h).float()), torch.sigmoid(self.c2(h).float())

    def relate(self, f1: Tensor, f2: Tensor) -> Tensor:
        """Logits of R on the outer product f1 f2^T: (B, C), (B, C) -> (B, C) float32."""
        return self.relation((f1.unsqueeze(2) * f2.unsqueeze(1)).flatten(1)).float()

    def logits(self, x: Tensor) -> Tensor:
        """Pooled features (B, D) -> logits (B, C): of R, or before the main stage of the linear classifier."""
        return torch.where(self.relational, self.relate(*self.classify(x)), self.linear(x).float())

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Feature map (B, D, h, w) -> logits (B, C), embeddings of the linear classifier (B, C, D)."""
        pooled = features.mean((2, 3))
        return self.logits(pooled), pooled.unsqueeze(1) * self.linear.weight


class RelationNetwork(Network):
    """Backbone and `RelationHead`."""

    head: RelationHead

    def pooled(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) uint8 -> pooled features (B, D)."""
        return self.features(images).mean((2, 3))
