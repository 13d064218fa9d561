"""Estimators of the correctness rate against curves that are known, and on the smallest D_est there can be."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from dicap.calibration.ranks import curve_by_rank
from dicap.frozen.class_curves import PENALTY, curves_of_classes
from dicap.frozen.loops.recommended import recorded_rates


def world(images: int, seed: int, classes: int = 8):
    """(p, y, true rate): over-confident scores whose true rate is known."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.5, 2.5, (images, classes))
    odds = 0.7 * np.log(p) - 1.6 * np.log1p(-p) - 0.4
    rate = 1 / (1 + np.exp(-odds))
    return torch.from_numpy(p), torch.from_numpy((rng.random(p.shape) < rate).astype(np.int8)), torch.from_numpy(rate)


def learnt(p, y):
    """Confidences -> rates."""
    curve = curve_by_rank(p.numpy(), y.numpy())
    return lambda p: torch.from_numpy(curve.at(p.numpy()))


def test_the_rate_of_a_bin_is_the_mean_of_its_unlabelled_entries():
    (p, y, _), (p_unlabelled, _, _) = world(30, 0, classes=3), world(60, 1, classes=3)
    p_unlabelled = torch.where(p_unlabelled < 0.8, p_unlabelled, 0.79)  # the last bins stay empty
    curves = curves_of_classes(p.numpy(), y.numpy(), p_unlabelled.numpy())
    found, rates = recorded_rates(curves, p, y, p_unlabelled, bins=10), curves.at(p_unlabelled.numpy())
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
    curve = learnt(p, y)
    grid = torch.linspace(0, 1, 101, dtype=torch.float64).repeat(3, 1).T
    r = curve(grid)
    assert (r >= 0).all() and (r <= 1).all() and (r.diff(dim=0) >= -1e-12).all()


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


# -- a curve a class: what weighs pseudo-labels in the recommended rule ---------------------------------------


def slow_curves(p, y, p_unlabelled):
    """Chances (m, C) at the unlabelled scores, entry by entry, by scikit-learn's logistic regression."""
    n, classes = p.shape
    log_odds = np.log(p / (1 - p)), np.log(p_unlabelled / (1 - p_unlabelled))
    x, target, share = [], [], []
    for c in range(classes):
        known = [i for i in range(n) if y[i, c] >= 0]
        f = (sum(y[i, c] for i in known) + 0.5) / (len(known) + 1)
        share.append(np.log(f / (1 - f)))
        for i in known:
            x.append([(log_odds[0][i, c] - log_odds[1][:, c].mean()) / log_odds[1][:, c].std(), share[c], 1])
            target.append(y[i, c])
    model = LogisticRegression(C=1 / PENALTY, fit_intercept=False, tol=1e-10, max_iter=1000).fit(x, target)
    assert (model.coef_[0, :2] > 0).all(), "the loop knows no rule for a coefficient below 0"
    rows = [[[z, share[c], 1] for c, z in enumerate(row)] for row in (log_odds[1] - log_odds[1].mean(0)) / log_odds[1].std(0)]
    return np.array([model.predict_proba(row)[:, 1] for row in rows])


def test_curves_of_classes_are_a_logistic_regression_on_score_and_share():
    (p, y, _), (p_unlabelled, _, _) = world(80, 0, classes=4), world(50, 1, classes=4)
    p, y, p_unlabelled = p.numpy(), y.numpy(), p_unlabelled.numpy()
    y[:, 3] = np.where(np.random.default_rng(0).random(80) < 0.8, y[:, 3] * (p[:, 3] > 0.4), -1)
    assert np.allclose(curves_of_classes(p, y, p_unlabelled).at(p_unlabelled), slow_curves(p, y, p_unlabelled), atol=1e-5)


@pytest.mark.parametrize("scores", [[], [0.9], [0.4, 0.4], [0.01, 0.02, 0.01]])
def test_a_class_of_few_unlabelled_entries_leaves_the_others_their_rates(scores):
    """One fit is made for all classes, and scores that have hardly a spread are not to carry it away."""
    (p, y, _), (p_unlabelled, _, _) = world(80, 0, classes=4), world(200, 1, classes=4)
    few = p_unlabelled.clone()
    few[:, 3] = torch.nan
    few[: len(scores), 3] = torch.tensor(scores)
    one, other = (curves_of_classes(p.numpy(), y.numpy(), part.numpy()).at(p_unlabelled.numpy()) for part in (p_unlabelled, few))
    assert np.abs(one - other)[:, :3].mean() < 0.02 and np.isfinite(other).all()


@given(seed=st.integers(0, 50), images=st.integers(1, 30), extreme=st.booleans(), upside_down=st.booleans())
@settings(max_examples=20, deadline=None)
def test_curves_of_classes_do_not_fall_with_the_confidence(seed, images, extreme, upside_down):
    p, y, _ = world(images, seed, classes=3)
    p, y = (p.round() if extreme else p).numpy(), (1 - y if upside_down else y).numpy()
    curves = curves_of_classes(p, y, p)
    r = curves.at(np.linspace(0, 1, 101).repeat(3).reshape(-1, 3))
    assert (r >= 0).all() and (r <= 1).all() and (np.diff(r, axis=0) >= 0).all()
    alike = curves_of_classes(p, np.full_like(y, 1), p).at(p)
    assert (alike > 0.5).all(), "of one kind of label it is near that label"
