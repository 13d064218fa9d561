"""Smoothing: a score and the mean score of the nearest unlabelled rows, as far as the labelled rows gain from it out of fold.

    z' = (1 - share) z + share * sum_j w_j z_j / sum_j w_j,    w_j = max(cosine of the row and row j, 0)**3

over the K nearest unlabelled rows j, and all as near as the last of them, but not the row itself: one step of what Correct and
Smooth does along a graph (Huang et al., ICLR 2021). The student has learnt what a linear head can keep of a row's neighbours;
this is what it cannot. A row's neighbours are scored by the head of its own fold, so no label of that fold enters. Labelled rows
are no neighbours: heads have learnt their labels, so that of several frames of one scene, dealt to different folds, each would be
told its own by the others. Unlabelled frames of its scene vouch for a labelled row too, and a new scene has none. So the share is
measured twice, and the second time without what may be of its scene, in one or two frames of which there are labels: unlabelled
rows nearer to it, or to the labelled row nearest to it, than to any other labelled row. A model that smooths keeps the unlabelled
rows of its fit.

Letters: n unlabelled rows of the fit, D features, r principal components, C classes; m rows that are scored.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dicap.frozen.choice import Choice, choose
from dicap.frozen.folds import out_of_fold_scores
from dicap.frozen.neighbours import BLOCK, COMPONENTS, POWER, by_all_pairs
from dicap.frozen.solver import PrincipalAxes, Solution

SHARES = (0.5, 0.25)  # of the neighbours' mean; a larger one wins nowhere (docs/photographs.md)
# Cosine from which a row is the row itself or a copy, whose score says nothing new: features in half precision are nearer to
# what they were than this; those of a photograph that was compressed anew are not. Not round: cosines of counts are, and
# rounding would part equal ones.
SAME = 0.99907
# Standard errors by which the loss has to fall with the nearest neighbours, and with those of other scenes: at all.
NEAR, FAR = 0.5, 1e-6
TIE = 1e-6  # of cosines that rounding parts, which is no reason to prefer one
OWN = 1e-9  # weight of the row itself in the mean: without a neighbour its score stays
SHORT = 1e-30  # length below which a row is 0


class Smoothing(NamedTuple):
    """The unlabelled rows of a fit, among which the nearest of any row are found, and their scores."""

    axes: NDArray  # (D, r) float32, on which neighbours are looked for
    unit: NDArray  # (n, r) float32: the rows' components, of length one
    logits: NDArray  # (n, C) float32 of the rows
    share: float  # of the neighbours' mean
    k: int  # neighbours

    def __call__(
        self, x: NDArray, own: NDArray, values: NDArray | None = None, scenes: tuple[NDArray, NDArray] | None = None
    ) -> NDArray:
        """Values `own` (m, V) of rows x (m, D), smoothed by the values (n, V) of the fit's rows, by default their logits.

        Smoothed by the rows themselves, a row has the smoothed score of every linear head.

        Args:
            scenes: (n,) the scene of each of the fit's rows, and (m, 2) scenes whose rows are no neighbours of a row.
        """
        values = self.logits if values is None else values
        out = [self._block(slice(i, i + BLOCK), x, own, values, scenes) for i in range(0, len(x), BLOCK)]
        return np.concatenate(out) if out else own

    def _block(self, some: slice, x: NDArray, own: NDArray, values: NDArray, scenes: tuple[NDArray, NDArray] | None) -> NDArray:
        own = own[some]
        cosine = _unit(x[some] @ self.axes) @ self.unit.T  # (b, n)
        cosine[cosine > SAME] = 0
        if scenes is not None:
            for scene in scenes[1][some].T:
                cosine[scenes[0] == scene[:, None]] = 0
        last = np.partition(cosine, -self.k, axis=1)[:, -self.k, None]
        near = (cosine >= last - TIE) & (cosine > 0)
        weight = csr_array((cosine[near] ** POWER, near.nonzero()), cosine.shape)  # (b, n)
        mean = (weight @ values + OWN * own) / (weight.sum(1)[:, None] + OWN)
        return (1 - self.share) * own + self.share * mean


def choose_smoothing(
    heads: Solution, near: PrincipalAxes, x: NDArray, y: NDArray, fold: NDArray, k: int
) -> tuple[Smoothing, Choice]:
    """The smoothing of the last head's scores, of the smaller of the shares that `choose` takes by the nearest rows and by those
    of other scenes; 0: none.

    Args:
        heads: K heads each without a fold, and one of all folds; near: all rows x (N, D), labelled ones first, on the axes on
            which neighbours are looked for.
        y: (n_l, C); fold: (n_l,); k: neighbours.
    """
    labelled, others = x[: len(y)], x[len(y) :]
    axes = np.array(near.axes[:, ::-1][:, :COMPONENTS], np.float32, order="C")
    found = Smoothing(axes, _unit(others @ axes), heads.logits(others)[-1], 1.0, min(k, len(others)))
    each = (
        labelled,
        found(labelled, labelled, others),
        found(labelled, labelled, others, _scenes(found.unit, _unit(labelled @ axes))),
    )
    before, nearest, far = (out_of_fold_scores(heads.logits(rows), fold) for rows in each)
    choice, second = choose(SHARES, before, nearest, y, NEAR), choose(SHARES, before, far, y, FAR)
    # The losses that are told are of the nearest, by which scores are smoothed; of the others where they alone forbid it.
    choice = second if choice.share and not second.share else choice._replace(share=min(choice.share, second.share))
    return found._replace(share=choice.share), choice


def _scenes(unit: NDArray, labelled: NDArray) -> tuple[NDArray, NDArray]:
    """Of rows (n, r) of length one the nearest labelled row (m, r), (n,); of labelled rows itself and the nearest, (m, 2)."""
    nearest = [(unit[i : i + BLOCK] @ labelled.T).argmax(1) for i in range(0, len(unit), BLOCK)]
    return np.concatenate(nearest), np.c_[np.arange(len(labelled)), by_all_pairs(labelled, 1)[0]]


def _unit(x: NDArray) -> NDArray:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), SHORT)
