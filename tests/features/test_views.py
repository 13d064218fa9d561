"""Which views a bank holds and which of them an image gets: the image loader's own draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dicap.data.augment import View
from dicap.data.loader import Request, draws
from dicap.features.views import bank_views, choose

STRONG = View("strong", cutout=0.5)
ROWS = np.arange(3000)


def names(count, tiles):
    return [view.name for view in bank_views(STRONG, count, tiles)]


def test_the_views_of_a_bank():
    assert names(2, "none") == ["plain", "mirror", "strong_0", "strong_1"]
    assert names(1, "weak") == ["plain", "mirror", "strong_0", "plain_tiles", "mirror_tiles"]
    assert names(1, "all") == ["plain", "mirror", "strong_0", "plain_tiles", "mirror_tiles", "strong_0_tiles"]
    assert names(0, "none") == ["plain", "mirror"]


def test_strong_views_have_the_policy_and_tiles_draw_for_themselves():
    whole, tiled = (view for view in bank_views(STRONG, 1, "all") if view.name.startswith("strong"))
    assert (whole.view.cutout, whole.view.policy, whole.view.flip) == (0.5, "published", 0.5)
    rows, by = np.arange(4), np.arange(4, dtype=np.uint64)
    assert tiled.view.tiles == 2 and tiled.request(rows, by).key != whole.request(rows, by).key


@given(seed=st.integers(0, 2**31), epoch=st.integers(0, 100), flip=st.floats(0, 1), tiles=st.sampled_from([1, 2]))
def test_a_weak_view_is_mirrored_where_the_image_loader_mirrors_it(seed, epoch, flip, tiles):
    request = Request("weak", ROWS[:40], View("weak", flip=flip, tiles=tiles))
    chosen = choose(request, seed, "train", epoch, 4)
    assert (chosen == (draws(seed, "train", epoch, request)[:, :, 0] < flip)).all()


def test_strong_views_are_chosen_evenly_and_anew_each_epoch():
    request = Request("strong", ROWS, STRONG)
    chosen = choose(request, 1, "train", 3, 4)
    assert set(chosen.ravel()) == {2, 3, 4, 5}
    assert np.bincount(chosen.ravel())[2:] == pytest.approx(750, abs=120)  # five standard deviations
    assert (chosen != choose(request, 1, "train", 4, 4)).mean() == pytest.approx(0.75, abs=0.05)
    assert (chosen == choose(Request("strong", ROWS[::-1], STRONG), 1, "train", 3, 4)[::-1]).all(), "a row's choice is its own"


def test_the_plain_view_draws_nothing():
    assert not choose(Request("x", ROWS, View("test", tiles=2)), 1, "train", 0, 0).any()
