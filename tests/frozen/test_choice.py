"""Whether the student is used: not where unlabelled rows mislead, but where they help."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from dicap.frozen.folds import assign_folds
from dicap.frozen.recommended import CLEAR, calibrated_losses, chosen
from dicap.frozen.solver import Solution
from dicap.sklearn import DiCaPClassifier

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from populations import MISLEADING, draw


def fitted(kind, seed, weight):
    """A classifier on a made-up population, and its mAP in percent."""
    p = draw(kind, seed)
    y = np.where(np.arange(len(p.y))[:, None] < p.labelled, p.y, -1)
    model = DiCaPClassifier(pseudo_weight=weight, random_state=seed).fit(p.x, y)
    return model, 100 * model.score(p.x_test, p.y_test)


@pytest.mark.promise(
    "Misleading unlabelled rows do little harm: in 19 of 20 such sets the mAP is at most 0.3 below the labelled rows alone",
    section="Hidden and held-out labels",
)
def test_where_unlabelled_rows_mislead_they_are_not_used():
    """At most one draw in twenty ends more than 0.3 below: benchmarks/sets.py over two hundred of them, here a few."""
    below, harm = 0, []
    for seed in range(3):
        for kind in MISLEADING:
            model, found = fitted(kind, seed, "auto")
            assert model.choice_ is not None
            if model.choice_.share:
                below += found < fitted(kind, seed, 0.0)[1] - 0.3
            elif seed == 0:
                harm.append(fitted(kind, seed, 0.5)[1] - found)
    assert below <= 1
    assert len(harm) >= 3 and max(harm) < 0 and min(harm) < -1, "they would have misled"


def test_where_they_help_it_is_the_student():
    rng = np.random.default_rng(1)
    truth = (rng.random((400, 4)) < 0.3).astype(int)
    x = truth @ rng.standard_normal((4, 40)) + 2 * rng.standard_normal((400, 40))
    y = np.where(np.arange(400)[:, None] < 40, truth, -1)
    auto, student = (DiCaPClassifier(pseudo_weight=weight, random_state=0).fit(x, y) for weight in ("auto", 0.5))
    assert auto.choice_ is not None and auto.choice_.share == 1 and student.choice_ is None
    assert student.score(x, truth) > DiCaPClassifier(pseudo_weight=0.0, random_state=0).fit(x, y).score(x, truth) + 0.01
    assert np.array_equal(auto.coef_, student.coef_) and np.array_equal(auto.curve_, student.curve_)
    assert auto.choice_.in_words().startswith("helped: log loss 0.")


# -- the parts


def losses_by_scipy(z, y):
    """As `calibrated_losses`, the slope and bias by a minimiser of its own."""
    known = y >= 0

    def loss(v):
        return known * (np.logaddexp(0, v[0] * z + v[1]) - np.where(known, y, 0) * (v[0] * z + v[1]))

    return loss(minimize(lambda v: loss(v).sum(), [1.0, 0.0]).x).sum(1)


def scores(seed=0, n=60, classes=3):
    rng = np.random.default_rng(seed)
    y = rng.integers(-1, 2, (n, classes)).astype(np.float32)
    return 3 * y + 4 * rng.standard_normal((n, classes)) - 1, y


@pytest.mark.parametrize("unknown", [-1, np.nan])
def test_losses_are_those_after_one_slope_and_bias(unknown):
    z, y = scores()
    y[y < 0] = unknown
    found = calibrated_losses(z, y)
    assert np.allclose(found, losses_by_scipy(z, np.nan_to_num(y, nan=-1)), atol=1e-3)
    assert np.allclose(found, calibrated_losses(0.3 * z - 2, y), atol=1e-3), "whatever chances a head states"
    backwards = calibrated_losses(-z, y)
    assert backwards.sum() > found.sum() + 1 and np.allclose(backwards, calibrated_losses(0 * z, y)), (
        "an order against the labels"
    )
    assert not calibrated_losses(z, np.where(y >= 0, 1, unknown)).round(9).any(), "of one outcome nothing is to be learnt"


def solutions(gain, n=90, classes=3, features=40):
    """Heads whose out-of-fold scores are noise and noise with `gain` of the labels: of three folds, and of all."""
    rng = np.random.default_rng(0)
    y = (rng.random((n, classes)) < 0.4).astype(np.float32)
    rows = np.concatenate([y, rng.standard_normal((n, features - classes))], axis=1).astype(np.float32)
    heads = []
    for signal in (0.3, 0.3 + gain):
        w = 0.1 * rng.standard_normal((4, classes, features))
        w[:, np.arange(classes), np.arange(classes)] = signal
        heads.append(Solution(w, np.zeros((4, classes)), np.zeros((4, classes)), np.zeros((4, classes)), 1))
    return *heads, rows, y, assign_folds(y, 3, 0)


def test_the_student_is_used_if_its_loss_is_clearly_lower():
    own, student, rows, y, fold = solutions(2.0)
    heads, choice = chosen(own, student, rows, y, fold)
    assert heads is student and choice.share == 1 and choice.evidence <= -CLEAR
    assert choice.log_loss[0] > choice.log_loss[1]
    assert not chosen(own, own, rows, y, fold)[1].evidence
    heads, turned = chosen(student, own, rows, y, fold)
    assert heads is student and not turned.share and turned.evidence > 0
    assert turned.in_words().startswith("did not clearly help, so they were not used: log loss 0.")
    permuted = np.random.default_rng(1).permutation(len(y))
    again = chosen(own, student, rows[permuted], y[permuted], fold[permuted])[1]
    assert np.allclose(again.evidence, choice.evidence, atol=1e-3) and again.share == 1


def test_a_mixture_is_a_head_between_both_where_it_alone_lowers_the_loss_clearly():
    own, student, rows, y, fold = solutions(2.0)
    wild = student._replace(w=student.w + 0.45 * np.random.default_rng(5).standard_normal(student.w.shape))
    heads, choice = chosen(own, wild, rows, y, fold)
    assert 0 < choice.share < 1 and choice.evidence <= -CLEAR and choice.in_words().endswith("of their change")
    between = (1 - choice.share) * own.logits(rows) + choice.share * wild.logits(rows)
    assert np.allclose(heads.logits(rows), between, atol=1e-4)
