"""The curve by rank against curves that are known, and on the smallest D_est there can be."""

import numpy as np
import pytest
import torch

from dicap.calibration.ranks import curve_by_rank
from dicap.frozen.loops.recommended import recorded_rates


def drawn(n, classes, sharpness, seed):
    """Scores of a network that is `sharpness` times too sure of itself, labels, and the true chance as a function of scores."""
    rng = np.random.default_rng(seed)
    x = rng.normal(-1, 2, (n, classes))
    labels = (rng.random(x.shape) < 1 / (1 + np.exp(-x))).astype(np.uint8)
    p = 1 / (1 + np.exp(-sharpness * x))
    return p, labels, lambda p: 1 / (1 + ((1 - p) / p) ** (1 / sharpness))


def test_the_rate_of_a_bin_is_the_mean_of_its_unlabelled_entries():
    (p, y, _), (p_unlabelled, _, _) = drawn(30, 3, 1, 0), drawn(60, 3, 1, 1)
    p_unlabelled = np.where(p_unlabelled < 0.8, p_unlabelled, 0.79)  # the last bins stay empty
    curve = curve_by_rank(p, y)
    found, rates = recorded_rates(curve, *map(torch.from_numpy, (p, y, p_unlabelled)), bins=10), curve.at(p_unlabelled)
    for k, rate in enumerate(found.r_pos[:8]):
        inside = rates[(p_unlabelled * 10).astype(int) == k]
        assert len(inside) and float(rate) == pytest.approx(inside.mean(), abs=1e-7)
    assert (found.r_pos[8:] == found.r_pos[7]).all(), "of an empty bin the nearest one's"
    assert found.n_pos.sum() == y.sum() and found.n_neg.sum() == (1 - y).sum()


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0])
def test_groups_find_the_truth_however_sure_the_network_is(sharpness):
    p, y, true = drawn(2000, 10, sharpness, 0)
    curve = curve_by_rank(p, y)
    q, _, _ = drawn(500, 10, sharpness, 1)
    assert np.abs(curve.at(q) - true(q)).mean() < 0.02
    assert (np.diff(curve.knots) > 0).all() and (np.diff(curve.rate) >= 0).all() and len(curve.knots) <= 60
