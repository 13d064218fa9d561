"""The curve over groups by rank: its logistic part against scikit-learn's, its isotonic part against pooling one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from dicap.calibration.ranks import PENALTY, curve_by_rank, isotonic_knots, logistic_curve


@given(st.integers(0, 999), st.floats(0.01, 8), st.sampled_from(["drawn", "parted", "one positive"]))
def test_the_logistic_curve_is_that_of_scikit_learn(seed, spread, kind):
    rng = np.random.default_rng(seed)
    x = rng.normal(rng.normal(), spread, 60)
    y = {"drawn": rng.random(60) < 1 / (1 + np.exp(-x)), "parted": x > np.median(x), "one positive": np.arange(60) == 7}[kind]
    found = logistic_curve(x, y.astype(float))
    if len(set(y)) == 1:
        assert (found == y[0]).all()
        return
    peer = LogisticRegression(C=1 / PENALTY, tol=1e-9, max_iter=10_000).fit(x[:, None], y)
    expected = peer.predict_proba(x[:, None])[:, 1] if peer.coef_[0, 0] > 0 else np.full(60, y.mean())
    assert np.allclose(found, expected, atol=1e-4)


def test_equal_scores_and_an_order_against_the_labels_have_the_mean():
    x, y = np.full(30, 0.1) * 3, np.arange(30) % 3 == 0
    assert np.allclose(logistic_curve(x, y.astype(float)), 1 / 3)
    assert np.allclose(logistic_curve(np.arange(30.0), np.arange(30) < 10.0), 1 / 3)


def pooled(rates, counts):
    """Isotonic regression: neighbours that fall are joined, one pair at a time."""
    blocks = [[rate, count, 1] for rate, count in zip(rates, counts, strict=True)]
    i = 0
    while i < len(blocks) - 1:
        (a, n, k), (b, m, j) = blocks[i : i + 2]
        if a > b:
            blocks[i : i + 2], i = [[(a * n + b * m) / (n + m), n + m, k + j]], max(i - 1, 0)
        else:
            i += 1
    return np.concatenate([[rate] * k for rate, _, k in blocks])


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 9), st.booleans()), min_size=1, max_size=12))
def test_knots_that_coincide_become_one_and_rates_never_fall(drawn):
    rates, counts, same = map(list, zip(*drawn, strict=True))
    knots = np.cumsum([not equal for equal in same]).astype(float)  # some of them equal to the one before
    found_knots, found = isotonic_knots(list(knots), rates, [np.arange(count) for count in counts])
    expected = pooled(rates, counts)
    assert found_knots.tolist() == sorted(set(knots)) and (np.diff(found) >= -1e-12).all()
    for knot, rate in zip(found_knots, found, strict=True):
        assert rate == pytest.approx(expected[knots == knot].mean())


@given(st.integers(0, 999), st.integers(4, 60), st.floats(0.1, 0.9))
def test_scores_that_separate_few_labels_have_chances_on_both_sides_of_a_half(seed, n, share):
    y = np.arange(n) < np.clip(round(share * n), 1, n - 1)
    p = np.random.default_rng(seed).uniform(0, 0.4, n) + 0.6 * y
    assert curve_by_rank(p, y).at(np.array([0.0, 1.0])).round().tolist() == [0, 1]
