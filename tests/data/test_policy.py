"""The table of operations and the draws from it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from dicap.data.policy import COLUMNS, OPERATIONS, SIGNED, draw


@pytest.fixture(scope="module")
def plans():
    return [draw(numbers, (224, 224), 0.5) for numbers in np.random.default_rng(0).random((20_000, COLUMNS)).tolist()]


def test_published_table_has_15_operations_of_9_levels():
    assert len(OPERATIONS) == 15 and {len(values) for values in OPERATIONS.values()} == {9}
    last = {kind: values[-1] for kind, values in OPERATIONS.items()}
    published = {"shear_x": 0.3, "translate_y": 150 / 331, "rotate": 30, "color": 0.9, "cutout": 20, "posterize": 4}
    assert last == pytest.approx(last | published | {"solarize": 0})
    assert OPERATIONS["posterize"][0] == 8 and OPERATIONS["solarize"][0] == pytest.approx(256 * 8 / 9)


def test_operations_levels_and_signs_are_uniform(plans):
    """20,000 views with two operations, each of which happens half of the time."""
    drawn = [operation for plan in plans for operation in plan.operations]
    counts = [sum(kind == of for of, _, _ in drawn) for kind in OPERATIONS]
    assert len(drawn) == pytest.approx(20_000, rel=0.02) and chisquare(counts).pvalue > 0.001
    for kind, levels in OPERATIONS.items():
        allowed = sorted({*levels, *(-value for value in levels if kind in SIGNED)})  # rotation has one direction
        values = [value for of, value, _ in drawn if of == kind]
        assert set(values) == set(allowed)
        assert len(allowed) < 9 or chisquare([values.count(value) for value in allowed]).pvalue > 0.0001


def test_both_slots_flip_hole_and_colour_are_independent_and_colours_cover_the_cube(plans):
    colour = np.array([plan.colour for plan in plans])
    columns = [[plan.flip, len(plan.operations) == 2, plan.hole[0] > 60] for plan in plans]
    table = np.corrcoef(np.column_stack([columns, colour]).astype(float), rowvar=False)
    assert np.abs(table - np.eye(6)).max() < 0.03
    assert sum(len(plan.operations) == 2 for plan in plans) == pytest.approx(5_000, rel=0.05)
    assert colour.mean(0) == pytest.approx([127.5] * 3, abs=2)
    assert (colour.min(0) <= 1).all() and (colour.max(0) >= 254).all()


@given(st.integers(16, 300), st.integers(16, 300), st.floats(0.01, 1.0), st.integers(0, 1000))
def test_holes_are_the_published_boxes(height, width, share, seed):
    for u in np.random.default_rng(seed).random((20, COLUMNS)).tolist():
        y, x = int(u[3] * height), int(u[2] * width)
        half_y, half_x = int(share * height + 0.5) // 2, int(share * width + 0.5) // 2
        across, down = (max(x - half_x, 0), min(x + half_x, width)), (max(y - half_y, 0), min(y + half_y, height))
        assert draw(u, (height, width), share).hole == (across[0], down[0], across[1], down[1])
