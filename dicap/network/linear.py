"""The linear head: global average pooling and one weight vector per class (docs/methods.md 2.5)."""

from typing import Literal

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dicap.network import scaling
from dicap.network.scaling import Kind, scaling_of

SMALLEST = 1e-8  # below the least half above 0, so that no feature of a bank changes; the root's gradient at 0 is infinite


class Scaling(nn.Module):
    """Pooled features as the head sees them: plain, standardised, or standardised signed roots of one length.

    Mean and deviation are those of the training images (`fit_scaling`), and part of a saved model, as is the choice with `auto`.
    """

    kind: Kind | Literal["auto"]
    mean: Tensor
    scale: Tensor
    rooted: Tensor

    def __init__(self, channels: int, kind: Kind | Literal["auto"]) -> None:
        super().__init__()
        self.kind = kind
        if kind != "plain":
            self.register_buffer("mean", torch.zeros(channels))
            self.register_buffer("scale", torch.ones(channels))
        if kind == "auto":
            self.register_buffer("rooted", torch.tensor(True))

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, D)."""
        if self.kind == "plain":
            return x
        standard = (x - self.mean) / self.scale
        if self.kind == "standard":
            return standard
        x = (signed_root(x) - self.mean) / self.scale
        x = x * (x.shape[1] ** 0.5 / x.norm(dim=1, keepdim=True).clamp_min(1e-12))
        return torch.where(self.rooted, x, standard) if self.kind == "auto" else x  # no branch: an exported network has both


def signed_root(x: Tensor) -> Tensor:
    """Signed square roots; the gradient at 0 is 0."""
    return x.sign() * x.abs().clamp_min(SMALLEST).sqrt()


def fit_scaling(network: nn.Module, x: NDArray) -> None:
    """Scale as every `Scaling` in the network says, by pooled features (n, D) of training images; `auto` by roots. In place."""
    for module in network.modules():
        if isinstance(module, Scaling) and module.kind != "plain":
            set_scaling(module, scaling_of(x, "root" if module.kind == "auto" else module.kind))


def set_scaling(module: Scaling, chosen: scaling.Scaling) -> None:
    """Scale as the arrays' scaling does, of the module's own kind, or of whichever kind where that is `auto`; in place."""
    module.mean.copy_(torch.from_numpy(chosen.mean))
    module.scale.copy_(torch.from_numpy(chosen.scale))
    if module.kind == "auto":
        module.rooted.fill_(chosen.kind == "root")


class LinearHead(nn.Module):
    """Head from a feature map to logits and class-wise embeddings.

    A linear head has no embedding per class of its own. Here z[c] is the pooled feature times the class's weights,
    element by element, so that its sum (plus bias) is the logit (docs/methods.md 5.3).
    """

    def __init__(self, channels: int, classes: int, scaling: Kind | Literal["auto"] = "plain") -> None:
        super().__init__()
        self.scaling = Scaling(channels, scaling)
        self.linear = nn.Linear(channels, classes)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Features (B, D, H, W) -> logits (B, C), embeddings z (B, C, D)."""
        pooled = self.scaling(features.mean((2, 3)))  # (B, D)
        return self.linear(pooled), pooled.unsqueeze(1) * self.linear.weight  # (B, C), (B, C, D)
