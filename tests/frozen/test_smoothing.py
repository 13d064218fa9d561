"""Scores smoothed by those of the nearest rows: slow loops, arrays and network alike, and what must not change the answer."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dicap import sklearn
from dicap.frozen import choice, crossfit, smoothing
from dicap.frozen import smoothing_layer as network
from dicap.frozen.onnx_file import PACKAGES, write_onnx
from dicap.frozen.smoothing import SAME, choose_smoothing
from dicap.frozen.solver import Solution, rotate
from dicap.network.linear import LinearHead
from dicap.sklearn import DiCaPClassifier


def slow_smoothing(x, own, rows, values, k, share, same=SAME):
    """Row by row, on whole features: their principal components, all of them, are a rotation."""
    out = []
    for row, score in zip(x.astype(float), own.astype(float), strict=True):
        cosines = [row @ other / max(np.linalg.norm(row) * np.linalg.norm(other), 1e-30) for other in rows.astype(float)]
        others = sorted((c, j) for j, c in enumerate(cosines) if c <= same)
        nearest = [(c, j) for c, j in others if c >= others[-min(k, len(others))][0] - 1e-6]
        weights = [max(c, 0) ** 3 for c, _ in nearest]
        total = sum(weights)
        near = sum(w * values[j] for w, (_, j) in zip(weights, nearest, strict=True))
        mean = (near + 1e-9 * score) / (total + 1e-9)
        out.append((1 - share) * score + share * mean)
    return np.array(out)


def problem_of(seed, n=40, features=6, classes=3, folds=3):
    """Rows, heads of some folds and of all, labels of the first half and folds."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, features)).astype(np.float32)
    heads = Solution(
        rng.standard_normal((folds + 1, classes, features)), rng.standard_normal((folds + 1, classes)), *[np.zeros(0)] * 2, 1
    )
    return x, heads, (rng.random((n // 2, classes)) < 0.4).astype(np.float32), np.arange(n // 2) % folds


def smoothing_of(x, heads, y, fold, k, share=0.5):
    return choose_smoothing(heads, rotate(x), x, y, fold, k)[0]._replace(share=share)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    k=st.sampled_from([1, 4, 100]),
    share=st.sampled_from([0.25, 0.5, 1.0]),
    same=st.sampled_from([0.5, SAME]),
    features=st.sampled_from([1, 6]),
)
def test_arrays_and_network_say_what_a_loop_over_rows_says(seed, k, share, same, features):
    x, heads, y, fold = problem_of(seed, features=features)
    x[23], x[25] = x[24], 0  # a copy, and a row without direction
    found, others = smoothing_of(x, heads, y, fold, k, share), x[len(y) :]
    asked = np.concatenate([x[20:28], x[:4], np.random.default_rng(seed + 1).standard_normal((9, features)).astype(np.float32)])
    own, module = heads.logits(asked)[-1], network.Smoothing(network.to_tensors(found))
    expected = slow_smoothing(asked, own, others, heads.logits(others)[-1], k, share, same)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smoothing, "SAME", same)
        patch.setattr(network, "SAME", same)
        assert np.allclose(found(asked, own), expected, atol=2e-4)
        for precise in (True, False):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=not precise):
                assert np.allclose(module(torch.from_numpy(asked), torch.from_numpy(own)).numpy(), expected, atol=2e-4)
    assert np.allclose(expected[5], own[5], atol=1e-6), "without a neighbour a score stays"


def test_a_row_smoothed_by_rows_has_the_smoothed_score_of_every_head():
    x, heads, y, fold = problem_of(0)
    found, asked = smoothing_of(x, heads, y, fold, 4), problem_of(1)[0]
    others = x[len(y) :]
    at_rows = heads.logits(found(asked, asked, others))
    for h, logits in enumerate(heads.logits(others)):
        assert np.allclose(at_rows[h], found(asked, heads.logits(asked)[h], logits), atol=1e-4)


def test_neither_order_nor_unit_of_the_rows_matters_and_blocks_are_seamless(monkeypatch):
    x, heads, y, fold = problem_of(0)
    asked, found = problem_of(1)[0], smoothing_of(x, heads, y, fold, 4)
    order = np.random.default_rng(2).permutation(len(found.unit))
    own = heads.logits(asked)[-1]
    moved = found._replace(unit=found.unit[order], logits=found.logits[order])
    assert np.allclose(moved(asked, own), found(asked, own), atol=1e-5)
    assert np.allclose(found(1e6 * asked, own), found(asked, own), atol=1e-4)
    whole = found(asked, own)
    monkeypatch.setattr("dicap.frozen.smoothing.BLOCK", 7)
    assert np.allclose(found(asked, own), whole, atol=1e-5) and found(asked[:0], own[:0]).shape == (0, 3)


def test_it_is_taken_where_neighbours_share_labels_and_left_where_they_do_not(monkeypatch):
    """Rows scattered around centres that share labels; and the same labels by lot."""
    rng = np.random.default_rng(0)
    which, centres, labels = rng.integers(0, 12, 800), rng.standard_normal((12, 30)), rng.random((12, 3)) < 0.4
    x, clusters = centres[which] + rng.standard_normal((800, 30)), labels[which].astype(int)
    for truth, taken in ((clusters, True), (rng.permutation(clusters), False)):
        y = np.where(np.arange(800)[:, None] < 60, truth, -1)
        model = DiCaPClassifier(random_state=0).fit(x, y)
        assert model.smoothed_ is not None and bool(model.smoothed_.share) == taken
        if taken:
            monkeypatch.setattr(crossfit, "EXACT", 799)
            plain = DiCaPClassifier(random_state=0).fit(x, y)
            assert plain.smoothed_ is None and np.array_equal(plain.coef_, model.coef_)
            assert model.score(x, truth) > plain.score(x, truth) + 0.01
            monkeypatch.undo()
    assert DiCaPClassifier(neighbours=0).fit(x, y).smoothed_ is DiCaPClassifier(pseudo_weight=0.5).fit(x, y).smoothed_ is None


def test_neighbours_of_other_scenes_are_what_a_loop_finds():
    """The nearest of those to which neither a labelled row nor the labelled row nearest to it is the nearest labelled one."""
    rng, k = np.random.default_rng(0), 4
    unit, labelled = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in rng.standard_normal((2, 40, 5)))
    values, found = rng.standard_normal((40, 3)), smoothing.Smoothing(np.eye(5), unit, np.zeros((40, 3)), 1.0, k)
    smoothed = found(labelled, values * 0, values, smoothing._scenes(unit, labelled))
    for i, row in enumerate(labelled):
        mate = max((j for j in range(40) if j != i), key=lambda j: row @ labelled[j])
        apart = [j for j in range(40) if np.argmax(labelled @ unit[j]) not in (i, mate) and unit[j] @ row > 0]
        ranked = sorted(apart, key=lambda j: -(unit[j] @ row))[:k]
        weight = np.array([(unit[j] @ row) ** 3 for j in ranked])
        expected = weight @ values[ranked] / weight.sum() if ranked else np.zeros(3)
        np.testing.assert_allclose(smoothed[i], expected, atol=1e-5)


def test_the_losses_that_are_told_are_those_of_the_scores_that_are_given(monkeypatch):
    """Where the neighbours beyond the nearest allow less than the nearest do; and where they forbid it."""
    x, heads, y, fold = problem_of(0)
    monkeypatch.setattr(smoothing, "NEAR", -1e9)
    monkeypatch.setattr(smoothing, "FAR", 1e9)
    forbidden = choose_smoothing(heads, rotate(x), x, y, fold, 4)[1]
    assert not forbidden.share and forbidden.evidence[1] < forbidden.evidence[0]
    monkeypatch.setattr(smoothing, "FAR", -np.mean(forbidden.evidence))
    found, told = choose_smoothing(heads, rotate(x), x, y, fold, 4)
    others, own = x[len(y) :], [heads.logits(x[: len(y)])[k, i] for i, k in enumerate(fold)]
    smoothed = [
        slow_smoothing(x[i : i + 1], own[i][None], others, heads.logits(others)[k], 4, 0.25)[0] for i, k in enumerate(fold)
    ]
    assert told.share == found.share == 0.25
    for loss, scores in zip((told.log_loss[0], told.log_loss[2]), (own, smoothed), strict=True):
        assert np.isclose(loss, choice.calibrated_losses(np.stack(scores), y).sum() / y.size, atol=1e-5)


def test_frames_of_labelled_scenes_do_not_vouch_for_each_other():
    """Neighbours say little of labels; each labelled row comes in several frames, of different folds or unlabelled."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 30))[rng.integers(0, 12, 500)] + rng.standard_normal((500, 30))
    y = (x @ rng.standard_normal((30, 3)) > 0).astype(int)
    frames = np.repeat(x[:50], 6, axis=0) + 0.5 * rng.standard_normal((300, 30))
    many = np.repeat(x[:50], 25, axis=0) + 0.5 * rng.standard_normal((1250, 30))
    two = np.repeat(x[:50], 2, axis=0) + 0.5 * rng.standard_normal((100, 30))
    cases = (
        (x[:50], x[50:]),
        (frames, x[50:]),
        (x[:50], np.r_[frames, x[50:]]),
        (two, np.r_[frames, x[50:]]),
        (x[:50], many),
        (two, many),
    )
    for labelled, others in cases:
        labels = np.repeat(y[:50], len(labelled) // 50, axis=0)
        model = DiCaPClassifier(random_state=0, C=0.1).fit(np.r_[labelled, others], np.r_[labels, np.full((len(others), 3), -1)])
        assert model.smoothed_ is not None and model.smoothed_.share == 0, (len(labelled), len(others))
    assert DiCaPClassifier(random_state=0).fit(x, y).smoothed_ is None, "nothing is unlabelled"


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1000))
def test_labels_of_a_fold_reach_its_scores_through_the_shares_alone(smooths, seed):
    """With other labels of fold 0, and the same shares, its scores out of fold are the same."""
    rng = np.random.default_rng(seed)
    x, y, fold = (
        rng.standard_normal((60, 6)).astype(np.float32),
        rng.integers(0, 2, (40, 3)).astype(np.float32),
        np.arange(40) % 3,
    )
    changed = np.where((fold == 0)[:, None], 1 - y, y)
    open_entries = np.arange(60)[:, None] >= np.full(3, 40)
    seen = []
    for labels in (y, changed):
        found = crossfit.crossfit(
            x, labels, fold, lambda p, known, _: crossfit.quota_labels(p, known, open_entries),
            loss_weight=0.1, pseudo_weight="auto", neighbours=4,
        )  # fmt: skip
        assert found.smoothing is not None and found.smoothing.share == 0.5
        seen.append(found.out_of_fold(x, fold)[0])
    assert np.allclose(seen[0][fold == 0], seen[1][fold == 0], atol=5e-3)
    assert not np.allclose(seen[0][fold != 0], seen[1][fold != 0], atol=5e-3)


@pytest.mark.parametrize("ties", [False, True])
def test_a_classifier_that_smooths_survives_a_copy_and_batches(smooths, ties):
    import pickle

    rng = np.random.default_rng(0)
    x = rng.standard_normal((80, 5 + 11 * ties))
    x, y = np.where(x > 0, 1, 0) if ties else x, np.where(np.arange(80)[:, None] < 30, rng.integers(0, 2, (80, 2)), -1)
    model = sklearn.DiCaPClassifier(random_state=0, features="plain" if ties else "auto").fit(x, y)
    assert (
        model.smoothed_ is not None and model.smoothed_.share == 0.5 and "0.5 of what they change" in model.smoothed_.in_words()
    )
    asked = np.concatenate([x[:10], rng.integers(0, 2, (10, x.shape[1]))])
    one_by_one = np.concatenate([model.decision_function(asked[i : i + 1]) for i in range(20)])
    assert np.allclose(one_by_one, pickle.loads(pickle.dumps(model)).decision_function(asked), atol=1e-4)


def test_a_smoothed_head_is_an_onnx_file_for_batches_of_any_size(tmp_path):
    for name in PACKAGES:
        pytest.importorskip(name)
    import onnxruntime

    x, heads, y, fold = problem_of(0)
    head = LinearHead(6, 3, "plain").eval()
    head.smoothing = network.Smoothing(network.to_tensors(smoothing_of(x, heads, y, fold, 4)))

    class Scorer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = head

        def forward(self, maps):
            return self.head(maps)[0]

    maps = torch.from_numpy(problem_of(1)[0])[:, :, None, None]
    write_onnx(Scorer(), maps[:2], tmp_path / "head.onnx", ("maps", "logits"))
    session = onnxruntime.InferenceSession(str(tmp_path / "head.onnx"), providers=["CPUExecutionProvider"])
    for size in (1, 3, 40):
        assert np.allclose(session.run(None, {"maps": maps[:size].numpy()})[0], head(maps[:size])[0].detach(), atol=1e-5)
