"""The jackknife against leaving images out by hand; tests/calibration/test_known_entries.py has average precision itself."""

import math

import numpy as np
import pytest
from scipy.stats import t

from dicap.metrics.ranking import (
    average_precision,
    jackknife_interval,
    leave_one_out,
    map_interval,
    mean_average_precision,
)


@pytest.mark.parametrize("seed", range(4))
def test_leaving_out_equals_removing_images_by_hand(seed):
    """Ties, a class without positives (counts 0) and one with a single positive (left out without it)."""
    rng = np.random.default_rng(seed)
    scores, labels = rng.integers(0, 6, (25, 4)) / 5, (rng.random((25, 4)) < 0.3).astype(int)
    labels[:, 2] = 0
    labels[:, 3] = np.arange(25) == 7
    value, left_out = leave_one_out(scores, labels)
    assert value == pytest.approx(mean_average_precision(scores, labels))
    for i in range(25):
        rows = np.arange(25) != i
        aps = average_precision(scores[rows], labels[rows])
        kept = [0, 1] if i == 7 else [0, 1, 3]
        assert left_out[i] == pytest.approx(100 * aps[kept].mean() * 3 / 4), "three of four classes can be tested"


def test_the_interval_of_a_mean_is_students():
    values = np.random.default_rng(0).normal(size=12)
    left_out = (values.sum() - values) / 11
    squares = (values - values.mean()) ** 2
    freedom = min(2 * squares.sum() ** 2 / ((squares - squares.mean()) ** 2).sum(), 11)
    half = t.ppf(0.975, freedom) * values.std(ddof=1) / math.sqrt(12)
    assert jackknife_interval(values.mean(), left_out) == pytest.approx((values.mean() - half, values.mean() + half))


def test_the_bias_of_a_biased_variance_is_taken_away():
    values = np.random.default_rng(1).normal(size=30)
    left_out = np.array([np.delete(values, i).var() for i in range(30)])
    assert np.mean(jackknife_interval(values.var(), left_out)) == pytest.approx(values.var(ddof=1))


@pytest.mark.parametrize(
    ("scores", "labels"),
    [
        (np.zeros((1, 1)), np.ones((1, 1))),  # one image
        (np.zeros((3, 2)), np.zeros((3, 2))),  # no positives
        (np.arange(3.0)[:, None], np.array([[0], [0], [1]])),  # without its only positive no class is left
    ],
)
def test_no_interval_where_nothing_can_be_said(scores, labels):
    assert all(math.isnan(v) for v in map_interval(scores, labels))


def test_a_perfect_ranking_stays_within_a_hundred():
    labels = np.arange(40)[:, None] < np.array([10, 20])
    assert map_interval(labels.astype(float), labels) == (100.0, 100.0, 100.0)
