"""Average precision by the published rule, the bootstrap against resampling by hand, calibration error."""

import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from dicap.metrics import (
    average_precision,
    bootstrap_interval,
    expected_calibration_error,
    mean_average_precision,
    weighted_average_precision,
)


def test_fixtures():
    scores, labels = np.array([[0.9, 0.8, 0.7, 0.6, 0.5]]).T, np.array([[1, 0, 1, 0, 0]]).T
    assert average_precision(scores, labels)[0] == pytest.approx(0.833333, abs=1e-6)
    tied = np.full((4, 1), 0.3)
    assert average_precision(tied, np.array([[1], [0], [0], [1]]))[0] == pytest.approx(0.5)


def test_a_class_without_positives_counts_zero_and_stays_in_the_mean():
    scores = np.array([[0.9, 0.1], [0.1, 0.2]])
    labels = np.array([[1, 0], [0, 0]])
    assert average_precision(scores, labels).tolist() == [1.0, 0.0]
    assert mean_average_precision(scores, labels) == 50.0


def slow_ap(scores, labels):
    """Mean over the recall steps at each distinct score."""
    total, previous, positives = 0.0, 0.0, labels.sum()
    for threshold in sorted(set(scores), reverse=True):
        chosen = scores >= threshold
        recall = labels[chosen].sum() / positives
        total += (recall - previous) * labels[chosen].mean()
        previous = recall
    return total


def test_equals_a_loop_over_thresholds_with_ties():
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 8, (40, 3)) / 7, (rng.random((40, 3)) < 0.3).astype(int)
    for c in range(3):
        assert average_precision(scores, labels)[c] == pytest.approx(slow_ap(scores[:, c], labels[:, c]))


def test_only_the_order_of_scores_counts():
    rng = np.random.default_rng(1)
    logits, labels = rng.normal(size=(30, 4)) * 0.1, (rng.random((30, 4)) < 0.4).astype(int)
    assert mean_average_precision(logits, labels) == pytest.approx(mean_average_precision(np.exp(9 * logits), labels))


def testweighted_average_precision_is_the_ap_of_the_resample():
    rng = np.random.default_rng(2)
    scores, labels = rng.integers(0, 20, 60) / 19, rng.random(60) < 0.3
    counts = rng.multinomial(60, np.full(60, 1 / 60), size=5)
    ap, valid = weighted_average_precision(scores, labels, counts.astype(np.float32), block=2)
    for row in range(5):
        drawn = np.repeat(np.arange(60), counts[row])
        assert valid[row]
        assert ap[row] == pytest.approx(average_precision_score(labels[drawn], scores[drawn]))


def test_interval_holds_the_value_and_narrows_with_more_images():
    rng = np.random.default_rng(3)

    def interval(n):
        labels = rng.random((n, 2)) < 0.4
        scores = labels + rng.normal(0, 1, (n, 2))
        low, high = bootstrap_interval(scores, labels, 300, np.random.default_rng(0))
        assert low < mean_average_precision(scores, labels) < high
        return high - low

    assert interval(1600) < interval(100)
    assert all(math.isnan(v) for v in bootstrap_interval(np.zeros((3, 1)), np.ones((3, 1)), 0, rng))


def test_expected_calibration_error():
    confidence = np.array([0.11, 0.13, 0.9])
    assert expected_calibration_error(confidence, np.array([0, 0, 1]), bins=10) == pytest.approx((0.24 + 0.1) / 3)
    assert math.isnan(expected_calibration_error(np.array([]), np.array([])))
