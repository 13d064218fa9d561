"""What must not change the answer, through the defaults (`C: auto`, cross-fitting): the estimator, the solver under every head.

Data are drawn small and odd: classes of one outcome, unknown entries, equal rows with unequal labels, features that never change.
"""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sklearn.metrics import get_scorer, log_loss, roc_auc_score

from dicap.frozen.solver import solve
from dicap.sklearn import DiCaPClassifier

no_shrinking = settings(deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
few = settings(no_shrinking, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
many = settings(no_shrinking, max_examples=25)


class World:
    """x (n, D), y (n, C) with -1 where unknown, labelled rows first; x_test (30, D)."""

    def __init__(self, x, y, labelled):
        self.x, self.y, self.x_test, self.labelled = x[: len(y)], y, x[len(y) :], labelled

    def __repr__(self):
        return f"World of {self.labelled} of {self.y.shape} rows and classes labelled, {self.x.shape[1]} features"


@st.composite
def worlds(draw):
    """Labels that move the features; the last class may be one that no labelled row bears, or all."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    c, labelled, unlabelled = draw(st.integers(1, 4)), draw(st.integers(15, 40)), draw(st.integers(2, 40))
    features, n = draw(st.integers(3, 16)), labelled + unlabelled
    y = (rng.random((n + 30, c)) < rng.uniform(0.15, 0.5, c)).astype(int)
    x = y @ rng.standard_normal((c, features)) + draw(st.sampled_from([0.7, 1.5])) * rng.standard_normal((n + 30, features))
    if draw(st.booleans()):
        y[:n, -1] = draw(st.sampled_from([0, 1] if c > 1 else [0]))  # without a 0 anywhere -1 could mean absent
    if draw(st.booleans()):
        x[1:8] = x[0]  # equal rows, of unequal labels; no more than have room among the neighbours
    hidden = y[:n].copy()
    hidden[labelled:] = -1
    if draw(st.booleans()):
        unknown = rng.random((labelled, c)) < 0.3
        unknown[unknown.all(1)] = unknown[:4] = False
        hidden[:labelled][unknown] = -1
    return World(x, hidden, labelled)


def fitted(x, y, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of the last candidate: easily separated data want no penalty
        return DiCaPClassifier(**{"random_state": 0} | parameters).fit(x, y)


def probabilities(x, y, x_test, **parameters):
    return fitted(x, y, **parameters).predict_proba(x_test)


# -- the estimator ------------------------------------------------------------------------------------------------------


@pytest.mark.promise("The order of rows changes no solved head", section="Numbers")
@few
@given(world=worlds(), seed=st.integers(0, 1000))
def test_permuting_rows_changes_nothing(world, seed):
    """Where rows are equal, which of them is another row's neighbour is by order."""
    neighbours = {"neighbours": 0} if len(np.unique(world.x, axis=0)) < len(world.x) else {}
    order = np.random.default_rng(seed).permutation(len(world.x))
    before = fitted(world.x, world.y, **neighbours)
    after = fitted(world.x[order], world.y[order], **neighbours)
    assert after.C_ == before.C_
    assert np.allclose(after.predict_proba(world.x_test), before.predict_proba(world.x_test), atol=5e-3)


@pytest.mark.promise("The unit of a feature changes no solved head", section="Numbers")
@few
@given(world=worlds(), seed=st.integers(0, 1000))
@pytest.mark.parametrize("kind", ["root", "standard", "plain"])
def test_the_unit_of_a_feature_changes_nothing(kind, world, seed):
    """Of each feature a unit of its own, one of them constant where labels are; of plain features one unit for all."""
    size, rng = world.x.shape[1], np.random.default_rng(seed)
    unit = np.full(size, 10.0 ** rng.integers(-14, 15)) if kind == "plain" else 10 ** rng.uniform(-3, 3, size)
    x, x_test = (np.where(np.arange(size) == 0, 0 if kind == "plain" else part, part) for part in (world.x, world.x_test))
    if kind != "plain":
        x[:, 0] = 2 * (seed % 2)
    before, after = fitted(x, world.y, features=kind), fitted(x * unit, world.y, features=kind)
    assert np.allclose(after.predict_proba(x_test * unit), before.predict_proba(x_test), atol=5e-3)


@few
@given(world=worlds(), seed=st.integers(0, 1000))
def test_permuting_classes_permutes_the_answer(world, seed):
    order = np.random.default_rng(seed).permutation(world.y.shape[1])
    x = world.x + 1e-9 * np.random.default_rng(seed).standard_normal(world.x.shape)  # equal rows are told apart by class
    # The fit of the rates begins with two pseudo-entries of one class, which of equally frequent ones is by order.
    moved = probabilities(x, world.y[:, order], world.x_test) - probabilities(x, world.y, world.x_test)[:, order]
    assert np.abs(moved).max() < 0.1 and np.abs(moved).mean() < 0.02


@pytest.mark.promise("scikit-learn's scorers and our metrics agree on `DiCaPClassifier`, for one class too", section="Numbers")
@pytest.mark.parametrize("c", [1, 2, 3])
def test_scikit_learn_s_scorers_say_what_the_metrics_say(c):
    """By decision, by probability, by answer, of one class, two, and more."""
    rng = np.random.default_rng(c)
    y = (rng.random((120, c)) < 0.4).astype(int)
    x = y @ rng.standard_normal((c, 6)) + rng.standard_normal((120, 6))
    model = fitted(x[:40], y[:40])
    x_test, y_test = x[40:], y[40:]
    decision, p = model.decision_function(x_test), model.predict_proba(x_test)
    assert roc_auc_score(y_test, decision) > 0.6
    assert get_scorer("roc_auc")(model, x_test, y_test) == pytest.approx(roc_auc_score(y_test, decision))
    assert get_scorer("average_precision")(model, x_test, y_test) == pytest.approx(model.score(x_test, y_test))
    assert get_scorer("accuracy")(model, x_test, y_test) == pytest.approx((model.predict(x_test) == y_test).all(1).mean())
    if c == 1:
        assert get_scorer("neg_log_loss")(model, x_test, y_test) == pytest.approx(-log_loss(y_test, p[:, 0]))
    else:
        assert get_scorer("roc_auc_ovr")(model, x_test, y_test) == pytest.approx(roc_auc_score(y_test, p))


# -- the solver, under every head and every penalty ----------------------------------------------------------------------


@pytest.mark.promise("The solver's starting point changes no solved head", section="Numbers")
@many
@given(world=worlds(), loss_weight=st.sampled_from([1e-3, 0.03, 1.0]), seed=st.integers(0, 1000))
def test_where_the_solver_starts_changes_nothing(world, loss_weight, seed):
    x, y = world.x[: world.labelled], world.y[: world.labelled]
    weight, rng = (y >= 0).astype(float), np.random.default_rng(seed)
    cold = solve(x, y, weight=weight, loss_weight=loss_weight)
    start = cold._replace(w=rng.standard_normal(cold.w.shape), b=3 * rng.standard_normal(cold.b.shape))
    warm = solve(x, y, weight=weight, loss_weight=loss_weight, start=start)
    assert np.allclose(warm.logits(x), cold.logits(x), atol=5e-2)
