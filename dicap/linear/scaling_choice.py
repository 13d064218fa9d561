"""Roots or standardised features: roots, unless the labelled rows clearly gain from the other, out of fold.

Signed roots suit features of one sign that are mostly small, as a network's are; of others they may push apart what is alike.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dicap.linear.choice import CLEAR, calibrated_losses, evidence
from dicap.linear.loss_weight import logits_out_of_fold, search
from dicap.linear.scaling import Scaling, scaling_of


def choose_scaling(
    x: NDArray, own: NDArray, y: NDArray, fold: NDArray, *, loss_weight: float | Literal["auto"] = "auto"
) -> tuple[Scaling, float, str]:
    """`standard`, where the loss of the labelled rows' own heads is CLEAR below that on `root`; else `root`.

    Args:
        x: (n, D) rows, labelled or not, that the scaling learns from; own: (n_l, D) labelled ones; y: (n_l, C) labels, below 0
            or NaN where unknown; fold: (n_l,).
        loss_weight: as of `dicap.linear.solver.solve`; auto: chosen on each scaling.

    Returns:
        The scaling, the weight of the loss on it, and in words what was found.
    """
    scalings, weights, losses = (scaling_of(x, "root"), scaling_of(x, "standard")), [], []
    for scaling in scalings:
        rows = scaling.apply(own)
        if loss_weight == "auto":
            weight, logits = search(rows, y, fold)
        else:
            weight, (logits,) = float(loss_weight), logits_out_of_fold(rows, y, fold, [loss_weight])
        weights.append(weight)
        losses.append(calibrated_losses(logits, y))
    errors = evidence(*losses)
    chosen = int(errors <= -CLEAR)
    root, standard = (each.sum() / np.count_nonzero(y >= 0) for each in losses)
    words = f"log loss {root:.4f} of roots, {standard:.4f} standardised ({errors:+.1f} standard errors) out of fold"
    return scalings[chosen], weights[chosen], f"{('roots', 'standardised')[chosen]}: {words}"
