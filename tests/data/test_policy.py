"""The table of operations and the draws from it."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dicap.data.policy import COLUMNS, KINDS, OPERATIONS, SLOTS, draw


def plans(n, cutout=0.0, seed=0, size=(224, 224)):
    return draw(np.random.default_rng(seed).random((n, COLUMNS)), size, cutout)


def test_published_table_has_15_operations_of_9_levels():
    assert len(OPERATIONS) == 15
    assert {len(operation.values) for operation in OPERATIONS} == {9}
    last = {operation.kind: operation.values[-1] for operation in OPERATIONS}
    first = {operation.kind: operation.values[0] for operation in OPERATIONS}
    assert last["shear_x"] == pytest.approx(0.3) and last["translate_y"] == pytest.approx(150 / 331)
    assert last["rotate"] == 30 and last["color"] == pytest.approx(0.9) and last["cutout"] == 20
    assert (first["posterize"], last["posterize"]) == (8, 4)
    assert last["solarize"] == 0 and first["solarize"] == pytest.approx(256 * 8 / 9)


def test_operations_and_levels_of_10000_draws_are_uniform():
    plan = plans(10_000)
    for slot in range(SLOTS):
        kinds = Counter(plan.kind[plan.kind[:, slot] > 0, slot].tolist())
        assert set(kinds) == {KINDS.index(operation.kind) for operation in OPERATIONS}
        expected = 5_000 / 15
        chi2 = sum((count - expected) ** 2 / expected for count in kinds.values())
        assert chi2 < 36.1  # 14 degrees of freedom, p = 0.001
    solarize = next(operation for operation in OPERATIONS if operation.kind == "solarize")
    values = Counter(plan.value[plan.kind == KINDS.index("solarize")].tolist())
    assert set(values) == set(solarize.values)
    total = sum(values.values())
    assert sum((count - total / 9) ** 2 / (total / 9) for count in values.values()) < 26.1  # 8 degrees of freedom


def test_signs_are_even_where_they_are_drawn_and_rotation_has_one_direction():
    plan = plans(40_000)
    for operation in OPERATIONS:
        values = plan.value[plan.kind == KINDS.index(operation.kind)]
        if operation.signed:
            assert (values < 0).mean() == pytest.approx(0.5, abs=0.05)
            assert set(np.abs(values)) == set(operation.values)
        else:
            assert (values >= 0).all()


def test_both_slots_flip_and_hole_are_independent():
    plan = plans(20_000, cutout=0.5)
    columns = [plan.flip, plan.kind[:, 0] > 0, plan.kind[:, 1] > 0, plan.hole[:, 0] > 60, plan.colour[:, 1] > 127]
    table = np.corrcoef(np.stack(columns).astype(float))
    assert np.abs(table - np.eye(5)).max() < 0.03


@given(st.integers(16, 300), st.integers(16, 300), st.floats(0.01, 1.0), st.integers(0, 1000))
def test_holes_are_the_published_boxes(height, width, share, seed):
    u = np.random.default_rng(seed).random((20, COLUMNS))
    plan = draw(u, (height, width), share)
    for row, (left, top, right, bottom) in enumerate(plan.hole.tolist()):
        y, x = int(u[row, 3] * height), int(u[row, 2] * width)
        half_y, half_x = int(share * height + 0.5) // 2, int(share * width + 0.5) // 2
        assert (left, right) == (max(x - half_x, 0), min(x + half_x, width))
        assert (top, bottom) == (max(y - half_y, 0), min(y + half_y, height))


def test_colours_of_holes_cover_the_cube():
    colour = plans(20_000, cutout=0.5).colour
    assert colour.mean(0) == pytest.approx([127.5] * 3, abs=2)
    assert (colour.min(0) <= 1).all() and (colour.max(0) >= 254).all()
