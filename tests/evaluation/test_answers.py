"""What follows from a model's evidence, against loops that do it the obvious way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dicap.calibration.counts import ENOUGH, Labelled
from dicap.calibration.evidence import Evidence
from dicap.calibration.ranks import Curve, curve_by_rank
from dicap.evaluation.answers import Answers

CLASSES = 4


def drawn(seed, images=30):
    """Evidence of drawn scores, some of them equal, with entries of which nothing is known; thresholds may be equal."""
    rng = np.random.default_rng(seed)
    p = (rng.integers(0, 101, (images, CLASSES)) / 100).astype(np.float32)
    y = (rng.random(p.shape) < p).astype(np.int8)
    y[rng.random(p.shape) < 0.2] = -1
    tau_neg, tau_pos = np.sort(rng.integers(0, 5, (2, CLASSES)) / 4, axis=0)
    at_rank = p**2 if seed % 2 else None
    return Evidence(tau_pos, tau_neg, np.zeros(CLASSES), "drawn", p, y, at_rank)


def slow_chance(curve, value):
    """P(y = 1) at a confidence: on the line between the two knots beside its log-odds."""
    x = np.log(np.clip(value, 1e-6, 1 - 1e-6) / (1 - np.clip(value, 1e-6, 1 - 1e-6)))
    for (left, low), (right, high) in zip(zip(*curve, strict=True), list(zip(*curve, strict=True))[1:], strict=False):
        if left <= x <= right:
            return low + (high - low) * (x - left) / (right - left)
    return curve.rate[0] if x < curve.knots[0] else curve.rate[-1]


@given(st.integers(0, 1000), st.booleans())
def test_answers_are_those_of_a_loop(seed, with_scores):
    evidence = drawn(seed, images=30 if with_scores else 0)
    p = np.random.default_rng(seed).integers(0, 9, (6, CLASSES)) / 8
    answers, chances = Answers.of(evidence).decide(p)
    for i in range(6):
        for c in range(CLASSES):
            value, high, low, chance = p[i, c], evidence.tau_pos[c], evidence.tau_neg[c], np.nan
            answer = 1 if value > high or (value >= high == low) else 0 if value < low else -1
            if with_scores and answer >= 0:
                present = slow_chance(curve_by_rank(evidence.p, evidence.y), value)
                chance = present if answer else 1 - present
                if chance < 0.5:
                    answer, chance = -1, np.nan
            assert answers[i, c] == answer and chances[i, c] == pytest.approx(chance, nan_ok=True)


def test_the_chance_of_presence_is_the_curves_or_the_confidence_itself():
    p = np.array([[0.0, 0.5, 1.0]], np.float32)
    nothing = Evidence.none(np.zeros(3), "none")
    measured = Answers(nothing, Curve(np.array([-2.0, 2.0]), np.array([0.1, 0.7])))
    assert measured.present(p).tolist() == [pytest.approx([0.1, 0.4, 0.7])]
    assert Answers.of(nothing).present(p).tolist() == p.tolist()
    assert nothing.measured is None and Answers.of(nothing).f1_threshold() is None


@given(st.integers(0, 1000))
def test_moments_are_of_scores_at_rank_where_enough_images_show_the_class(seed):
    evidence = drawn(seed)
    present, p, y = Answers.of(evidence).present, evidence.p, evidence.y
    for c, column in enumerate(p.T.copy()):
        if evidence.at_rank is not None and (y[:, c] == 1).sum() >= ENOUGH:
            column = evidence.at_rank[:, c]
        expected = Labelled.of(present(column[:, None]), y[:, [c]])
        for moments, found in zip(expected, Answers.of(evidence).labelled(), strict=True):
            np.testing.assert_allclose(np.ravel(moments), [each[c] for each in found], atol=1e-12)
