"""The linear head solved as a convex problem: against scikit-learn, and what must not change the answer."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from dicap.frozen import solver
from dicap.frozen.folds import assign_folds, fold_weights, out_of_fold_scores
from dicap.frozen.loss_weight import log_losses, logits_out_of_fold
from dicap.frozen.solver import rotate, solve

TIGHT = 1e-7


def world(n=60, features=8, classes=5, seed=0, dtype=np.float64):
    """Correlated features of very different scales, and labels that depend on them: (x, y)."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, features)) @ rng.standard_normal((features, features)) * np.geomspace(0.1, 3, features)
    odds = x @ rng.standard_normal((features, classes)) - np.linspace(0, 2, classes)
    y = (rng.random((n, classes)) < 1 / (1 + np.exp(-odds))).astype(dtype)
    y[0], y[1] = 0, 1  # both outcomes in every class
    return x.astype(dtype), y


@pytest.mark.parametrize(("shape", "loss_weight"), [((60, 8), 0.01), ((20, 50), 30.0)])  # more rows than features, and fewer
def test_heads_soft_targets_and_entry_weights_are_those_of_scikit_learn(shape, loss_weight):
    """Which takes no soft targets: each row stands there twice, as a positive and as a negative of a part of its weight."""
    x, hard = world(*shape)
    rng = np.random.default_rng(2)
    heads, classes = 3, hard.shape[1]
    y = np.clip(hard * 0.9 + rng.uniform(0, 0.1, (heads, *hard.shape)), 0, 1)
    weight = rng.uniform(0.1, 2, y.shape) * (rng.random(y.shape) < 0.7)
    found = solve(x, y, weight=weight, loss_weight=loss_weight, tolerance=TIGHT)
    assert found.w.shape == (heads, classes, x.shape[1]) and found.gradient.max() <= TIGHT
    twice, outcome = np.concatenate([x, x]), np.repeat([1, 0], len(x))
    for h, c in itertools.product(range(heads), range(classes)):
        part = np.concatenate([weight[h, :, c] * y[h, :, c], weight[h, :, c] * (1 - y[h, :, c])])
        peer = LogisticRegression(C=loss_weight, tol=1e-10, max_iter=10000).fit(twice, outcome, sample_weight=part)
        assert np.allclose(found.w[h, c], peer.coef_[0], atol=1e-3)
        assert np.allclose(found.b[h, c], peer.intercept_[0], atol=1e-3)
        z = peer.decision_function(twice)
        loss = 0.5 * (peer.coef_**2).sum() + loss_weight * (part * (np.logaddexp(0, z) - outcome * z)).sum()
        assert found.objective[h, c] == pytest.approx(loss, rel=1e-6)


def test_float32_reaches_its_tolerance_and_says_when_it_does_not(monkeypatch):
    x, y = world(300, 40, dtype=np.float32)
    exact = solve(x.astype(np.float64), y, tolerance=TIGHT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = solve(x, y)
    assert found.gradient.max() <= 1e-3 and np.abs(found.w - exact.w).max() < 1e-3
    with np.errstate(all="ignore"), pytest.warns(RuntimeWarning, match="ended with a gradient norm of up to nan"):
        solve(x * np.float32(1e17), y, loss_weight=1e6)
    monkeypatch.setattr(solver, "ITERATIONS", 2)
    with pytest.warns(RuntimeWarning, match="5 of 5 problems ended with a gradient norm"):
        solve(x, y)


def test_a_warm_start_changes_the_way_and_not_the_end():
    x, y = world()
    cold = solve(x, y, tolerance=TIGHT)
    warm = solve(rotate(x), y, start=cold, tolerance=TIGHT)
    assert warm.iterations == 1 and np.allclose(warm.w, cold.w, atol=1e-9)


@pytest.mark.parametrize("unknown", [-1.0, np.nan])
def test_an_unknown_entry_is_one_of_weight_zero_whatever_stands_there(unknown):
    x, y = world()
    weight = (np.random.default_rng(3).random(y.shape) < 0.6).astype(float)
    with_marks = np.where(weight > 0, y, unknown)
    assert solve(x, y, weight=weight).w.tobytes() == solve(x, with_marks, weight=weight).w.tobytes()


def test_one_outcome_only_and_no_row_at_all_stay_finite():
    x, y = world()
    y[:, 0], y[:, 1] = 0, 1
    weight = np.ones_like(y)
    weight[:, 2] = 0
    found = solve(x, y, weight=weight, tolerance=TIGHT)
    assert np.isfinite(found.w).all() and np.isfinite(found.b).all()
    assert found.logits(x)[0, :, 0].max() < 0 < found.logits(x)[0, :, 1].min()
    assert not found.w[0, 2].any() and found.b[0, 2] == 0


@settings(max_examples=30, deadline=None)
@given(n=st.integers(6, 60), folds=st.integers(2, 6), seed=st.integers(0, 1000))
def test_folds_are_even_in_rows_and_in_every_class(n, folds, seed):
    rng = np.random.default_rng(seed)
    y = (rng.random((n, 6)) < [0.5, 0.3, 0.2, 0.1, 0.05, 0]).astype(int)
    fold = assign_folds(y, folds, seed)
    sizes = np.bincount(fold, minlength=folds)
    assert sizes.sum() == n and sizes.max() - sizes.min() <= 1
    assert np.array_equal(fold, assign_folds(y, folds, seed))


def test_a_class_of_one_label_a_row_is_dealt_out_evenly():
    y = np.eye(4, dtype=int)[np.repeat(np.arange(4), [5, 10, 15, 20])]
    fold = assign_folds(y, 5, 3)
    assert (np.stack([np.bincount(fold[y[:, c] > 0], minlength=5) for c in range(4)]).T == [1, 2, 3, 4]).all()


def test_out_of_fold_scores_come_from_the_head_that_did_not_see_the_row():
    x, y = world()
    fold = assign_folds(y, 3, 1)
    heads = solve(x, y, weight=fold_weights(fold), tolerance=TIGHT)
    scores = out_of_fold_scores(heads.logits(x), fold)
    assert all(np.allclose(scores[i], x[i] @ heads.w[fold[i]].T + heads.b[fold[i]]) for i in range(len(x)))
    with pytest.raises(AssertionError, match="no out-of-fold score"):
        out_of_fold_scores(heads.logits(x), np.where(fold == 0, -1, fold))


def test_the_losses_of_penalties_are_those_of_a_loop_over_folds_and_candidates():
    x, y = world(80, 20, 3)
    fold, candidates = assign_folds(y, 4, 0), (0.001, 0.03, 1.0, 30.0)
    y[5:9, 1] = -1
    found = log_losses(logits_out_of_fold(x, y, fold, candidates, tolerance=1e-6), y)
    known, losses = y >= 0, []
    for loss_weight in candidates:
        z = np.zeros_like(y)
        for k in range(4):
            inside = fold != k
            alone = solve(x[inside], y[inside], weight=known[inside], loss_weight=loss_weight, tolerance=1e-6)
            z[~inside] = alone.logits(x[~inside])[0]
        losses.append((np.logaddexp(0, z) - y * z)[known].mean())
    assert np.allclose(found, losses, atol=1e-5)
