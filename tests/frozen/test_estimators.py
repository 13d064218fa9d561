"""The curve by rank against curves that are known, and on the smallest D_est there can be."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dicap.calibration.ranks import curve_by_rank
from dicap.frozen.loops.recommended import recorded_rates


def world(images: int, seed: int, classes: int = 8):
    """(p, y, true rate): over-confident scores whose true rate is known."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.5, 2.5, (images, classes))
    odds = 0.7 * np.log(p) - 1.6 * np.log1p(-p) - 0.4
    rate = 1 / (1 + np.exp(-odds))
    return torch.from_numpy(p), torch.from_numpy((rng.random(p.shape) < rate).astype(np.int8)), torch.from_numpy(rate)


def test_the_rate_of_a_bin_is_the_mean_of_its_unlabelled_entries():
    (p, y, _), (p_unlabelled, _, _) = world(30, 0, classes=3), world(60, 1, classes=3)
    p_unlabelled = torch.where(p_unlabelled < 0.8, p_unlabelled, 0.79)  # the last bins stay empty
    curve = curve_by_rank(p.numpy(), y.numpy())
    found, rates = recorded_rates(curve, p, y, p_unlabelled, bins=10), curve.at(p_unlabelled.numpy())
    for k, rate in enumerate(found.r_pos[:8]):
        inside = rates[(p_unlabelled.numpy() * 10).astype(int) == k]
        assert len(inside) and float(rate) == pytest.approx(inside.mean(), abs=1e-7)
    assert (found.r_pos[8:] == found.r_pos[7]).all(), "of an empty bin the nearest one's"
    assert found.n_pos.sum() == y.sum() and found.n_neg.sum() == (1 - y).sum()


@given(seed=st.integers(0, 50), images=st.integers(1, 30), extreme=st.booleans())
@settings(max_examples=12, deadline=None)
def test_rates_are_probabilities_that_do_not_fall_with_confidence(seed, images, extreme):
    p, y, _ = world(images, seed, classes=3)
    if extreme:
        p = p.round()
    r = curve_by_rank(p.numpy(), y.numpy()).at(np.linspace(0, 1, 101))
    assert (r >= 0).all() and (r <= 1).all() and (np.diff(r) >= -1e-12).all()


def drawn(n, classes, sharpness, seed):
    """Scores of a network that is `sharpness` times too sure of itself, labels, and the true chance as a function of scores."""
    rng = np.random.default_rng(seed)
    x = rng.normal(-1, 2, (n, classes))
    labels = (rng.random(x.shape) < 1 / (1 + np.exp(-x))).astype(np.uint8)
    p = 1 / (1 + np.exp(-sharpness * x))
    return p, labels, lambda p: 1 / (1 + ((1 - p) / p) ** (1 / sharpness))


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0])
def test_groups_find_the_truth_however_sure_the_network_is(sharpness):
    p, y, true = drawn(2000, 10, sharpness, 0)
    curve = curve_by_rank(p, y)
    q, _, _ = drawn(500, 10, sharpness, 1)
    assert np.abs(curve.at(q) - true(q)).mean() < 0.02
    assert (np.diff(curve.knots) > 0).all() and (np.diff(curve.rate) >= 0).all() and len(curve.knots) <= 60
