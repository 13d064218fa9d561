"""The data behind a published model's answers: its thresholds, and held-out scores with their labels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Evidence:
    """The evidence of one network: n labelled images, C classes.

    `dicap.evaluation.answers` derives from it the answer for an image, and the chance that the answer is right.

    Attributes:
        tau_pos, tau_neg: (C,) float64, thresholds by the method's own rule: yes above tau_pos, no below tau_neg. 0.5 if the
            method has no thresholds; 1 and 0 for a class that the method leaves out.
        prior: (C,) float64, share of positives among the labelled images; NaN if unknown.
        note: says which images `p` and `y` belong to, or why the evidence is empty.
        p: (n, C) float32, scores of labelled images, by networks that were not trained on their labels; n may be 0.
        y: (n, C) int8, their labels: 1, 0, or -1 for unknown.
        at_rank: (n, C) float32, `p` mapped to the score scale of the published network if `p` is out-of-fold; else None.
    """

    tau_pos: NDArray
    tau_neg: NDArray
    prior: NDArray
    note: str
    p: NDArray
    y: NDArray
    at_rank: NDArray | None = None

    @staticmethod
    def of_scores(prior: NDArray, note: str, p: NDArray, y: NDArray) -> "Evidence":
        """Scores and labels, with thresholds of 0.5."""
        half = np.full(len(prior), 0.5)
        return Evidence(half, half.copy(), prior, note, p.astype(np.float32), labels_of(y))

    @staticmethod
    def none(prior: NDArray, note: str) -> "Evidence":
        """No scores, and thresholds of 0.5."""
        nothing = np.empty((0, len(prior)))
        return Evidence.of_scores(prior, note, nothing, nothing)

    def fits(self, classes: int) -> bool:
        """Whether all arrays have this number of classes, and all (n, C) arrays the same n."""
        tables = [self.p, self.y] + ([] if self.at_rank is None else [self.at_rank])
        rows = (self.tau_pos, self.tau_neg, self.prior)
        return {row.shape for row in rows} == {(classes,)} and {table.shape for table in tables} == {(len(self.y), classes)}

    @property
    def entries(self) -> int:
        """Entries (image, class) with a known label."""
        return int((self.y >= 0).sum())

    @property
    def measured(self) -> int | None:
        """Mean number of known entries per class that chances are estimated from; None without any: then no chance is stated."""
        return self.entries // len(self.prior) if self.entries else None


def labels_of(y: NDArray) -> NDArray:
    """Labels in the form that `Evidence` stores, int8: every number below 0 (unknown) becomes -1."""
    return np.where(y < 0, np.int8(-1), y.astype(np.int8))  # an int beside uint8 is an error in NumPy 2.5
