"""Which labels are doubted: scores that leave each image out against a slow loop, the order, and what is pointed out."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dicap.data.store import Store
from dicap.network import build_network
from dicap.runtime import Runtime
from dicap.use.review import chances, doubts, entry_surprise, features_of, leave_one_out


def slow_leave_one_out(features, labels, penalty):
    """A fit for each image, on all others; lengths, centre of the penalty's unit as for all of them."""
    z = features / np.linalg.norm(features, axis=1, keepdims=True)
    strength = penalty * ((z - z.mean(0)) ** 2).sum() / len(z)
    scores = np.empty(labels.shape)
    for i in range(len(z)):
        others = np.arange(len(z)) != i
        x, y = z[others], labels[others].astype(float)
        a, b = x - x.mean(0), y - y.mean(0)
        weight = np.linalg.solve(a.T @ a + strength * np.eye(a.shape[1]), a.T @ b)
        scores[i] = y.mean(0) + (z[i] - x.mean(0)) @ weight
    return scores


@given(st.integers(0, 100), st.sampled_from([(6, 20), (30, 4), (12, 12)]), st.sampled_from([0.1, 1.0, 10.0]))
def test_one_fit_stands_for_one_without_each_image(seed, shape, penalty):
    rng = np.random.default_rng(seed)
    features, labels = rng.normal(size=shape), rng.integers(0, 2, (shape[0], 3))
    assert np.allclose(leave_one_out(features, labels, penalty), slow_leave_one_out(features, labels, penalty))


def test_a_score_does_not_know_its_own_label():
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(20, 8)), rng.integers(0, 2, (20, 3))
    other = labels.copy()
    other[4] = 1 - other[4]
    assert np.allclose(leave_one_out(features, labels)[4], leave_one_out(features, other)[4])


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
    ranked = doubts(leave_one_out(features, labels), labels)
    first = [doubt.row for doubt in ranked[:40]]
    assert len(set(first) & set(wrong)) >= 18
    found = {doubt.row: doubt.odd for doubt in ranked}
    pointed = sum((labels[row] != truth[row])[found[row]].any() for row in wrong)
    assert pointed >= 18, "what is pointed out is what is wrong"
    assert sorted(doubt.row for doubt in ranked) == list(range(len(labels)))
    assert [d.surprise for d in ranked] == sorted((d.surprise for d in ranked), reverse=True)


def test_only_honest_scores_are_ranked():
    features, labels, _, _ = blobs(60, 4)
    honest = np.arange(60) % 3 == 0
    assert {doubt.row for doubt in doubts(leave_one_out(features, labels), labels, honest)} == set(np.flatnonzero(honest))


def test_entries_against_a_loop():
    rng = np.random.default_rng(2)
    scores, labels = rng.random((7, 3)), rng.integers(0, 2, (7, 3))
    found = entry_surprise(scores, labels)
    for i in range(7):
        for c in range(3):
            others = max(sum(labels[k, c] for k in range(7) if k != i) / 6, 0.5 / 7)
            expected = -np.log(scores[i, c]) + np.log(others) / 2 if labels[i, c] else -np.log(1 - scores[i, c])
            assert found[i, c] == pytest.approx(expected)


def test_an_image_without_labels_is_doubted_for_what_it_lacks():
    scores = np.array([[0.9, 0.1], [0.1, 0.1], [0.9, 0.9]])
    labels = np.array([[0, 0], [0, 0], [1, 1]])
    ranked = doubts(scores, labels)
    assert ranked[0].row == 0 and ranked[0].odd == [0]
    assert all(doubt.odd for doubt in ranked), "each is shown with a reason"


def test_chances_rise_with_the_score_and_are_shares():
    features, labels, _, _ = blobs()
    scores = leave_one_out(features, labels)
    found = chances(scores, labels)
    assert ((found >= 0) & (found <= 1)).all() and abs(found.mean() - labels.mean()) < 0.02
    order = np.argsort(scores.ravel())
    assert (np.diff(found.ravel()[order]) >= -1e-12).all()


def test_features_are_those_of_both_sides(tiny_set, tiny_experiment):
    experiment = tiny_experiment()
    store = Store.open(tiny_set)
    network = build_network(experiment.settings, 3, make_head=lambda channels: torch.nn.Identity()).eval()
    rows = np.array([5, 2])
    found = features_of(network, store, rows, Runtime(torch.device("cpu")))
    images = store.read(rows)
    with torch.inference_mode():
        both = sum(network.features(view).mean((2, 3)) for view in (images, images.flip(3)))
    assert np.allclose(found, (both.sign() * both.abs().sqrt()).numpy(), atol=1e-4)
