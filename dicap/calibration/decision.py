"""From a model's confidence to a decision and the measured chance that it is right. Pure functions.

The paper's rates (`dicap.calibration.rates`) weigh pseudo-labels in training. What a published model carries is the same idea
made for use: a curve measured on images kept from training (`dicap.calibration.curve`) beside the thresholds of its classes.

Letters: N images, C classes, G knots; p confidence in [0, 1]; y label, 1 or 0.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dicap.calibration.counts import Labelled
from dicap.calibration.curve import Curve
from dicap.calibration.rates import bin_index


@dataclass(frozen=True)
class Decisions:
    """What a model needs beside its network to answer yes, no or unsure.

    Attributes:
        tau_pos, tau_neg: (C,) thresholds: yes above the first, no below the second, unsure between.
        prior: (C,) share of positives among the labelled images.
        curve: P(y = 1 | p) over log-odds; None where no labelled images were kept from training.
        note: why there is no curve, or what it was counted on.
        entries: labelled entries (image, class) the curve was counted on.
        f1_threshold: the one threshold for all classes at which yes has the highest F1 on these images; None where no image was
            kept from training.
        labelled: moments of the chances of these images, by which counts are corrected; None where there are no such images.
    """

    tau_pos: np.ndarray
    tau_neg: np.ndarray
    prior: np.ndarray
    curve: Curve | None
    note: str
    entries: int = 0
    f1_threshold: float | None = None
    labelled: Labelled | None = None

    def present(self, p: np.ndarray) -> np.ndarray:
        """Chance that the class is present, (N, C) float64; without a curve the confidence itself."""
        p = np.asarray(p, np.float64)
        return p if self.curve is None else self.curve.at(torch.from_numpy(p)).numpy()

    @property
    def measured(self) -> int | None:
        """Labelled images that the chance to be right was counted on; None where no chance is stated."""
        return None if self.curve is None else self.entries // len(self.prior)

    def decide(self, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Decisions and the chance that each is right.

        Args:
            p: (N, C) confidences.

        Returns:
            (N, C) int8: 1 yes, 0 no, -1 unsure; (N, C) float64: NaN where unsure, or throughout without a curve.
            An answer that the curve finds likelier wrong than right is not given: unsure.
        """
        p = np.asarray(p, np.float64)
        answer = np.full(p.shape, -1, np.int8)
        answer[p < self.tau_neg] = 0
        # Without a gap between the thresholds nothing is unsure: p = 0.5 is a yes at threshold 0.5.
        answer[(p > self.tau_pos) | ((p >= self.tau_pos) & (self.tau_pos == self.tau_neg))] = 1
        chance = np.full(p.shape, np.nan)
        if self.curve is not None:
            present = self.present(p)
            chance = np.where(answer == 1, present, np.where(answer == 0, 1 - present, np.nan))
            doubtful = chance < 0.5
            answer[doubtful], chance[doubtful] = -1, np.nan
        return answer, chance

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for the metadata of a model."""
        curve = None
        if self.curve is not None:
            assert self.curve.log_odds
            knots, rate = self.curve.knots.numpy(), self.curve.rate.numpy()
            curve = {"logit": _short(knots), "rate": _short(rate), "entries": self.entries}
        return {
            "tau_pos": _short(self.tau_pos),
            "tau_neg": _short(self.tau_neg),
            "prior": _short(self.prior),
            "curve": curve,
            "note": self.note,
            "f1_threshold": self.f1_threshold,
            "labelled": None if self.labelled is None else self.labelled.to_list(),
        }

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "Decisions":
        """The inverse of `to_dict`. Raises KeyError or TypeError for anything else."""
        curve, entries = values["curve"], 0
        if curve is not None:
            knots, rate = (torch.tensor(curve[name], dtype=torch.float64) for name in ("logit", "rate"))
            curve, entries = Curve(knots, rate, log_odds=True), int(curve["entries"])
        tau_pos, tau_neg, prior = (np.array(values[name], float) for name in ("tau_pos", "tau_neg", "prior"))
        labelled = None if values["labelled"] is None else Labelled.from_list(values["labelled"])
        note, f1_threshold = str(values["note"]), values["f1_threshold"]
        return Decisions(tau_pos, tau_neg, prior, curve, note, entries, f1_threshold, labelled)


def plain(prior: np.ndarray, note: str) -> Decisions:
    """Decisions at 0.5, without a curve. `prior`: (C,)."""
    half = np.full(len(prior), 0.5)
    return Decisions(half, half.copy(), prior, None, note)


def reliability(chance: np.ndarray, right: np.ndarray, bins: int = 10) -> list[dict[str, float]]:
    """Per tenth of the stated chance: how many decisions, their mean chance, and the share of them that is right.

    Args:
        chance: (N, C), NaN where nothing was decided; right: (N, C), 0/1.

    Returns:
        A dict {left, right, n, images, chance, share} for every tenth that holds a decision, ascending.
    """
    known = ~np.isnan(chance)
    image, chance, right = np.nonzero(known)[0], chance[known].astype(np.float64), np.asarray(right)[known].astype(np.float64)
    index = bin_index(torch.from_numpy(chance), bins).numpy()
    edges = np.arange(bins + 1) / bins
    rows = []
    for k in np.unique(index):
        inside = index == k
        rows.append(
            {
                "left": float(edges[k]),
                "right": float(edges[k + 1]),
                "n": int(inside.sum()),
                "images": len(np.unique(image[inside])),
                "chance": float(chance[inside].mean()),
                "share": float(right[inside].mean()),
            }
        )
    return rows


def _short(values: np.ndarray) -> list[float | None]:
    """Nine significant digits tell apart all confidences in single precision: a threshold just below 1 does not become 1."""
    return [None if np.isnan(value) else float(f"{value:.9g}") for value in values]
