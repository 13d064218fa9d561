"""Counts, shares and thresholds against loops that do it the obvious way; warnings on results that mean little."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dicap.metrics.operating_point import (
    at_threshold,
    best_threshold,
    chance_interval,
    digits,
    gap,
    of_answers,
    reliability,
    wilson,
)
from dicap.metrics.warnings import of_chance, of_results

SHAPE = (7, 3)
ANSWERS = arrays(np.int8, SHAPE, elements=st.integers(-1, 1))
LABELS = arrays(np.uint8, SHAPE, elements=st.integers(0, 1))
SCORES = arrays(np.float32, SHAPE, elements=st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]))


@given(ANSWERS, LABELS)
def test_the_counts_are_those_of_a_loop(answer, labels):
    pairs = list(zip(answer.ravel().tolist(), labels.ravel().tolist(), strict=True))
    found = of_answers(answer, labels)
    yes = [y for a, y in pairs if a == 1]
    no = [y for a, y in pairs if a == 0]
    positives = sum(y for _, y in pairs)
    counts = len(yes), len(no), 21 - len(yes) - len(no), positives
    assert (found["yes"], found["no"], found["unsure"], found["positives"]) == counts
    assert found["yes_right"] == (pytest.approx(sum(yes) / len(yes)) if yes else None)
    assert found["no_right"] == (pytest.approx(1 - sum(no) / len(no)) if no else None)
    assert found["yes_recall"] == (pytest.approx(sum(yes) / positives) if positives else None)
    assert found["f1"] == pytest.approx(2 * sum(yes) / max(1, len(yes) + positives))
    assert found["constant_right"] == pytest.approx(max(positives, 21 - positives) / 21)
    assert found["constant_f1"] == pytest.approx(2 * positives / (positives + 21))


@given(SCORES, LABELS)
def test_the_best_threshold_is_the_best_of_all(scores, labels):
    def value(threshold):
        return of_answers((scores >= threshold).astype(np.int8), labels)["f1"]

    best = best_threshold(scores, labels)
    if not labels.any():
        assert best is None and at_threshold(scores, labels, best)["f1_best"] is None
        return
    assert best in scores and value(best) == pytest.approx(max(value(t) for t in np.unique(scores)))
    assert at_threshold(scores, labels, best)["f1_best"] == value(best)


def test_wilson_at_known_values():
    low, high = wilson(np.array([0.5, 1.0, 0.0]), np.array([10, 13, 13]))
    np.testing.assert_allclose(low, [0.2366, 0.7719, 0.0], atol=1e-4)
    np.testing.assert_allclose(high, [0.7634, 1.0, 0.2281], atol=1e-4)
    assert [digits(width) for width in (0.3, 0.05, 0.004, 0.00001)] == [2, 2, 3, 4]


def test_an_image_counts_once_in_an_interval():
    chance = np.full((4, 50), 0.95)
    right = np.ones((4, 50))
    (row,) = reliability(chance, right)
    assert row["n"] == 200 and row["images"] == 4 and row["high"] == pytest.approx(1)
    assert row["low"] == pytest.approx(wilson(1.0, 4)[0])


def test_a_chance_has_the_digits_of_its_evidence():
    few = chance_interval(np.array([0.987654, np.nan]), 13 * 3, 20, 60)
    many = chance_interval(np.array([0.987654, np.nan]), 10_000_000, 20, 60)
    assert few[0][0] == 0.99 and many[0][0] == 0.9877
    assert few[1][0] < 0.9 and many[1][0] > 0.98 and few[2][0] == 1.0
    assert all(np.isnan(column[1]) for column in (*few, *many))


def results(answer, labels, **changes):
    return of_answers(np.array(answer), np.array(labels)) | {"n_test": 500, "f1_best": 0.9} | changes


NEVER, CHANCE = ([[0, 0], [0, -1]] * 10, [[1, 0], [0, 0]] * 10), ([[1, 1], [1, 1]], [[1, 0], [0, 0]])
SAID = [
    (NEVER, (500, 100, [50, 50]), ["never says yes in 40 entries, although 10 entries are positive", "right in 75.0%"]),
    (([[1, 0]], [[1, 0]]), (3, 1, [3, 40]), ["learnt from only 3 images", "on only 1 image", "1 of 2 classes have fewer than 5"]),
    (CHANCE, (500, 100, [50, 50]), ["no more often than by chance", "always saying yes"]),
]


@pytest.mark.parametrize(("answers", "sizes", "words"), SAID, ids=["never yes", "little data", "by chance"])
def test_results_that_mean_little_are_told(answers, sizes, words):
    said = " ".join(of_results(results(*answers, f1_best=0.1), *sizes))
    assert all(word in said for word in words), said
    assert list(of_results(results([[1, 0]], [[1, 0]]), 300, 100, [40, 40])) == [], "of much data nothing"
    assert list(of_chance(None)) == [] and list(of_chance(29)) != [] and list(of_chance(30)) == []


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
    assert gap(rows) == pytest.approx(sum(row["n"] * abs(row["chance"] - row["share"]) for row in rows) / 301)
    assert reliability(np.full((3, 1), np.nan), np.ones((3, 1))) == [] and gap([]) is None
