"""Is one method better than another on the same test images, or only luckier with them? A paired jackknife."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dicap.errors import DataError
from dicap.files.tables import matrix, read_parquet
from dicap.metrics.ranking import jackknife_interval, leave_one_out


@dataclass(frozen=True)
class Interval:
    """Difference of mAP in points (ours minus theirs) on the test set, and its 95 % interval."""

    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class Predictions:
    """Scores (n, C) and true labels (n, C) of the test images `ids`."""

    ids: list[str]
    scores: np.ndarray
    labels: np.ndarray


def read_predictions(path: Path) -> Predictions:
    """Read predictions.parquet. Raises DataError."""
    table = read_parquet(path, ["id", "score", "label"])
    return Predictions(table["id"].to_pylist(), matrix(table["score"]), matrix(table["label"]))


def paired_interval(ours: Sequence[Predictions], theirs: Sequence[Predictions]) -> Interval:
    """95 % interval of the mAP difference that endlessly many test images would give, by a bias-corrected jackknife.

    Each image is left out on both sides at once, so that what makes an image hard cancels out. Seeds: `ours` and `theirs`
    may hold one run each or several; the difference is then that of the mean mAPs, the images being shared. The interval
    is of these trainings: how much others would differ is what the deviation over seeds says.

    Raises DataError if the runs were not scored on the same test images with the same labels.
    """
    first = ours[0]
    order = {name: row for row, name in enumerate(first.ids)}
    sides = [[leave_one_out(_aligned(run, order, first.labels), first.labels) for run in side] for side in (ours, theirs)]
    values = [float(np.mean([value for value, _ in side])) for side in sides]
    left_out = [np.mean([without for _, without in side], axis=0) for side in sides]  # (N,) each
    difference = values[0] - values[1]
    return Interval(difference, *jackknife_interval(difference, left_out[0] - left_out[1]))


def _aligned(run: Predictions, order: dict[str, int], labels: np.ndarray) -> np.ndarray:
    if len(run.ids) != len(order) or any(name not in order for name in run.ids):
        raise DataError(f"predictions: {len(run.ids)} test images against {len(order)} others; compare runs on one test set")
    rows = np.array([order[name] for name in run.ids])
    if run.labels.shape != labels.shape or not np.array_equal(run.labels, labels[rows]):
        raise DataError("predictions: the true labels of two runs differ; compare runs on one converted data set")
    scores = np.empty_like(run.scores)
    scores[rows] = run.scores
    return scores
