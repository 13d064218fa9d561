"""The linear head: global average pooling and one weight vector per class (docs/methods.md 2.5)."""

from torch import Tensor, nn


class LinearHead(nn.Module):
    """Head from a feature map to logits and class-wise embeddings.

    A linear head has no embedding per class of its own. Here z[c] is the pooled feature times the class's weights,
    element by element, so that its sum (plus bias) is the logit (docs/methods.md 5.3).
    """

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(channels, classes)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, D, H, W) -> logits (B, C), embeddings z (B, C, D)."""
        pooled = features.mean((2, 3))  # (B, D)
        z = pooled.unsqueeze(1) * self.linear.weight  # (B, C, D)
        return self.linear(pooled), z
