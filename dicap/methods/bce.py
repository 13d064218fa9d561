"""BCE: labelled-only training with binary cross-entropy (docs/methods.md 4.1). The warm-up is the result."""

from torch import Tensor

from dicap.losses import binary_cross_entropy
from dicap.methods.base import Method


class BCE(Method):
    """CAP's warm-up recipe with another loss."""

    def supervised(self, logits: Tensor, y: Tensor) -> Tensor:
        """Element loss -y log p - (1 - y) log(1 - p), (B, C)."""
        return binary_cross_entropy(logits, y)
