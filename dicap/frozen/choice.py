"""How much of a student to use: as much as the labelled rows, scored out of fold, clearly gain from; else none of it.

Unlabelled rows mislead where their clusters have nothing to do with the labels, or where they are of another kind or have other
shares of the classes. Safe semi-supervised learning asks for a head that is never clearly worse than the labelled rows' own (Li
and Zhou, TPAMI 2015). Each labelled row has a score by a head without its fold, as in cross-prediction (Zrnic and Candès, PNAS
2024); so the labelled rows can tell one student from none. They cannot choose among many: that follows the noise
(docs/photographs.md). The heads in between cost no solve, since a mixture of linear heads is one.

Letters: n_l labelled rows, C classes, K folds; y label: 1, 0, or unknown, which is any number below 0 or NaN.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dicap.calibration.ranks import logistic_curve
from dicap.frozen.folds import out_of_fold_scores
from dicap.frozen.solver import Solution

PART = 0.5  # weight of a pseudo-labelled entry in the student that is offered
SHARES = (1.0, 0.75, 0.5, 0.25)  # of the student in the heads that are tried, the largest first
CLEAR = 1.0  # standard errors by which the loss has to fall (docs/photographs.md)


class Choice(NamedTuple):
    """How much of the student was taken, and out of what."""

    share: float  # 0: none of it
    log_loss: tuple[float, ...]  # of a known entry, out of fold: without the student, then with each of SHARES
    evidence: tuple[float, ...]  # of each of SHARES: standard errors, below 0 where the loss fell

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        tried = zip((0.0, *SHARES), self.log_loss, (0.0, *self.evidence), strict=True)
        candidates = [{"share": share, "log_loss": loss, "evidence": errors} for share, loss, errors in tried]
        return {"share": self.share, "candidates": candidates}

    def in_words(self) -> str:
        """Whether the student helped, and by how much."""
        i = SHARES.index(self.share) if self.share else int(np.argmin(self.evidence))
        change = f"log loss {self.log_loss[0]:.4g} to {self.log_loss[1 + i]:.4g} ({self.evidence[i]:+.1f} standard errors)"
        if not self.share:
            return f"did not clearly help, so they were not used: {change} out of fold at best"
        return f"helped: {change} out of fold" + (f", {self.share:g} of what they change was taken" if self.share < 1 else "")


def safe_mixture(own: Solution, student: Solution, rows: NDArray, y: NDArray, fold: NDArray) -> tuple[Solution, Choice]:
    """The heads (1 - share) own + share student of the largest share of SHARES with which the loss is CLEAR below that of `own`
    out of fold; `own` where there is none.

    Args:
        own: K heads each without a fold, and one of all folds, on the labelled rows; student: the same on pseudo-labels too.
        rows: (n_l, D) labelled rows; y: (n_l, C); fold: (n_l,).
    """
    before, after = (out_of_fold_scores(heads.logits(rows), fold) for heads in (own, student))  # (n_l, C) each
    mixed = [(1 - share) * before + share * after for share in (0.0, *SHARES)]
    losses = [calibrated_losses(logits.astype(np.float64), y) for logits in mixed]
    errors = tuple(evidence(losses[0], some) for some in losses[1:])
    share = next((share for share, found in zip(SHARES, errors, strict=True) if found <= -CLEAR), 0.0)
    known = np.count_nonzero(y >= 0)
    choice = Choice(share, tuple(float(some.sum() / known) for some in losses), errors)
    if not share:
        return own, choice
    return student._replace(w=(1 - share) * own.w + share * student.w, b=(1 - share) * own.b + share * student.b), choice


def evidence(before: NDArray, after: NDArray) -> float:
    """Mean change of the losses (n_l,) of the same rows, in standard errors of that mean; below 0 where they fell."""
    change = after - before
    error = change.std(ddof=1) / np.sqrt(len(change))
    return float(change.mean() / error) if error > 0 else 0.0


def calibrated_losses(z: NDArray, y: NDArray) -> NDArray:
    """Log loss (n_l,) of each row's known entries: of logits (n_l, C) after one slope and one bias for all of them.

    Heads state their chances too high or too low, each in its own way; it is the order of the scores that is compared.
    """
    known, losses = np.asarray(y >= 0), np.zeros(y.shape)
    p = np.clip(logistic_curve(z[known], y[known] > 0), 1e-12, 1 - 1e-12)
    losses[known] = -np.where(y[known] > 0, np.log(p), np.log1p(-p))
    return losses.sum(1)
