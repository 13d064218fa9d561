"""Which labels are doubted: what must not change the scores, the order, what is pointed out; which images cover the others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dicap.photos import review
from dicap.photos.review import among_neighbours, doubts, entry_surprise, out_of_fold, scaled
from dicap.photos.suggest import principal, spread


def scored(features, labels):
    return out_of_fold(among_neighbours(features), labels)


def test_images_without_labels_say_what_is_alike():
    """The order of the images is no matter, nor a feature's unit, and those without labels take part as neighbours."""
    rng = np.random.default_rng(3)
    features, labelled, y = rng.normal(size=(80, 12)), np.arange(0, 80, 4), rng.integers(0, 2, (20, 3))
    order, unit = rng.permutation(80), 10 ** rng.uniform(-2, 2, 12)
    found = out_of_fold(among_neighbours(features)[labelled], y)
    again = among_neighbours(features[order] * unit)[np.argsort(order)[labelled]]
    assert np.allclose(found, out_of_fold(again, y), atol=1e-3)
    assert not np.allclose(found, scored(features[labelled], y), atol=1e-3)


@pytest.mark.parametrize("n", [2, 3, 11])
def test_few_images_are_scored_too(n):
    rng = np.random.default_rng(n)
    scores = scored(rng.normal(size=(n, 5)), np.eye(n, 3, dtype=np.uint8))
    assert scores.shape == (n, 3) and ((scores > 0) & (scores < 1)).all()


def blobs(n=450, wrong=20, seed=0):
    """Images that show their classes plainly, and labels of which some are another image's."""
    rng = np.random.default_rng(seed)
    truth = (rng.random((n, 8)) < 0.2).astype(np.uint8)
    truth[np.arange(n), rng.integers(0, 8, n)] = 1
    features = truth @ rng.normal(size=(8, 40)) + rng.normal(size=(n, 40)) / 2
    labels, rows = truth.copy(), rng.choice(n, wrong, replace=False)
    for row in rows:
        labels[row] = truth[rng.choice(np.flatnonzero((truth != truth[row]).any(1)))]
    return features, labels, truth, rows


def test_planted_wrong_labels_come_first():
    features, labels, truth, wrong = blobs()
    ranked = doubts(scored(features, labels), labels)
    first = [doubt.row for doubt in ranked[:40]]
    assert len(set(first) & set(wrong)) >= 18
    found = {doubt.row: doubt.odd for doubt in ranked}
    pointed = sum((labels[row] != truth[row])[found[row]].any() for row in wrong)
    assert pointed >= 18, "what is pointed out is what is wrong"
    assert sorted(doubt.row for doubt in ranked) == list(range(len(labels)))
    assert [d.surprise for d in ranked] == sorted((d.surprise for d in ranked), reverse=True)


def test_entries_against_a_loop():
    rng = np.random.default_rng(2)
    scores, labels = rng.random((7, 3)), rng.integers(0, 2, (7, 3))
    found = entry_surprise(scores, labels)
    for i in range(7):
        for c in range(3):
            others = max(sum(labels[k, c] for k in range(7) if k != i) / 6, 0.5 / 7)
            expected = -np.log(scores[i, c]) + review.SHARE * np.log(others) if labels[i, c] else -np.log(1 - scores[i, c])
            assert found[i, c] == pytest.approx(expected)


def test_an_image_without_labels_is_doubted_for_what_it_lacks():
    scores = np.array([[0.9, 0.1], [0.1, 0.1], [0.9, 0.9]])
    labels = np.array([[0, 0], [0, 0], [1, 1]])
    ranked = doubts(scores, labels)
    assert ranked[0].row == 0 and ranked[0].odd == [0]
    assert all(doubt.odd for doubt in ranked), "each is shown with a reason"


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
