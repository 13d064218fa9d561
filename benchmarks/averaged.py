"""Scores averaged with those of the nearest rows of the fit, as far as the labelled rows gain from it out of fold.

    z' = (1 - share) z + share * mean of z over the K nearest rows of the fit, weighted by cosine**3

The student learns what a linear head can keep of the neighbours; this is what it cannot. No head, teacher or pseudo-label
changes, and a row's neighbours are scored by its own fold's head, so no label of that fold enters. Not part of the product: a
model would have to keep the rows of its training set (docs/photographs.md). `benchmarks/sets.py` measures it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dicap.linear.choice import CLEAR, calibrated_losses, evidence
from dicap.linear.folds import out_of_fold_scores
from dicap.linear.neighbours import COMPONENTS, POWER, principal_components
from dicap.linear.solver import PrincipalAxes, Solution

SHARES = (0.5, 0.25)
NEAREST = 10  # as of the teacher; 5 are as good, 30 lose 0.1
SMALLEST = 1e-9  # weight of a neighbour at a right angle: without another it counts


class Neighbours(NamedTuple):
    """All rows of a fit, among which the k nearest of any row are found by cosine in principal components."""

    axes: NDArray  # (D, r) float32
    unit: NDArray  # (n, r) float32: the rows' components, of length one
    k: int

    @staticmethod
    def of(rows: PrincipalAxes, k: int = NEAREST) -> "Neighbours":
        """Of the rows of `dicap.linear.solver.rotate`."""
        unit = _unit(principal_components(rows))
        return Neighbours(rows.axes[:, ::-1][:, :COMPONENTS].astype(np.float32), unit, min(k, len(unit) - 1))

    def averaged(self, x: NDArray, rows: NDArray, share: float, own: NDArray | None = None) -> NDArray:
        """(1 - share) x + share mean of the neighbours' rows, (m, D): with it a linear head's scores are averaged with theirs.

        Args:
            x: (m, D); rows: (n, D) of the fit; own: (m,) which of these each is itself, where it is one.
        """
        cosine = _unit(x @ self.axes) @ self.unit.T  # (m, n)
        if own is not None:
            cosine[np.arange(len(x)), own] = -np.inf
        nearest = np.argpartition(-cosine, self.k - 1, axis=1)[:, : self.k]
        weight = np.maximum(np.take_along_axis(cosine, nearest, 1), 0) ** POWER + SMALLEST
        mean = np.einsum("mk,mkd->md", weight / weight.sum(1, keepdims=True), rows[nearest])
        return (1 - share) * x + share * mean


def choose_share(heads: Solution, near: Neighbours, rows: NDArray, y: NDArray, fold: NDArray) -> float:
    """The share of least loss out of fold, where that is CLEAR standard errors below that of no averaging; else 0.

    Args:
        heads: K heads each without a fold, and one of all folds; rows: (n, D), labelled ones first; y: (n_l, C); fold: (n_l,).
    """
    labelled = np.arange(len(y))
    both = rows[labelled], near.averaged(rows[labelled], rows, 1.0, labelled)
    scores, means = (out_of_fold_scores(heads.logits(each), fold).astype(np.float64) for each in both)
    plain, *others = (calibrated_losses((1 - share) * scores + share * means, y) for share in (0.0, *SHARES))
    best = int(np.argmin([losses.sum() for losses in others]))
    return SHARES[best] if evidence(plain, others[best]) <= -CLEAR else 0.0


def _unit(x: NDArray) -> NDArray:
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(length > 0, length, 1)
