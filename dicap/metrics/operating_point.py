"""What a model's answers are worth: counts of yes, no and unsure, precision and recall of yes, F1, intervals. Pure functions.

A share of right answers alone misleads where positives are rare: always saying no is right for most entries. So each kind of
answer has its own share, and beside it stands what the best constant answer gets.

Letters: N images, C classes; an entry is a pair (image, class). Entries whose label is below 0 are unknown and count nowhere.
"""

from math import ceil, log10, sqrt
from typing import Any

import numpy as np
import pandas as pd

Z = 1.959964  # of a 95 % interval


def wilson(share: np.ndarray | float, n: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """95 % interval of a share that was seen in n independent trials (Wilson, JASA 1927), arrays of their common shape."""
    share, n = np.asarray(share, np.float64), np.maximum(np.asarray(n, np.float64), 1e-9)
    centre = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * np.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def digits(half_width: float) -> int:
    """Decimals that a share with an interval of this half width deserves: 2 to 4."""
    return 2 if half_width <= 0 else min(4, max(2, ceil(-log10(half_width))))


def f1(precision: float | None, recall: float | None) -> float:
    """Harmonic mean; 0 where either is 0 or unknown."""
    return 2 * precision * recall / (precision + recall) if precision and recall else 0.0


def of_answers(answer: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Counts and shares of the answers to all known entries.

    Args:
        answer: (N, C) 1 yes, 0 no, -1 unsure; labels: (N, C) 0/1.

    Returns:
        `yes`, `no`, `unsure`: entries. `yes_right` (precision of yes) and `no_right`: shares, None where nothing was answered so.
        `yes_recall`: share of the positive entries that got a yes. `f1`: of yes, over all entries. `positives`: entries.
        `constant`: the better of always yes and always no; `constant_right`: its share of right answers; `constant_f1`: F1 of
        always saying yes.
    """
    assert answer.shape == labels.shape, (answer.shape, labels.shape)
    answer, truth = answer[labels >= 0], labels[labels >= 0] > 0
    yes, no = answer == 1, answer == 0
    hits, positives = int((yes & truth).sum()), int(truth.sum())
    prevalence = positives / max(1, truth.size)
    precision = hits / int(yes.sum()) if yes.any() else None
    recall = hits / positives if positives else None
    return {
        "yes": int(yes.sum()),
        "no": int(no.sum()),
        "unsure": int((answer < 0).sum()),
        "positives": positives,
        "yes_right": precision,
        "no_right": float((no & ~truth).sum() / no.sum()) if no.any() else None,
        "yes_recall": recall,
        "f1": f1(precision, recall),
        "constant": "yes" if prevalence > 0.5 else "no",
        "constant_right": max(prevalence, 1 - prevalence),
        "constant_f1": f1(prevalence, 1.0),
    }


def best_threshold(scores: np.ndarray, labels: np.ndarray) -> float | None:
    """The one threshold for all classes at which saying yes to scores at or above it has the highest F1 over all entries.

    Args:
        scores: (N, C); labels: (N, C) 0/1, of images that the scores were not trained on.

    Returns:
        A score that occurs, the highest of equally good ones; None where there is no positive entry.
    """
    flat, truth = scores[labels >= 0], labels[labels >= 0] > 0
    if not truth.any():
        return None
    order = np.argsort(-flat, kind="stable")
    ends = np.flatnonzero(np.r_[np.diff(flat[order]) != 0, True])  # last entry of each group of ties
    hits = np.cumsum(truth[order])[ends]
    value = 2 * hits / (ends + 1 + truth.sum())
    return float(flat[order][ends[value.argmax()]])


def at_threshold(scores: np.ndarray, labels: np.ndarray, threshold: float | None) -> dict[str, float | None]:
    """F1, precision and recall of yes at one threshold: `f1_best`, `precision_best`, `recall_best`, `threshold_best`.

    All are None without a threshold.
    """
    shares = {} if threshold is None else of_answers((scores >= threshold).astype(np.int8), labels)
    keys = {"f1_best": "f1", "precision_best": "yes_right", "recall_best": "yes_recall"}
    return {name: shares.get(key) for name, key in keys.items()} | {"threshold_best": threshold}


def bin_of(values: np.ndarray, bins: int) -> np.ndarray:
    """`dicap.calibration.rates.bin_index` of an array, without loading torch."""
    return np.clip((values.astype(np.float64) * bins).astype(np.int64), 0, bins - 1)


def reliability(chance: np.ndarray, right: np.ndarray, bins: int = 10) -> list[dict[str, float]]:
    """Per bin of the stated chance: how many decisions, their mean chance, and the share of them that is right.

    Args:
        chance: (N, C), NaN where nothing was decided; right: (N, C), 0/1.

    Returns:
        A dict {left, right, n, images, chance, share, low, high} for every bin that holds a decision, ascending. `low` and
        `high`: an interval of the share. Entries of one image are not independent, so an image counts once in each.
    """
    known, edges = ~np.isnan(chance), np.arange(bins + 1) / bins
    entries = {"image": np.nonzero(known)[0], "chance": chance[known], "share": np.asarray(right)[known]}
    of_bin = pd.DataFrame(entries, dtype=float).groupby(bin_of(chance[known], bins))
    rows = of_bin.mean().assign(n=of_bin.size(), images=of_bin["image"].nunique())
    low, high = wilson(rows["share"].to_numpy(), rows["images"].to_numpy())
    rows = rows.assign(left=edges[rows.index], right=edges[rows.index + 1], low=low, high=high)
    return rows[["left", "right", "n", "images", "chance", "share", "low", "high"]].to_dict("records")  # type: ignore[return-value]


def gap(bins: list[dict[str, float]]) -> float | None:
    """The mean over decisions of |mean chance - share right| of their bin in `reliability`; None without decisions."""
    n = sum(row["n"] for row in bins)
    return sum(row["n"] * abs(row["chance"] - row["share"]) for row in bins) / n if n else None


def chance_interval(chance: np.ndarray, entries: int, group: int, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is known of a stated chance: itself, rounded to the digits it deserves, and its 95 % interval; NaN stays NaN.

    The curve behind it was counted in groups of labelled entries (`dicap.calibration.ranks.curve_by_rank`); the entries of one
    group stand behind a chance.

    Args:
        chance: any shape; entries: labelled entries of the curve; group, most: the size of a group at least, groups at most.
    """
    groups = min(most, max(1, entries // group))
    low, high = wilson(chance, entries / groups)
    places = digits(Z * sqrt(0.25 / max(1.0, entries / groups)) / 10)  # by the evidence alone: one width for the whole column
    return np.round(chance, places), np.round(low, places), np.round(high, places)
