"""Decisions against a loop and through JSON, and their reliability."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dicap.calibration.curve import Curve
from dicap.calibration.decision import Decisions, plain, reliability


def curve_of(knots, rates):
    return Curve(torch.tensor(knots).double(), torch.tensor(rates).double(), log_odds=True)


def loop(p, tau_pos, tau_neg, curve):
    answers, chances = np.empty(p.shape, int), np.full(p.shape, np.nan)
    for i in range(p.shape[0]):
        for c in range(p.shape[1]):
            value = p[i, c]
            answer = 1 if value > tau_pos[c] or (value >= tau_pos[c] == tau_neg[c]) else 0 if value < tau_neg[c] else -1
            if curve is not None and answer >= 0:
                present = curve.at(torch.tensor([[value]])).item()
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
    curve = curve_of([-2.0, 1.0], [0.1, 0.8]) if with_curve else None
    decisions = Decisions(taus[1], taus[0], np.zeros(4), curve, "")
    answers, chances = decisions.decide(p)
    expected = loop(p, taus[1], taus[0], curve)
    assert (answers == expected[0]).all() and np.array_equal(chances, expected[1], equal_nan=True)


def test_decisions_survive_json():
    for decisions in (
        Decisions(np.array([0.9]), np.array([0.2]), np.array([0.1]), curve_of([0.5], [0.7]), "why", 3),
        plain(np.array([np.nan]), "none"),
    ):
        again = Decisions.from_dict(json.loads(json.dumps(decisions.to_dict(), allow_nan=False)))
        assert again.to_dict() == decisions.to_dict() and again.note == decisions.note
        assert again.entries == decisions.entries
        p = np.array([[0.3], [0.8]])
        np.testing.assert_allclose(again.present(p), decisions.present(p), atol=1e-6)


def test_the_chance_of_presence_is_the_curves_or_the_confidence_itself():
    p = np.array([[0.0, 0.5, 1.0]], np.float32)
    measured = Decisions(*np.zeros((3, 3)), curve_of([-2.0, 2.0], [0.1, 0.7]), "", 9)
    assert measured.present(p).tolist() == [pytest.approx([0.1, 0.4, 0.7])]
    assert plain(np.zeros(3), "none").present(p).tolist() == p.tolist()


def test_reliability_against_a_loop():
    rng = np.random.default_rng(2)
    chance = np.r_[rng.random(300), 1.0, np.nan].reshape(151, 2)
    right = rng.random(chance.shape) < 0.7
    entries = [(i, c) for i in range(151) for c in range(2) if not np.isnan(chance[i, c])]
    rows = reliability(chance, right)
    assert sum(row["n"] for row in rows) == 301 and len(rows) == 10
    for row in rows:
        inside = [at for at in entries if row["left"] <= chance[at] < row["right"] or (chance[at] == 1 and row["right"] == 1)]
        assert row["n"] == len(inside) and row["images"] == len({i for i, _ in inside})
        assert row["chance"] == pytest.approx(np.mean([chance[at] for at in inside]))
        assert row["share"] == pytest.approx(np.mean([right[at] for at in inside]))
    assert reliability(np.full((3, 1), np.nan), np.ones((3, 1))) == []


def test_a_threshold_just_below_1_still_says_yes_when_it_was_saved():
    tau = np.nextafter(np.float32(1), np.float32(0)) * np.ones(1)
    decisions = Decisions(tau, tau, np.ones(1), None, "")
    again = Decisions.from_dict(json.loads(json.dumps(decisions.to_dict())))
    assert decisions.decide(tau[None])[0] == again.decide(tau[None])[0] == again.decide(np.ones((1, 1)))[0] == 1
