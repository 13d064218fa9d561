"""How many images show a class: two ways to one number, what must not matter, and how often the interval holds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dicap.calibration.counts import Labelled, Moments, counts
from dicap.metrics.operating_point import wilson


def made_up(seed, n=60, size=400, classes=4):
    """Labels and chances of n labelled images, and of a folder."""
    rng = np.random.default_rng(seed)
    labels = (rng.random((n + size, classes)) < rng.uniform(0.02, 0.6, classes)).astype(int)
    chances = 1 / (1 + np.exp(2 - 3 * labels - rng.normal(size=labels.shape)))
    return labels[:n], chances[:n], labels[n:], chances[n:]


def table(found):
    return np.array(list(vars(found).values()), float)


@given(st.integers(0, 10**6), st.integers(1, 399))
def test_moments_of_parts_are_those_of_the_whole(seed, cut):
    *_, chances = made_up(seed)
    both = Moments.of(chances[:cut]) + Moments.of(chances[cut:])
    assert np.allclose(both, Moments.of(chances)) and np.allclose(both, [[400] * 4, chances.mean(0), chances.var(0)])


@given(st.integers(0, 10**6))
def test_the_same_by_regression_of_labels_on_chances(seed):
    """Slowly: least squares, the residuals' variance, and Wilson's interval of as many images as that is worth."""
    y, f, _, folder = made_up(seed)
    found = counts(Labelled.of(f, y), Moments.of(folder))
    for c in range(4):
        k, n, size = y[:, c].sum(), len(y), len(folder)
        slope = np.polyfit(f[:, c], y[:, c], 1)[0] * k / (k + 2) if k else 0
        slope = max(slope, 0)
        share = np.clip(np.mean(y[:, c]) + slope * (folder[:, c].mean() - f[:, c].mean()), 0, 1)
        left = np.var(y[:, c] - slope * f[:, c]) / np.var(y[:, c]) if 0 < k < n else 1
        trust = max(k - 1, 0) / (k + 1)
        low, high = wilson(share, 1 / ((1 - trust * (1 - left)) * (1 / n + 1 / size)))
        assert found.count[c] == pytest.approx(share * size, abs=1e-6)
        assert abs(found.low[c] - low * size) <= 1 and abs(found.high[c] - high * size) <= 1


@pytest.mark.promise("Unknown labels, the order of images and the order of classes change no count", section="Numbers")
@given(st.integers(0, 10**6))
def test_what_does_not_matter_and_what_turns_round(seed):
    """Neither the order of images and classes nor what is unknown; and what is not there is the rest of the folder."""
    y, f, _, folder = made_up(seed)
    found = table(counts(Labelled.of(f, y), Moments.of(folder)))
    rows, columns = np.random.default_rng(seed).permutation(len(y)), [2, 0, 3, 1]
    again = counts(Labelled.of(f[rows][:, columns], y[rows][:, columns]), Moments.of(folder[::-1, columns]))
    assert np.allclose(table(again), found[:, columns], equal_nan=True)
    more, unknown = np.concatenate([f, f]), np.concatenate([y, np.full_like(y, -1)])
    assert np.allclose(table(counts(Labelled.of(more, unknown), Moments.of(folder))), found, equal_nan=True)
    silent = np.full_like(f, 0.5)
    is_there = counts(Labelled.of(silent, y), Moments.of(np.full_like(folder, 0.5)))
    is_not = counts(Labelled.of(silent, 1 - y), Moments.of(np.full_like(folder, 0.5)))
    assert np.allclose(is_there.count, 400 - is_not.count) and np.allclose(is_there.low, 400 - is_not.high)
    assert np.allclose(is_there.count, 400 * y.mean(0)), "chances that say nothing leave the labels alone"


def test_few_and_no_positives_and_no_label():
    y = np.zeros((50, 3), int)
    y[:1, 1], y[:, 2] = 1, -1
    found = counts(Labelled.of(np.full(y.shape, 0.1), y), Moments.of(np.full((1000, 3), 0.1)))
    assert found.count[0] == 0 == found.low[0] and 50 < found.high[0] < 100, "about three in fifty could still be there"
    assert 0 < found.low[1] < found.count[1] == 20 < found.high[1]
    assert (found.low[2], found.high[2]) == (0, 1000) and not found.shifted.any() and np.isnan(found.by_shift).all()


def test_a_folder_with_other_shares_is_noticed_and_counted():
    y, f, *_ = made_up(1, n=300)
    other, chances = (part[np.r_[np.flatnonzero(y[:, 0]), :20]] for part in (y, f))
    found = counts(Labelled.of(f, y), Moments.of(chances))
    assert found.shifted[0] and not counts(Labelled.of(f, y), Moments.of(f)).shifted.any()
    assert found.shift_low[0] <= other[:, 0].sum() <= found.shift_high[0]
    assert abs(found.by_shift[0] - other[:, 0].sum()) < abs(found.count[0] - other[:, 0].sum())


@pytest.mark.promise(
    "A count's 95 % interval holds 93 times in 100, and is on average narrower than the interval from the labels alone",
    section="Numbers",
)
def test_intervals_hold_and_are_narrower_than_by_labels_alone():
    held, widths, alone, alarms = [], [], [], []
    for seed in range(150):
        y, f, truth, folder = made_up(seed)
        found = counts(Labelled.of(f, y), Moments.of(folder))
        by_labels = counts(Labelled.of(0 * f, y), Moments.of(0 * folder))
        held.append((found.low <= truth.sum(0)) & (truth.sum(0) <= found.high))
        widths.append(found.high - found.low)
        alarms.append([counts(Labelled.of(f, y), Moments.of(folder[:size])).shifted.any() for size in (1, 5, 20, 400)])
        alone.append(by_labels.high - by_labels.low)
    assert np.mean(held) >= 0.93 and np.mean(widths) < 0.9 * np.mean(alone)
    assert (np.mean(alarms, 0) <= 0.09).all(), "of like photographs one folder in twenty is said to differ, however few they are"
