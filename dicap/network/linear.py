"""The linear head: global average pooling and one weight vector per class (docs/methods.md 2.5)."""

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dicap.scaling import Kind, scaling_of

SMALLEST = 1e-8  # keeps the root's gradient finite at 0; smaller than any float16 above 0, so features of a bank do not change


class Scaling(nn.Module):
    """Scales pooled features for the head: plain, standardised, or standardised signed roots normalised to one length.

    Mean and standard deviation are fitted on the training images (`fit_scaling`) and are part of a saved model.
    """

    kind: Kind
    mean: Tensor
    scale: Tensor

    def __init__(self, channels: int, kind: Kind) -> None:
        super().__init__()
        self.kind = kind
        if kind != "plain":
            self.register_buffer("mean", torch.zeros(channels))
            self.register_buffer("scale", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, D)."""
        if self.kind == "plain":
            return x
        if self.kind == "standard":
            return (x - self.mean) / self.scale
        x = (signed_root(x) - self.mean) / self.scale
        return x * (x.shape[1] ** 0.5 / x.norm(dim=1, keepdim=True).clamp_min(1e-12))


def signed_root(x: Tensor) -> Tensor:
    """Signed square roots; the gradient at 0 is 0."""
    return x.sign() * x.abs().clamp_min(SMALLEST).sqrt()


def fit_scaling(network: nn.Module, x: NDArray) -> None:
    """Fit every `Scaling` in the network on pooled features (n, D) of training images, in place."""
    for module in network.modules():
        if isinstance(module, Scaling) and module.kind != "plain":
            fitted = scaling_of(x, module.kind)
            module.mean.copy_(torch.from_numpy(fitted.mean))
            module.scale.copy_(torch.from_numpy(fitted.scale))


class LinearHead(nn.Module):
    """Head from a feature map to logits and class-wise embeddings.

    A linear head has no class-wise embedding. Here z[c] is the element-wise product of the pooled feature and the class's
    weights; the sum of z[c] plus the bias is the logit (docs/methods.md 5.3).
    """

    def __init__(self, channels: int, classes: int, scaling: Kind = "plain") -> None:
        super().__init__()
        self.scaling = Scaling(channels, scaling)
        self.linear = nn.Linear(channels, classes)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, D, H, W) -> logits (B, C), embeddings z (B, C, D)."""
        pooled = self.scaling(features.mean((2, 3)))  # (B, D)
        return self.linear(pooled), pooled.unsqueeze(1) * self.linear.weight  # (B, C), (B, C, D)
