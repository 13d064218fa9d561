"""Features as a linear head sees them, on arrays: what `dicap.network.linear.Scaling` is for a network."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

CONSTANT = 1e-6  # deviation of a feature over its mean below which it counts as constant
NEVER = float(np.finfo(np.float32).max)  # deviation of a constant feature

Kind = Literal["plain", "standard", "root"]


class Scaling(NamedTuple):
    """Rows are shifted by `mean` and divided by `scale`, float64 (D,); with kind `root` their signed roots are, to one length."""

    kind: Kind
    mean: NDArray
    scale: NDArray

    def apply(self, x: NDArray) -> NDArray:
        """Rows (n, D) -> (n, D) float32; of kind `root` each of length sqrt(D)."""
        rows = ((_root(x, self.kind) - self.mean) / self.scale).astype(np.float32)
        if self.kind == "root":
            rows *= np.sqrt(rows.shape[1]) / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return rows


def scaling_of(x: NDArray, kind: Kind) -> Scaling:
    """Mean and deviation of rows (n, D), labelled or not.

    A feature counts as constant below CONSTANT, the rounding of single precision, in which most features were computed; centre
    one that varies so little around a large offset. It is divided by NEVER, so that it is 0 on whatever rows come later: nothing
    was learnt of it, and in rows of one length it would leave the others less.
    """
    if kind == "plain":
        return Scaling(kind, np.zeros(x.shape[1]), np.ones(x.shape[1]))
    rows = _root(x, kind)
    mean, deviation = rows.mean(0, dtype=np.float64), rows.std(0, dtype=np.float64)
    return Scaling(kind, mean, np.where(deviation > CONSTANT * np.abs(mean), deviation, NEVER))


def _root(x: NDArray, kind: Kind) -> NDArray:
    """Signed square roots, where the kind is `root`."""
    return np.copysign(np.sqrt(np.abs(x)), x) if kind == "root" else x
