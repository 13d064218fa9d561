"""What the answers of a published model follow from: its thresholds, and scores and labels that it had not learnt."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Evidence:
    """The evidence of one network, of n labelled images and C classes.

    From it `dicap.evaluation.answers` derives the answer for an image, and the chance that the answer is right.

    Attributes:
        tau_pos, tau_neg: (C,) float64, thresholds by the method's own rule: yes above the first, no below the second. 0.5 where
            the method has no thresholds; 1 and 0 for a class that the method leaves out.
        prior: (C,) float64, share of positives among the labelled images; NaN where it is not known.
        note: the images of `p` and `y` in words, or why the evidence is empty.
        p: (n, C) float32, scores of labelled images, by networks that had not learnt their labels; n may be 0.
        y: (n, C) int8, their labels: 1, 0, or -1 for unknown.
        at_rank: (n, C) float32, `p` in scores of the published network, where networks without a fold gave `p`; else None.
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
        """Whether all arrays are of so many classes, and those of images of one number of them."""
        tables = [self.p, self.y] + ([] if self.at_rank is None else [self.at_rank])
        rows = (self.tau_pos, self.tau_neg, self.prior)
        return {row.shape for row in rows} == {(classes,)} and {table.shape for table in tables} == {(len(self.y), classes)}

    @property
    def entries(self) -> int:
        """Entries (image, class) with a known label."""
        return int((self.y >= 0).sum())

    @property
    def measured(self) -> int | None:
        """Known entries that a chance is counted on, per class; None without any: then no chance is stated."""
        return self.entries // len(self.prior) if self.entries else None


def labels_of(y: NDArray) -> NDArray:
    """Labels as evidence has them, int8: -1 for whatever stands at an unknown entry, a number below 0."""
    return np.where(y < 0, -1, y).astype(np.int8)
