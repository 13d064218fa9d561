"""The scaling of features for a linear head, on arrays. `dicap.network.linear.Scaling` is the same scaling in a network."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

CONSTANT = 1e-6  # a feature with a smaller ratio of deviation to mean counts as constant
NEVER = float(np.finfo(np.float32).max)  # the divisor of a constant feature

Kind = Literal["plain", "standard", "root"]


class Scaling(NamedTuple):
    """(x - mean) / scale with float64 (D,) arrays; kind `root` scales signed roots, and then each row to one length."""

    kind: Kind
    mean: NDArray
    scale: NDArray

    def apply(self, x: NDArray) -> NDArray:
        """Rows (n, D) -> (n, D) float32; with kind `root` each row has length sqrt(D)."""
        rows = ((_root(x, self.kind) - self.mean) / self.scale).astype(np.float32)
        if self.kind == "root":
            rows *= np.sqrt(rows.shape[1]) / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return rows


def scaling_of(x: NDArray, kind: Kind) -> Scaling:
    """The scaling fitted on rows (n, D), labelled or not.

    A feature counts as constant if it varies by less than CONSTANT, the rounding error of single precision. (If a feature really
    varies so little around a large offset, centre it.) A constant feature is divided by NEVER, so that it is 0 on all later
    rows: nothing was learnt about it, and in rows of one length it would shrink the other features.
    """
    if kind == "plain":
        return Scaling(kind, np.zeros(x.shape[1]), np.ones(x.shape[1]))
    rows = _root(x, kind)
    mean, deviation = rows.mean(0, dtype=np.float64), rows.std(0, dtype=np.float64)
    return Scaling(kind, mean, np.where(deviation > CONSTANT * np.abs(mean), deviation, NEVER))


def _root(x: NDArray, kind: Kind) -> NDArray:
    """Signed square roots for kind `root`, else x."""
    return np.copysign(np.sqrt(np.abs(x)), x) if kind == "root" else x
