"""Is one method better than another on the same test images, or only luckier with them? A paired bootstrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dicap import artifacts as files
from dicap.errors import DataError
from dicap.metrics import weighted_average_precision as weighted_ap


@dataclass(frozen=True)
class Interval:
    """Difference of mAP in points (ours minus theirs): on the test set, its 95 % interval, share of resamples at most 0."""

    difference: float
    low: float
    high: float
    not_better: float


@dataclass(frozen=True)
class Predictions:
    """Scores (n, C) and true labels (n, C) of the test images `ids`."""

    ids: list[str]
    scores: np.ndarray
    labels: np.ndarray


def read_predictions(path: Path) -> Predictions:
    """Read predictions.parquet. Raises DataError."""
    table = files.read_parquet(path, ["id", "score", "label"])
    return Predictions(table["id"].to_pylist(), files.matrix(table["score"]), files.matrix(table["label"]))


def paired_bootstrap(
    ours: Sequence[Predictions], theirs: Sequence[Predictions], resamples: int, rng: np.random.Generator
) -> Interval:
    """95 % percentile interval of the mAP difference under resampling of the test images with replacement.

    Both sides see the same resamples, so that what makes an image hard cancels out. Seeds: `ours` and `theirs` may
    hold one run each or several; the difference is then that of the mean mAPs, the images being shared.
    Classes without positives in a resample are left out there, for both sides alike; without any at all they count 0.

    Raises DataError if the runs were not scored on the same test images with the same labels.
    """
    first = ours[0]
    order = {name: row for row, name in enumerate(first.ids)}
    aligned = [[_aligned(run, order, first.labels) for run in side] for side in (ours, theirs)]
    n = len(first.ids)
    counts = np.concatenate([np.ones((1, n)), rng.multinomial(n, np.full(n, 1 / n), size=resamples)]).astype(np.float32)
    means = [np.mean([_maps(scores, first.labels, counts) for scores in side], axis=0) for side in aligned]
    difference = means[0] - means[1]  # (1 + R,), the first is the test set itself
    low, high = np.percentile(difference[1:], [2.5, 97.5])
    return Interval(float(difference[0]), float(low), float(high), float((difference[1:] <= 0).mean()))


def _aligned(run: Predictions, order: dict[str, int], labels: np.ndarray) -> np.ndarray:
    if len(run.ids) != len(order) or any(name not in order for name in run.ids):
        raise DataError(f"predictions: {len(run.ids)} test images against {len(order)} others; compare runs on one test set")
    rows = np.array([order[name] for name in run.ids])
    if run.labels.shape != labels.shape or not np.array_equal(run.labels, labels[rows]):
        raise DataError("predictions: the true labels of two runs differ; compare runs on one converted data set")
    scores = np.empty_like(run.scores)
    scores[rows] = run.scores
    return scores


def _maps(scores: np.ndarray, labels: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """mAP in percent of every row of image multiplicities `counts` (R, n): (R,)."""
    total, counted = np.zeros(len(counts)), np.zeros(len(counts))
    for c in range(labels.shape[1]):
        positive = labels[:, c] > 0
        if not positive.any():
            counted += 1  # counts 0, the published rule
            continue
        ap, valid = weighted_ap(scores[:, c], positive, counts)
        total += np.where(valid, ap, 0)
        counted += valid
    return 100 * total / np.maximum(counted, 1)
