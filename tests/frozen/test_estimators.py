"""Estimators of the correctness rate against curves that are known, and on the smallest D_est there can be."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from dicap.calibration.ranks import curve_by_rank
from dicap.calibration.rates import between_knots, count_bins, estimate_rates, log_losses
from dicap.frozen.logistic import class_shares, rates_of_classes
from dicap.frozen.loops.recommended import recorded_rates

LEARNT = ["class_score", "groups"]  # of the recommended rule, and what a published model carries


def world(images: int, seed: int, classes: int = 8):
    """(p, y, true rate): over-confident scores whose true rate is known."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.5, 2.5, (images, classes))
    odds = 0.7 * np.log(p) - 1.6 * np.log1p(-p) - 0.4
    rate = 1 / (1 + np.exp(-odds))
    return torch.from_numpy(p), torch.from_numpy((rng.random(p.shape) < rate).astype(np.int8)), torch.from_numpy(rate)


def fit_curve(p, y, p_unlabelled, share):
    """The curves of the recommended rule: rates (N, C) of confidences (N, C)."""
    knots, rates = map(torch.from_numpy, rates_of_classes(p.double().numpy(), y.numpy(), p_unlabelled.numpy(), share))
    return lambda p: between_knots(p, knots, rates)


def learnt(name: str, p, y, p_unlabelled):
    """The curves of the classes, or the one of groups by rank."""
    if name == "groups":
        curve = curve_by_rank(p.numpy(), y.numpy())
        return lambda p: torch.from_numpy(curve.at(p.numpy()))
    return fit_curve(p, y, p_unlabelled, class_shares(y.numpy()))


@pytest.mark.parametrize("name", LEARNT)
def test_on_few_images_every_estimator_beats_the_papers_bins(name):
    p, y, rate = world(4000, 9)
    errors, losses = {name: [], "bins": []}, {name: [], "bins": []}
    for seed in range(8):
        p_est, y_est, _ = world(20, seed)
        bins = estimate_rates(*count_bins(p_est, y_est, 20), empty_bin="zero")
        for key, r in (
            (name, learnt(name, p_est, y_est, p)(p)),
            ("bins", bins.at(p)),
        ):
            errors[key].append(float((r - rate).abs().mean()))
            losses[key].append(float(log_losses(r, y).mean()))
    assert np.mean(errors[name]) < 0.8 * np.mean(errors["bins"])
    assert np.mean(losses[name]) < np.mean(losses["bins"])


def slow_class_score(p, y, p_unlabelled, share, at):
    """Rates (n, C) at confidences `at` (n, C), entry by entry: logistic regression on share, standardised score, and rank."""
    n, classes = p_unlabelled.shape

    def row(value, c):
        odds = np.log(np.clip(p_unlabelled[:, c], 1e-6, 1 - 1e-6)) - np.log1p(-np.clip(p_unlabelled[:, c], 1e-6, 1 - 1e-6))
        value_odds = np.log(np.clip(value, 1e-6, 1 - 1e-6)) - np.log1p(-np.clip(value, 1e-6, 1 - 1e-6))
        above = (sum(other >= value for other in p_unlabelled[:, c]) + 0.5) / (n + 1)
        return [(value_odds - odds.mean()) / (odds.std() + 1e-6), np.log(share[c] / (1 - share[c])), -np.log(above / share[c])]

    x = [row(p[i, c], c) for c in range(classes) for i in range(len(p))]
    target = [y[i, c] for c in range(classes) for i in range(len(p))]
    weight = [1.0] * len(x)
    middle = int(np.argsort(share)[classes // 2])
    for outcome in (0, 1):  # two entries on which the network's own confidence is right
        for k in range(20):
            centre = (k + 0.5) / 20
            x.append(row(centre, middle))
            target.append(outcome)
            weight.append((centre if outcome else 1 - centre) * 2 / 20)
    x = np.array(x)
    mean, deviation = x.mean(0), x.std(0)
    model = LogisticRegression(C=100.0, max_iter=1000, tol=1e-10).fit((x - mean) / deviation, target, sample_weight=weight)
    assert (model.coef_ >= 0).all(), "the loop knows no rule for a feature that lowers the odds"
    out = np.zeros(at.shape)
    for i in range(len(at)):
        for c in range(classes):
            out[i, c] = 1 / (1 + np.exp(-model.decision_function([(np.array(row(at[i, c], c)) - mean) / deviation])[0]))
    return out


def test_class_score_is_a_logistic_regression_on_share_score_and_rank():
    (p, y, _), (p_unlabelled, _, _) = world(60, 0, classes=3), world(50, 1, classes=3)
    share = class_shares(y.numpy())
    curve = fit_curve(p, y, p_unlabelled, share)
    knots = torch.from_numpy(rates_of_classes(p.numpy(), y.numpy(), p_unlabelled.numpy(), share)[0])
    at = knots[::20].repeat(3, 1).T  # where a curve is exact
    expected = slow_class_score(p.numpy(), y.numpy(), p_unlabelled.numpy(), share, at.numpy())
    assert np.allclose(curve(at).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("scores", [[0.9], [0.4, 0.4], [0.01, 0.02, 0.01]])
def test_a_class_of_few_unlabelled_entries_leaves_the_others_their_rates(scores):
    """One fit is made for all classes, and scores that have hardly a spread are not to carry it away."""
    (p, y, _), (p_unlabelled, _, _) = world(80, 0, classes=4), world(200, 1, classes=4)
    share, few = class_shares(y.numpy()), p_unlabelled.clone()
    few[:, 3] = torch.nan
    few[: len(scores), 3] = torch.tensor(scores)
    one, other = (fit_curve(p, y, part, share)(p_unlabelled)[:, :3] for part in (p_unlabelled, few))
    assert (one - other).abs().mean() < 0.02


@pytest.mark.parametrize("name", LEARNT)
@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (4, 1)])
def test_one_image_one_class_one_outcome(name, label, shape):
    p = torch.full(shape, 0.3)
    y = torch.full(shape, label)
    curve = learnt(name, p, y, p)
    r = curve(torch.linspace(0, 1, 50).repeat(shape[1], 1).T)
    assert r.isfinite().all() and (r >= 0).all() and (r <= 1).all()
    assert name != "groups" or (r == label).all(), "of one kind of label it is flat"
    other = learnt(name, p, 1 - y, p)
    seen, unseen = float(curve(p)[0, 0]), float(other(p)[0, 0])
    assert (seen > unseen) == bool(label), "what was seen moves the rate its way"


def test_the_rate_of_a_bin_is_the_mean_of_its_unlabelled_entries():
    (p, y, _), (p_unlabelled, _, _) = world(30, 0, classes=3), world(60, 1, classes=3)
    p_unlabelled = torch.where(p_unlabelled < 0.8, p_unlabelled, 0.79)  # the last bins stay empty
    knots, curves = rates_of_classes(p.numpy(), y.numpy(), p_unlabelled.numpy(), class_shares(y.numpy()))
    found = recorded_rates(knots, curves, p, y, p_unlabelled, bins=10)
    at = found.at
    rates = at(p_unlabelled).numpy()
    for c, row in enumerate(found.r_pos):
        for k in range(10):
            inside = [rates[i, c] for i in range(60) if int(float(p_unlabelled[i, c]) * 10) == k]
            expected = np.mean(inside) if inside else float(at(torch.full((1, 3), (k + 0.5) / 10, dtype=torch.float64))[0, c])
            assert float(row[k]) == pytest.approx(expected, abs=1e-9)
    assert found.n_pos.sum() == y.sum() and found.n_neg.sum() == (1 - y).sum()


@pytest.mark.parametrize("name", LEARNT)
@given(seed=st.integers(0, 50), images=st.integers(1, 30), extreme=st.booleans())
@settings(max_examples=12, deadline=None)
def test_rates_are_probabilities_that_do_not_fall_with_confidence(name, seed, images, extreme):
    p, y, _ = world(images, seed, classes=3)
    if extreme:
        p = p.round()
    curve = learnt(name, p, y, p)
    grid = torch.linspace(0, 1, 101, dtype=torch.float64).repeat(3, 1).T
    r = curve(grid)
    assert (r >= 0).all() and (r <= 1).all() and (r.diff(dim=0) >= -1e-12).all()


def test_shares_and_log_loss_by_hand():
    assert class_shares(np.array([[1, 0], [1, 0], [0, 0]])).tolist() == [2.5 / 4, 0.5 / 4]
    r, y = torch.tensor([[0.8, 0.0]]), torch.tensor([[1, 1]])
    assert log_losses(r, y).mean() == pytest.approx(-(np.log(0.8) + np.log(1e-4)) / 2, abs=1e-6)


# -- groups by rank: what a published model carries ---------------------------------------------------------


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
