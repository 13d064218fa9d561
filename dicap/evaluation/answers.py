"""From a model's evidence to an answer, and the measured chance that the answer is right.

The paper's rates (`dicap.calibration.rates`) weigh pseudo-labels in training. Here is the same idea for the use of a model: the
share of labels that turned out positive, by the score, on images that the network had not learnt.

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
    """How a model answers yes, no or unsure.

    Attributes:
        evidence: of the model.
        curve: P(y = 1 | p) by the evidence; None where it has no scores.

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
        """Chance that the class is present, (N, C) float64; without a curve the confidence itself."""
        return np.asarray(p, np.float64) if self.curve is None else self.curve.at(p)

    def decide(self, p: NDArray) -> tuple[NDArray, NDArray]:
        """Answers and the chance that each is right.

        Args:
            p: (N, C) confidences.

        Returns:
            (N, C) int8: 1 yes, 0 no, -1 unsure; (N, C) float64: NaN where unsure, or throughout without a curve.
            An answer that the curve finds likelier wrong than right is not given: unsure.
        """
        p, tau_pos, tau_neg = np.asarray(p, np.float64), self.evidence.tau_pos, self.evidence.tau_neg
        answer = np.full(p.shape, -1, np.int8)
        answer[p < tau_neg] = 0
        # Without a gap between the thresholds nothing is unsure: p = 0.5 is a yes at threshold 0.5.
        answer[(p > tau_pos) | ((p >= tau_pos) & (tau_pos == tau_neg))] = 1
        chance = np.full(p.shape, np.nan)
        if self.curve is not None:
            present = self.present(p)
            chance = np.where(answer == 1, present, np.where(answer == 0, 1 - present, np.nan))
            doubtful = chance < 0.5
            answer[doubtful], chance[doubtful] = -1, np.nan
        return answer, chance

    def f1_threshold(self) -> float | None:
        """The one threshold for all classes at which yes has the highest F1 on the evidence; None without scores."""
        return best_threshold(self.evidence.p, self.evidence.y)

    def labelled(self) -> Labelled:
        """Moments of the chances of the evidence's images, by which the counts of a folder are corrected."""
        p, y, at_rank = self.evidence.p, self.evidence.y, self.evidence.at_rank
        if at_rank is not None:  # a fold's head that has seen hardly any positive ranks by chance
            p = np.where((y > 0).sum(0) >= ENOUGH, at_rank, p)
        return Labelled.of(self.present(p), y)
