"""Top-1: per image the highest class is positive, all others negative (docs/methods.md 4.4)."""

from torch import Tensor

from dicap.methods.topk import Topk


class Top1(Topk):
    """CAP's two stages with the rule of single-label learning."""

    def k(self, y: Tensor) -> int:
        """One positive an image."""
        return 1
