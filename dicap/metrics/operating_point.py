"""Metrics of a model's answers: counts of yes, no and unsure, precision and recall of yes, F1, intervals. Pure functions.

Accuracy alone misleads if positives are rare, because always saying no is right for most entries. So each kind of answer has its
own share of right answers, and the best constant answer is reported for comparison.

Letters: N images, C classes; an entry is a pair (image, class). Entries with a label below 0 are unknown and never counted.
"""

from math import ceil, log10, sqrt
from typing import Any

import numpy as np
import pandas as pd

Z = 1.959964  # normal quantile of a 95 % interval


def wilson(share: np.ndarray | float, n: np.ndarray | float) -> tuple[np.ndarray, np.ndarray]:
    """95 % interval of a share observed in n independent trials (Wilson, JASA 1927): low and high, of the broadcast shape."""
    share, n = np.asarray(share, np.float64), np.maximum(np.asarray(n, np.float64), 1e-9)
    centre = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half_width = Z / (1 + Z**2 / n) * np.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return np.clip(centre - half_width, 0, 1), np.clip(centre + half_width, 0, 1)


def digits(half_width: float) -> int:
    """Number of decimals to print for a share whose interval has this half width: 2 to 4."""
    return 2 if half_width <= 0 else min(4, max(2, ceil(-log10(half_width))))


def f1(precision: float | None, recall: float | None) -> float:
    """Harmonic mean; 0 if precision or recall is 0 or None."""
    return 2 * precision * recall / (precision + recall) if precision and recall else 0.0


def of_answers(answer: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Counts and shares of the answers to all known entries.

    Args:
        answer: (N, C) 1 yes, 0 no, -1 unsure; labels: (N, C) 0/1.

    Returns:
        `yes`, `no`, `unsure`, `positives`: numbers of entries. `yes_right` (precision of yes), `no_right`: shares of right
        answers, None without such answers. `yes_recall`: share of the positive entries answered yes. `f1`: F1 of yes, over all
        entries. `constant`: the better of always yes and always no; `constant_right`: its share of right answers;
        `constant_f1`: F1 of always yes.
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
    """The single threshold for all classes with the highest F1 over all entries; scores at or above it are a yes.

    Args:
        scores: (N, C); labels: (N, C) 0/1, of held-out images.

    Returns:
        One of the scores, the highest of ties; None without positive entries.
    """
    flat, truth = scores[labels >= 0], labels[labels >= 0] > 0
    if not truth.any():
        return None
    order = np.argsort(-flat, kind="stable")
    ends = np.flatnonzero(np.r_[np.diff(flat[order]) != 0, True])  # last entry of each group of ties
    hits = np.cumsum(truth[order])[ends]
    f1_scores = 2 * hits / (ends + 1 + truth.sum())
    return float(flat[order][ends[f1_scores.argmax()]])


def at_threshold(scores: np.ndarray, labels: np.ndarray, threshold: float | None) -> dict[str, float | None]:
    """F1, precision and recall of yes at one threshold: `f1_best`, `precision_best`, `recall_best`, `threshold_best`.

    All are None if the threshold is None.
    """
    shares = {} if threshold is None else of_answers((scores >= threshold).astype(np.int8), labels)
    keys = {"f1_best": "f1", "precision_best": "yes_right", "recall_best": "yes_recall"}
    return {name: shares.get(key) for name, key in keys.items()} | {"threshold_best": threshold}


def bin_of(values: np.ndarray, bins: int) -> np.ndarray:
    """`dicap.calibration.rates.bin_index` of an array, without loading torch."""
    return np.clip((values.astype(np.float64) * bins).astype(np.int64), 0, bins - 1)


def reliability(chance: np.ndarray, right: np.ndarray, bins: int = 10) -> list[dict[str, float]]:
    """Per bin of the stated chance: the number of decisions, their mean chance, and the share of right decisions.

    Args:
        chance: (N, C), NaN for undecided entries; right: (N, C), 0/1.

    Returns:
        A dict {left, right, n, images, chance, share, low, high} for every bin with decisions, ascending. `low` and `high` are
        an interval of the share. Entries of one image are not independent, so the interval counts an image once per bin.
    """
    known, edges = ~np.isnan(chance), np.arange(bins + 1) / bins
    entries = {"image": np.nonzero(known)[0], "chance": chance[known], "share": np.asarray(right)[known]}
    of_bin = pd.DataFrame(entries, dtype=float).groupby(bin_of(chance[known], bins))
    rows = of_bin.mean().assign(n=of_bin.size(), images=of_bin["image"].nunique())
    low, high = wilson(rows["share"].to_numpy(), rows["images"].to_numpy())
    rows = rows.assign(left=edges[rows.index], right=edges[rows.index + 1], low=low, high=high)
    return rows[["left", "right", "n", "images", "chance", "share", "low", "high"]].to_dict("records")  # type: ignore[return-value]


def gap(bins: list[dict[str, float]]) -> float | None:
    """Expected calibration error: the mean over decisions of |mean chance - share right| in their bin; None without decisions."""
    n = sum(row["n"] for row in bins)
    return sum(row["n"] * abs(row["chance"] - row["share"]) for row in bins) / n if n else None


def chance_interval(chance: np.ndarray, entries: int, group: int, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A stated chance, rounded to meaningful digits, and the ends of its 95 % interval; NaN stays NaN.

    The curve of the chances was estimated on groups of labelled entries (`dicap.calibration.ranks.curve_by_rank`). The interval
    counts the entries of one group.

    Args:
        chance: any shape; entries: labelled entries of the curve; group: minimum size of a group; most: maximum number of groups.
    """
    groups = min(most, max(1, entries // group))
    low, high = wilson(chance, entries / groups)
    decimals = digits(Z * sqrt(0.25 / max(1.0, entries / groups)) / 10)  # independent of the chance: one width per column
    return np.round(chance, decimals), np.round(low, decimals), np.round(high, decimals)
