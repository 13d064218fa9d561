"""Roots or standardised features: roots, unless the labelled rows clearly gain from the other, out of fold.

Signed roots suit features of one sign that are mostly small, as those of a network are; around 0 they push apart what is alike.
Letters: n rows, n_l labelled rows, D features, C classes; y label: 1, 0, or unknown, which is any number below 0 or NaN.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dicap.linear.choice import calibrated_losses, evidence
from dicap.linear.folds import fold_weights, out_of_fold_scores
from dicap.linear.loss_weight import choose_loss_weight
from dicap.linear.scaling import Kind, Scaling, scaling_of
from dicap.linear.solver import solve

TRIED: tuple[Kind, Kind] = ("root", "standard")
CLEAR = 1.0  # standard errors by which the loss has to fall: at 0 scene and birds often lose 4 mAP (docs/photographs.md)


class ScalingChoice(NamedTuple):
    """What was chosen, and what it was chosen by."""

    scaling: Scaling
    loss_weight: float
    log_loss: tuple[float, ...]  # of a known entry, out of fold: of each of TRIED
    evidence: float  # standard errors, below 0 where the loss of the second is lower

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and the sentence."""
        return {"features": self.scaling.kind, "log_loss": self.log_loss, "evidence": self.evidence, "scaling": self.in_words()}

    def in_words(self) -> str:
        """What the head sees, and by how much that is better."""
        root, standard = self.log_loss
        seen = "roots" if self.scaling.kind == "root" else "standardised"
        losses = f"log loss {root:.4f} of roots, {standard:.4f} standardised"
        return f"{seen}: {losses} ({self.evidence:+.1f} standard errors) out of fold"


def choose_scaling(
    x: NDArray, own: NDArray, y: NDArray, fold: NDArray, *, loss_weight: float | Literal["auto"] = "auto"
) -> ScalingChoice:
    """`standard`, where the loss of the labelled rows' own heads is CLEAR below that on `root`; else `root`.

    Args:
        x: (n, D) rows, labelled or not, that the scaling learns from; own: (n_l, D) labelled ones; y: (n_l, C); fold: (n_l,).
        loss_weight: as of `dicap.linear.solver.solve`; auto: chosen on each scaling.
    """
    scalings, weights, losses = [scaling_of(x, kind) for kind in TRIED], [], []
    for scaling in scalings:
        rows = scaling.apply(own)
        weights.append(choose_loss_weight(rows, y, fold) if loss_weight == "auto" else loss_weight)
        heads = solve(rows, y, weight=fold_weights(fold) * (y >= 0), loss_weight=weights[-1])
        losses.append(calibrated_losses(out_of_fold_scores(heads.logits(rows), fold).astype(np.float64), y))
    errors, known = evidence(*losses), np.count_nonzero(y >= 0)
    chosen = int(errors <= -CLEAR)
    return ScalingChoice(scalings[chosen], weights[chosen], tuple(float(each.sum() / known) for each in losses), errors)
