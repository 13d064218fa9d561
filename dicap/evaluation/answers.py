"""Turns a model's evidence into answers, and states the measured chance that each answer is right.

In training the paper's rates (`dicap.calibration.rates`) weight pseudo-labels. This module applies the idea to a finished model:
the share of positive labels as a function of the score, on held-out images.

Letters: N images, C classes; p confidence in [0, 1]; y label, 1 or 0.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dicap.calibration.counts import ENOUGH, Labelled
from dicap.calibration.evidence import Evidence
from dicap.calibration.ranks import Curve, curve_by_rank
from dicap.metrics.operating_point import best_threshold


@dataclass(frozen=True)
class Answers:
    """Answers of a model: yes, no or unsure.

    Attributes:
        evidence: the model's evidence.
        curve: P(y = 1 | p), estimated from the evidence; None if the evidence has no scores.

    >>> labels = np.array([[0], [0], [1], [1]] * 25)
    >>> scores = np.array([[0.2], [0.3], [0.3], [0.9]] * 25)
    >>> answers = Answers.of(Evidence.of_scores(labels.mean(0), "made up", scores, labels))
    >>> answer, chance = answers.decide(np.array([[0.1], [0.95]]))
    >>> answer.ravel().tolist(), chance.round(1).ravel().tolist()
    ([0, 1], [0.8, 0.9])
    """

    evidence: Evidence
    curve: Curve | None

    @staticmethod
    def of(evidence: Evidence) -> "Answers":
        """The answers that follow from a model's evidence."""
        return Answers(evidence, curve_by_rank(evidence.p, evidence.y) if evidence.entries else None)

    def present(self, p: NDArray) -> NDArray:
        """Chance that the class is present, (N, C) float64; without a curve this is the confidence."""
        return np.asarray(p, np.float64) if self.curve is None else self.curve.at(p)

    def decide(self, p: NDArray) -> tuple[NDArray, NDArray]:
        """Answers and the chance that each is right.

        Args:
            p: (N, C) confidences.

        Returns:
            answers (N, C) int8: 1 yes, 0 no, -1 unsure; chances (N, C) float64: NaN if unsure, all NaN without a curve.
            An answer with a chance below 0.5 is replaced by unsure.
        """
        p, tau_pos, tau_neg = np.asarray(p, np.float64), self.evidence.tau_pos, self.evidence.tau_neg
        answer = np.full(p.shape, -1, np.int8)
        answer[p < tau_neg] = 0
        # If both thresholds are equal, no score is unsure: at thresholds of 0.5, p = 0.5 is a yes.
        answer[(p > tau_pos) | ((p >= tau_pos) & (tau_pos == tau_neg))] = 1
        chance = np.full(p.shape, np.nan)
        if self.curve is not None:
            present = self.present(p)
            chance = np.where(answer == 1, present, np.where(answer == 0, 1 - present, np.nan))
            doubtful = chance < 0.5
            answer[doubtful], chance[doubtful] = -1, np.nan
        return answer, chance

    def f1_threshold(self) -> float | None:
        """The single threshold for all classes with the highest F1 of yes on the evidence; None without scores."""
        return best_threshold(self.evidence.p, self.evidence.y)

    def labelled(self) -> Labelled:
        """Moments of the chances of the evidence's images, which correct the counts of a folder."""
        p, y, at_rank = self.evidence.p, self.evidence.y, self.evidence.at_rank
        if at_rank is not None:  # with too few positives the ranks within a fold are random
            p = np.where((y > 0).sum(0) >= ENOUGH, at_rank, p)
        return Labelled.of(self.present(p), y)
