"""Roots or standardised features: roots, unless the labelled rows clearly gain from the other, out of fold.

Signed roots suit features of one sign that are mostly small, as a network's are; of others they may push apart what is alike.
Where the labelled rows scatter otherwise than all rows, the unlabelled ones are of another kind, or a few of them are far out.
Then the labelled rows alone say how roots are scaled; where they do so in some features only, if the loss is lower.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dicap.frozen.choice import CLEAR, calibrated_losses, evidence
from dicap.frozen.loss_weight import logits_out_of_fold, search
from dicap.network.scaling import NEVER, Scaling, scaling_of

# Ratio of variances, mean over the features: of twenty rows of eight sets to all it is 0.58 to 1.38. Below 1 / UNLIKE**2 are by
# chance the ratios of fewer features than one in n_l.
UNLIKE = 3.0


def choose_scaling(
    x: NDArray, own: NDArray, y: NDArray, fold: NDArray, *, loss_weight: float | Literal["auto"] = "auto"
) -> tuple[Scaling, float, str]:
    """`standard`, where the loss of the labelled rows' own heads is CLEAR below that on `root`; else `root`, of all rows or
    of the labelled ones alone.

    Args:
        x: (n, D) rows, labelled or not, that the scaling learns from; own: (n_l, D) labelled ones; y: (n_l, C) labels, below 0
            or NaN where unknown; fold: (n_l,).
        loss_weight: as of `dicap.frozen.solver.solve`; auto: chosen on each scaling.

    Returns:
        The scaling, the weight of the loss on it, and in words what was found.
    """
    n, roots, alone = len(own), scaling_of(x, "root"), scaling_of(own, "root")
    ratio = np.where(alone.scale < NEVER, alone.scale / roots.scale, 0)[roots.scale < NEVER] ** 2 * n / (n - 1)
    unlike = not 1 / UNLIKE < ratio.sum() / max(len(ratio), 1) < UNLIKE  # of a rare word it is often 0
    squeezed = np.count_nonzero((ratio > 0) & (ratio < 1 / UNLIKE**2)) * n > len(ratio)
    of_roots, found = [roots], []
    if (unlike or squeezed) and np.isfinite(alone.apply(x)).all():
        of_roots = [alone] if unlike else [roots, alone]
    scalings = [scaling_of(x, "standard"), *of_roots]
    for rows in (scaling.apply(own) for scaling in scalings):
        auto = loss_weight == "auto"
        weight, logits = search(rows, y, fold) if auto else (loss_weight, logits_out_of_fold(rows, y, fold, [loss_weight])[0])
        found.append((calibrated_losses(logits, y), float(weight)))
    means = [losses.sum() / np.count_nonzero(y >= 0) for losses, _ in found]
    best = 1 + int(np.argmin(means[1:]))
    errors = evidence(found[best][0], found[0][0])
    chosen = 0 if errors <= -CLEAR else best
    which = "roots, scaled by the labelled rows alone" if scalings[best] is alone else "roots"
    words = f"log loss {means[best]:.4f} of {which}, {means[0]:.4f} standardised ({errors:+.1f} standard errors) out of fold"
    return scalings[chosen], found[chosen][1], f"{'roots' if chosen else 'standardised'}: {words}"
