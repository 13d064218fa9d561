"""From a model's confidence to a decision and the measured chance that it is right. Pure functions.

The paper's rates (`dicap.calibration`) weigh pseudo-labels: twenty bins of equal width, one table an epoch. What a published
model carries is the same idea made for use. The confidences of a trained network crowd near 0 and 1, and D_est may be forty
images, so the entries are grouped by rank instead, and small groups lean on a logistic curve.

Letters: C classes, G groups; p confidence in [0, 1]; y label, 1 or 0.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

GROUP = 20  # entries of a group at least
MOST_GROUPS = 60
LEAN = 40.0  # entries that the logistic curve counts for in a group's rate
EDGE = 1e-6  # confidences are kept this far from 0 and 1, where their logit would be infinite


@dataclass(frozen=True)
class Curve:
    """How often a confidence is right: the chance that the class is present, by confidence.

    Attributes:
        logit: (G,) ascending, logit of the confidence at each knot.
        rate: (G,) non-decreasing, chance at the knot; between knots it is interpolated over the logit.
        entries: labelled entries (image, class) it was counted on.
    """

    logit: np.ndarray
    rate: np.ndarray
    entries: int

    def present(self, p: np.ndarray) -> np.ndarray:
        """Chance that the class is present, of p's shape, float64."""
        return np.interp(logit(p), self.logit, self.rate)


@dataclass(frozen=True)
class Decisions:
    """What a model needs beside its network to answer yes, no or unsure.

    Attributes:
        tau_pos, tau_neg: (C,) thresholds: yes above the first, no below the second, unsure between.
        prior: (C,) share of positives among the labelled images.
        curve: None where no labelled images were kept from training.
        note: why there is no curve, or what it was counted on.
    """

    tau_pos: np.ndarray
    tau_neg: np.ndarray
    prior: np.ndarray
    curve: Curve | None
    note: str

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
            present = self.curve.present(p)
            chance = np.where(answer == 1, present, np.where(answer == 0, 1 - present, np.nan))
            doubtful = chance < 0.5
            answer[doubtful], chance[doubtful] = -1, np.nan
        return answer, chance

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for the metadata of a model."""
        curve = None
        if self.curve is not None:
            curve = {
                "logit": _short(self.curve.logit),
                "rate": _short(self.curve.rate),
                "entries": self.curve.entries,
            }
        return {
            "tau_pos": _short(self.tau_pos),
            "tau_neg": _short(self.tau_neg),
            "prior": _short(self.prior),
            "curve": curve,
            "note": self.note,
        }

    @staticmethod
    def from_dict(values: dict[str, Any]) -> "Decisions":
        """The inverse of `to_dict`. Raises KeyError or TypeError for anything else."""
        curve = values["curve"]
        if curve is not None:
            curve = Curve(np.array(curve["logit"], float), np.array(curve["rate"], float), int(curve["entries"]))
        arrays = (np.array(values[name], float) for name in ("tau_pos", "tau_neg", "prior"))
        return Decisions(*arrays, curve=curve, note=str(values["note"]))


def plain(prior: np.ndarray, note: str) -> Decisions:
    """Decisions at 0.5, without a curve. `prior`: (C,)."""
    half = np.full(len(prior), 0.5)
    return Decisions(half, half.copy(), prior, None, note)


def fit_curve(p: np.ndarray, y: np.ndarray) -> Curve:
    """The correctness curve of scores on images whose labels were kept from training.

    Entries are ranked by confidence and cut into groups of equal size (at least GROUP, at most MOST_GROUPS groups). A group's
    rate is (n_pos + LEAN * s) / (n + LEAN) with s its mean on the logistic curve fitted to all entries; the rates are then made
    non-decreasing (isotonic regression). On digits with D_est of 40 images this halves the error of bins of equal width.

    Args:
        p: (N, C) confidences; y: (N, C) labels 0/1. Classes are pooled.
    """
    from sklearn.isotonic import IsotonicRegression

    assert p.shape == y.shape and p.size, (p.shape, y.shape)
    x, target = logit(p).ravel(), np.asarray(y).ravel().astype(np.float64)
    order = np.argsort(x, kind="stable")
    groups = np.array_split(order, min(MOST_GROUPS, max(1, len(x) // GROUP)))
    smooth = _logistic(x, target)
    n = np.array([len(group) for group in groups], float)
    knots = np.array([x[group].mean() for group in groups])
    leaning = np.array([smooth[group].mean() for group in groups])
    rate = (np.array([target[group].sum() for group in groups]) + LEAN * leaning) / (n + LEAN)
    rate = IsotonicRegression(y_min=0, y_max=1).fit(np.arange(len(n)), rate, n).predict(np.arange(len(n)))
    return _distinct(knots, rate, len(x))


def carry_over(curve: Curve, before: np.ndarray, after: np.ndarray) -> Curve:
    """The curve of a network that was trained on after its curve was measured, on the very images that measured it.

    Counting on those images again would find them too often right. Other images, whose labels nobody knows, say how the new
    confidences relate to the old ones: the chance at a new confidence is the mean chance of the old confidences there.

    Args:
        curve: of the network before.
        before, after: (N, C) confidences of the two networks on images that neither was trained on with labels.
    """
    from sklearn.isotonic import IsotonicRegression

    assert before.shape == after.shape and before.size, (before.shape, after.shape)
    x, chance = logit(after).ravel(), curve.present(before).ravel()
    groups = np.array_split(np.argsort(x, kind="stable"), min(MOST_GROUPS, max(1, len(x) // GROUP)))
    n = np.array([len(group) for group in groups], float)
    knots = np.array([x[group].mean() for group in groups])
    rate = np.array([chance[group].mean() for group in groups])
    rate = IsotonicRegression(y_min=0, y_max=1).fit(np.arange(len(n)), rate, n).predict(np.arange(len(n)))
    return _distinct(knots, rate, curve.entries)


def reliability(chance: np.ndarray, right: np.ndarray, bins: int = 10, *, by_rank: bool = False) -> list[dict[str, float]]:
    """Per tenth of the stated chance: how many decisions, their mean chance, and the share of them that is right.

    Args:
        chance: any shape, NaN where nothing was decided; right: the same shape, 0/1.
        by_rank: tenths of the decisions, ranked by their chance, instead of tenths of the scale: each holds as many,
            so that sampling plays the same part in all.

    Returns:
        A dict {left, right, n, chance, share} for every tenth that holds a decision, ascending.
    """
    known = ~np.isnan(chance)
    chance, right = chance[known].astype(np.float64), np.asarray(right)[known].astype(np.float64)
    index = np.minimum((chance * bins).astype(np.int64), bins - 1)
    edges = np.arange(bins + 1) / bins
    if by_rank and len(chance):
        index = np.empty(len(chance), np.int64)
        index[np.argsort(chance, kind="stable")] = np.arange(len(chance)) * bins // len(chance)
        edges = np.quantile(chance, edges)
    rows = []
    for k in np.unique(index):
        inside = index == k
        rows.append(
            {
                "left": float(edges[k]),
                "right": float(edges[k + 1]),
                "n": int(inside.sum()),
                "chance": float(chance[inside].mean()),
                "share": float(right[inside].mean()),
            }
        )
    return rows


def logit(p: np.ndarray) -> np.ndarray:
    """log(p / (1 - p)), finite at 0 and 1; of p's shape, float64."""
    p = np.clip(np.asarray(p, np.float64), EDGE, 1 - EDGE)
    return np.log(p) - np.log1p(-p)


def _logistic(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The logistic curve of y over x at the points x (Platt scaling); the mean where y has one value only."""
    from sklearn.linear_model import LogisticRegression

    if y.min() == y.max():
        return np.full(len(x), y.mean())
    return LogisticRegression(C=1e4).fit(x[:, None], y).predict_proba(x[:, None])[:, 1]


def _distinct(knots: np.ndarray, rate: np.ndarray, entries: int) -> Curve:
    """Knots that coincide become one, with the mean of their rates: interpolation wants ascending knots."""
    unique, place = np.unique(knots, return_inverse=True)
    return Curve(unique, np.bincount(place, rate) / np.bincount(place), entries)


def _short(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else round(float(value), 6) for value in values]
