"""Top-1: in each image the class with the highest score is positive, all other classes negative (docs/methods.md 4.4)."""

from torch import Tensor

from dicap.methods.topk import Topk


class Top1(Topk):
    """CAP's two stages with the rule of single-label learning."""

    def k(self, y: Tensor) -> int:
        """One positive per image."""
        return 1
