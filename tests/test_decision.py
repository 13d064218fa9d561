"""Decisions and the correctness curve: against loops, against truth that is known, and through JSON."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dicap.decision import Curve, Decisions, carry_over, fit_curve, logit, plain, reliability


def drawn(n, classes, sharpness, seed):
    """Scores of a network that is `sharpness` times too sure of itself, and labels; and the true chance as a function."""
    rng = np.random.default_rng(seed)
    x = rng.normal(-1, 2, (n, classes))
    labels = (rng.random(x.shape) < 1 / (1 + np.exp(-x))).astype(np.uint8)
    return 1 / (1 + np.exp(-sharpness * x)), labels, lambda p: 1 / (1 + np.exp(-logit(p) / sharpness))


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0])
def test_the_curve_finds_the_truth_however_sure_the_network_is(sharpness):
    p, y, true = drawn(2000, 10, sharpness, 0)
    curve = fit_curve(p, y)
    q, _, _ = drawn(500, 10, sharpness, 1)
    assert np.abs(curve.present(q) - true(q)).mean() < 0.02
    assert curve.entries == p.size and (np.diff(curve.logit) > 0).all() and (np.diff(curve.rate) >= 0).all()


def test_forty_images_are_enough_for_a_rough_curve():
    errors = []
    for seed in range(20):
        p, y, true = drawn(40, 10, 3.0, seed)
        errors.append(np.abs(fit_curve(p, y).present(p) - true(p)).mean())
    assert np.mean(errors) < 0.06


@pytest.mark.parametrize("value", [0, 1])
def test_a_curve_of_one_kind_of_label_is_flat(value):
    p = np.linspace(0, 1, 60).reshape(20, 3)
    curve = fit_curve(p, np.full(p.shape, value))
    assert np.allclose(curve.present(p), value)


def test_a_single_image_gives_a_curve():
    assert 0 <= fit_curve(np.array([[0.9]]), np.array([[1]])).present(np.array([[0.5]]))[0, 0] <= 1
    assert len(fit_curve(np.full((50, 3), 0.7), np.tile([1, 0, 0], (50, 1))).rate) == 1


def test_carrying_over_finds_the_chance_at_the_new_confidences():
    """A network that became twice as sure on the same evidence: the curve must follow, without labels."""
    p, y, true = drawn(3000, 10, 1.0, 0)
    after = 1 / (1 + np.exp(-2 * logit(p)))
    carried = carry_over(fit_curve(p, y), p, after)
    assert np.abs(carried.present(after) - true(p)).mean() < 0.02
    assert carried.entries == p.size


def loop(p, tau_pos, tau_neg, curve):
    answers, chances = np.empty(p.shape, int), np.full(p.shape, np.nan)
    for i in range(p.shape[0]):
        for c in range(p.shape[1]):
            value = p[i, c]
            answer = 1 if value > tau_pos[c] or (value >= tau_pos[c] == tau_neg[c]) else 0 if value < tau_neg[c] else -1
            if curve is not None and answer >= 0:
                present = curve.present(np.array([value]))[0]
                chances[i, c] = present if answer else 1 - present
                if chances[i, c] < 0.5:
                    answer, chances[i, c] = -1, np.nan
            answers[i, c] = answer
    return answers, chances


@given(st.integers(0, 1000), st.booleans())
def test_decisions_against_a_loop(seed, with_curve):
    rng = np.random.default_rng(seed)
    taus = np.sort(rng.integers(0, 5, (2, 4)) / 4, axis=0)
    p = rng.integers(0, 9, (6, 4)) / 8
    curve = Curve(np.array([-2.0, 1.0]), np.array([0.1, 0.8]), 7) if with_curve else None
    decisions = Decisions(taus[1], taus[0], np.zeros(4), curve, "")
    answers, chances = decisions.decide(p)
    expected = loop(p, taus[1], taus[0], curve)
    assert (answers == expected[0]).all() and np.array_equal(chances, expected[1], equal_nan=True)


def test_plain_decisions_are_at_one_half():
    answers, chances = plain(np.zeros(3), "none").decide(np.array([[0.49, 0.5, 0.51]]))
    assert answers.tolist() == [[0, 1, 1]] and np.isnan(chances).all()


def test_decisions_survive_json():
    for decisions in (
        Decisions(np.array([0.9]), np.array([0.2]), np.array([0.1]), Curve(np.array([0.5]), np.array([0.7]), 3), "why"),
        plain(np.array([np.nan]), "none"),
    ):
        again = Decisions.from_dict(json.loads(json.dumps(decisions.to_dict(), allow_nan=False)))
        assert again.to_dict() == decisions.to_dict() and again.note == decisions.note


def test_reliability_against_a_loop():
    rng = np.random.default_rng(2)
    chance = np.r_[rng.random(300), 1.0, np.nan]
    right = rng.random(302) < 0.7
    rows = reliability(chance, right)
    assert sum(row["n"] for row in rows) == 301 and len(rows) == 10
    for row in rows:
        inside = [i for i in range(301) if row["left"] <= chance[i] < row["right"] or (chance[i] == 1 and row["right"] == 1)]
        assert row["n"] == len(inside)
        assert row["chance"] == pytest.approx(np.mean([chance[i] for i in inside]))
        assert row["share"] == pytest.approx(np.mean([right[i] for i in inside]))
    deciles = reliability(chance, right, by_rank=True)
    assert {row["n"] for row in deciles} <= {30, 31} and len(deciles) == 10
    order = np.argsort(chance[:301])
    assert deciles[0]["share"] == pytest.approx(right[order[: deciles[0]["n"]]].mean())
    assert reliability(np.full(3, np.nan), np.ones(3)) == reliability(np.full(3, np.nan), np.ones(3), by_rank=True) == []
