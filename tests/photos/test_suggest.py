"""Which images cover the others."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dicap.photos.review import scaled
from dicap.photos.suggest import principal, spread


@given(st.integers(0, 10**6), st.integers(0, 4), st.integers(1, 4))
def test_of_every_cluster_without_a_label_one_and_the_larger_ones_first(seed, labelled, count):
    rng = np.random.default_rng(seed)
    sizes = rng.permutation([9, 12, 15, 18, 21, 24, 27, 30])[: labelled + count]
    which = np.repeat(np.arange(len(sizes)), sizes)
    rows = 100 * np.eye(8)[which] + rng.normal(size=(len(which), 8))
    first = np.array([np.flatnonzero(which == c)[0] for c in range(labelled)], int)  # one label in each of so many clusters
    order = np.concatenate([first, np.setdiff1d(np.arange(len(which)), first)])
    chosen = which[order][spread(rows[order], count, labelled)]
    assert chosen.tolist() == sorted(range(labelled, len(sizes)), key=lambda c: -sizes[c])


def test_clusters_are_sought_in_the_principal_components_of_the_heads_rows():
    features = np.random.default_rng(0).random((12, 30)).astype(np.float32)
    rows, parts = scaled(features), principal(features)
    assert np.allclose(parts @ parts.T, rows @ rows.T, atol=1e-3) and (np.diff(np.square(parts).sum(0)) <= 1e-3).all()


def test_all_images_and_copies_once():
    rows = np.random.default_rng(0).normal(size=(9, 3))
    assert sorted(spread(rows, 7, labelled=2)) == [*range(2, 9)]
    assert len(spread(np.repeat(rows[:3], 5, axis=0), 6)) == 3
    copies = spread(np.repeat(rows[:3], 3, axis=0)[[0, 3, 6, 1, 4, 7, 2, 5, 8]], 2, labelled=3)
    assert len({*copies}) == 2 and min(copies) >= 3, "copies of labelled images, where nothing else is left"
