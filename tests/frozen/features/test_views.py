"""Which views a bank holds and which of them an image gets: the image loader's own draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dicap.data.augment import View
from dicap.data.loader import Request, draws
from dicap.frozen.features.views import choose

STRONG = View("strong", cutout=0.5)
ROWS = np.arange(3000)


@given(seed=st.integers(0, 2**31), epoch=st.integers(0, 100), flip=st.floats(0, 1))
def test_a_weak_view_is_mirrored_where_the_image_loader_mirrors_it(seed, epoch, flip):
    request = Request("weak", ROWS[:40], View("weak", flip=flip))
    chosen = choose(request, seed, "train", epoch, 4)
    assert (chosen == (draws(seed, "train", epoch, request)[:, 0, 0] < flip)).all()


def test_strong_views_are_chosen_evenly_and_anew_each_epoch():
    request = Request("strong", ROWS, STRONG)
    chosen = choose(request, 1, "train", 3, 4)
    assert set(chosen) == {2, 3, 4, 5}
    assert np.bincount(chosen)[2:] == pytest.approx(750, abs=120)  # five standard deviations
    assert (chosen != choose(request, 1, "train", 4, 4)).mean() == pytest.approx(0.75, abs=0.05)
    assert (chosen == choose(Request("strong", ROWS[::-1], STRONG), 1, "train", 3, 4)[::-1]).all(), "a row's choice is its own"


def test_the_plain_view_draws_nothing():
    assert not choose(Request("x", ROWS, View("test")), 1, "train", 0, 0).any()
