"""The paired jackknife against a slow one with scikit-learn, and in cases whose answer is known."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import average_precision_score

from dicap.errors import DataError
from dicap.report.paired import Predictions, paired_interval


def draw(rng: np.random.Generator, quality: float, labels: np.ndarray) -> np.ndarray:
    return (rng.normal(size=labels.shape) + quality * labels).astype(np.float32)


@pytest.fixture
def labels() -> np.ndarray:
    labels = (np.random.default_rng(0).random((60, 3)) < 0.3).astype(np.int8)
    return np.concatenate([labels, np.zeros((60, 1), np.int8)], axis=1)  # a class without positives


def predictions(scores: np.ndarray, labels: np.ndarray) -> Predictions:
    return Predictions([f"t{k}" for k in range(len(labels))], scores, labels)


def slow_map(scores: np.ndarray, labels: np.ndarray, everything: np.ndarray) -> float:
    aps = []
    for c in range(labels.shape[1]):
        if not everything[:, c].any():
            aps.append(0.0)
        elif labels[:, c].any():
            aps.append(average_precision_score(labels[:, c], scores[:, c]))
    return 100 * float(np.mean(aps))


def test_against_a_slow_one(labels):
    rng = np.random.default_rng(1)
    ours, theirs = draw(rng, 1.5, labels), draw(rng, 0.8, labels)
    found = paired_interval([predictions(ours, labels)], [predictions(theirs, labels)])
    value = slow_map(ours, labels, labels) - slow_map(theirs, labels, labels)
    without = []
    for i in range(60):
        rows = np.arange(60) != i
        without.append(slow_map(ours[rows], labels[rows], labels) - slow_map(theirs[rows], labels[rows], labels))
    pseudo = 60 * value - 59 * np.array(without)  # their mean is the bias-corrected difference
    squares = (pseudo - pseudo.mean()) ** 2
    freedom = 2 * squares.sum() ** 2 / ((squares - squares.mean()) ** 2).sum()
    half = stats.t.ppf(0.975, min(freedom, 59)) * pseudo.std(ddof=1) / np.sqrt(60)
    assert found.difference == pytest.approx(value, abs=1e-9)
    assert (found.low, found.high) == pytest.approx((pseudo.mean() - half, pseudo.mean() + half), abs=1e-6)


def test_the_same_scores_differ_by_nothing_and_rows_may_be_shuffled(labels):
    scores = draw(np.random.default_rng(3), 1.0, labels)
    order = np.random.default_rng(4).permutation(60)
    shuffled = Predictions([f"t{k}" for k in order], scores[order], labels[order])
    found = paired_interval([predictions(scores, labels)], [shuffled])
    assert (found.difference, found.low, found.high) == (0, 0, 0)


def test_seeds_are_averaged(labels):
    rng = np.random.default_rng(6)
    a, b, c = (predictions(draw(rng, q, labels), labels) for q in (2.0, 1.0, 0.5))
    whole = paired_interval([a, b], [c, c]).difference
    halves = [paired_interval([side], [c]).difference for side in (a, b)]
    assert whole == pytest.approx(np.mean(halves))


def test_other_test_images_are_refused(labels):
    scores = draw(np.random.default_rng(8), 1.0, labels)
    fewer = Predictions([f"t{k}" for k in range(59)], scores[:59], labels[:59])
    other = predictions(scores, 1 - labels)
    for stranger in (fewer, other):
        with pytest.raises(DataError, match="predictions"):
            paired_interval([predictions(scores, labels)], [stranger])
