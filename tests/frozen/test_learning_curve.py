"""The learning curve: an exact power law is carried on exactly, and what is measured does not see an image's own label."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dicap.frozen.learning_curve import DECAYS, Curve, gain, measure


@given(st.floats(20, 90), st.floats(0, 60), st.sampled_from(DECAYS), st.integers(1, 4))
def test_a_power_law_is_carried_on(a, b, decay, times):
    images = np.array([20, 40, 60, 80])
    maps = a - b * images**-decay
    found = gain(Curve(images, maps, np.tile(maps[:, None], 30)), 80, 80 * times)
    assert found.value == pytest.approx(b * (80.0**-decay - (80.0 * times) ** -decay), abs=1e-6)
    assert found.low - 1e-6 <= found.value <= found.high + 1e-6 and (times > 1 or found.high == pytest.approx(0, abs=1e-6))


def test_labels_at_random_promise_nothing_and_separable_ones_much():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((120, 15)).astype(np.float32)
    y = np.stack([rows[:, 0] + 0.5 * rows[:, 1] > 0.3, rng.random(120) < 0.3, np.zeros(120)], axis=1).astype(np.float32)
    y[:10, 0] = -1
    curves = [measure(rows, y[:, [c]], loss_weight=0.1) for c in (0, 1)]
    assert curves[0].maps[-1] > 85 and curves[0].maps[-1] > curves[0].maps[0]
    share = 100 * y[:, 1].mean()
    assert abs(curves[1].maps[-1] - share) < 15, "an image's own label reaches no head that scores it"
    both = measure(rows, y, loss_weight=0.1)
    assert both.left_out.shape == (len(both.images), 120) and both.images[-1] == 96
    for few in (y[:9], np.zeros((120, 2), np.float32)):
        with pytest.raises(ValueError, match="too few"):
            measure(rows[: len(few)], few, loss_weight=0.1)
