"""The linear head solved as a convex problem: against scikit-learn, a slow loop, and what must not change the answer."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from dicap.linear import solver
from dicap.linear.crossfit import out_of_fold
from dicap.linear.folds import assign_folds, fold_weights, out_of_fold_scores
from dicap.linear.loss_weight import log_losses, logits_out_of_fold
from dicap.linear.solver import Solution, rotate, solve

TIGHT = 1e-7


def world(n=60, features=8, classes=5, seed=0, dtype=np.float64):
    """Correlated features of very different scales, and labels that depend on them: (x, y)."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, features)) @ rng.standard_normal((features, features)) * np.geomspace(0.1, 3, features)
    odds = x @ rng.standard_normal((features, classes)) - np.linspace(0, 2, classes)
    y = (rng.random((n, classes)) < 1 / (1 + np.exp(-odds))).astype(dtype)
    y[0], y[1] = 0, 1  # both outcomes in every class
    return x.astype(dtype), y


def slow(x, y, weight, loss_weight):
    """One class by Newton's method with a full Hessian: (w, b, objective)."""
    a = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    penalty = np.diag([1.0] * x.shape[1] + [0.0])
    v = np.zeros(a.shape[1])

    def value(v):
        z = a @ v
        return 0.5 * v @ penalty @ v + loss_weight * (weight * (np.logaddexp(0, z) - y * z)).sum()

    for _ in range(100):
        p = 1 / (1 + np.exp(-(a @ v)))
        gradient = penalty @ v + loss_weight * a.T @ (weight * (p - y))
        hessian = penalty + loss_weight * (a.T * (weight * p * (1 - p))) @ a
        move, step = np.linalg.solve(hessian, gradient), 1.0
        while value(v - step * move) > value(v) and step > 1e-9:
            step /= 2
        v = v - step * move
    return v[:-1], v[-1], value(v)


@pytest.mark.parametrize("shape", [(60, 8), (20, 50)])  # more rows than features, and fewer
@pytest.mark.parametrize("loss_weight", [0.01, 1.0, 30.0])
def test_every_class_is_what_scikit_learn_finds(shape, loss_weight):
    x, y = world(*shape)
    weight = np.random.default_rng(1).uniform(0.1, 2, y.shape)
    found = solve(x, y, weight=weight, loss_weight=loss_weight, tolerance=TIGHT)
    for c in range(y.shape[1]):
        peer = LogisticRegression(C=loss_weight, tol=1e-10, max_iter=10000).fit(x, y[:, c], sample_weight=weight[:, c])
        assert np.allclose(found.w[0, c], peer.coef_[0], atol=1e-3)
        assert np.allclose(found.b[0, c], peer.intercept_[0], atol=1e-3)
        z = x @ peer.coef_[0] + peer.intercept_[0]
        loss = 0.5 * (peer.coef_**2).sum() + loss_weight * (weight[:, c] * (np.logaddexp(0, z) - y[:, c] * z)).sum()
        assert found.objective[0, c] == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("shape", [(60, 8), (20, 50)])
def test_heads_soft_targets_entry_weights_and_penalties_are_those_of_a_slow_loop(shape):
    x, hard = world(*shape)
    rng = np.random.default_rng(2)
    heads, classes = 3, hard.shape[1]
    y = np.clip(hard * 0.9 + rng.uniform(0, 0.1, (heads, *hard.shape)), 0, 1)
    weight = rng.uniform(0, 1, y.shape) * (rng.random(y.shape) < 0.7)
    loss_weight = rng.uniform(0.1, 2, (heads, classes))
    found = solve(x, y, weight=weight, loss_weight=loss_weight, tolerance=TIGHT)
    assert found.w.shape == (heads, classes, x.shape[1]) and found.gradient.max() <= TIGHT
    for h in range(heads):
        for c in range(classes):
            w, b, objective = slow(x, y[h, :, c], weight[h, :, c], loss_weight[h, c])
            assert np.allclose(found.w[h, c], w, atol=1e-6) and found.b[h, c] == pytest.approx(b, abs=1e-6)
            assert found.objective[h, c] == pytest.approx(objective, rel=1e-9)


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
    near = solve(x, y, weight=1.01, start=cold, tolerance=TIGHT)
    assert near.iterations < solve(x, y, weight=1.01, tolerance=TIGHT).iterations


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


rows = st.integers(8, 30)
seeds = st.integers(0, 1000)


@settings(max_examples=15, deadline=None)
@given(n=rows, seed=seeds)
def test_rows_of_weight_zero_do_not_matter(n, seed):
    x, y = world(n, seed=seed)
    junk = np.concatenate([x, 100 * x[:5]]), np.concatenate([y, 1 - y[:5]])
    weight = np.concatenate([np.ones(n), np.zeros(5)])[:, None]
    one, two = solve(x, y, tolerance=TIGHT), solve(*junk, weight=weight, tolerance=TIGHT)
    assert np.allclose(one.w, two.w, atol=1e-6)


@settings(max_examples=15, deadline=None)
@given(n=rows, seed=seeds, features=st.integers(2, 40))
def test_rotating_rows_loses_nothing(n, seed, features):
    x, _ = world(n, features, seed=seed)
    rotated = rotate(x)
    assert rotated.coordinates.shape == (n, min(n, features))
    assert np.allclose(rotated.coordinates @ rotated.axes.T, x, atol=1e-9)
    assert np.allclose(rotated.axes.T @ rotated.axes, np.eye(min(n, features)), atol=1e-9)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(6, 60), folds=st.integers(2, 6), seed=seeds)
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
    assert np.allclose(out_of_fold(heads.w, heads.b, x, fold), 1 / (1 + np.exp(-scores)))
    permuted = y.copy()
    permuted[fold == 0] = permuted[fold == 0][::-1]
    other = solve(x, permuted, weight=fold_weights(fold), tolerance=TIGHT)
    # A fold's labels never reach its own head (what remains is rounding: the heads share their matrix products).
    assert np.allclose(out_of_fold_scores(other.logits(x), fold)[fold == 0], scores[fold == 0], atol=1e-5)
    assert not np.allclose(other.w[1], heads.w[1], atol=1e-2)
    with pytest.raises(AssertionError, match="seen by every head"):
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


def test_a_solution_scores_views_in_their_own_type():
    head = Solution(np.ones((2, 3, 4)), np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 3)), 1)
    assert head.logits(np.ones((5, 4), np.float32)).dtype == np.float32 and head.logits(np.ones((5, 4))).shape == (2, 5, 3)
