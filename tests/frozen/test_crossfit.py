"""Cross-fitting against slow versions of its three parts, and the proof that no label of a fold reaches what scores it."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dicap.calibration.ranks import curve_by_rank
from dicap.frozen import recommended
from dicap.frozen.crossfit import Pseudo, at_rank, scores_out_of_fold, solve_students, solve_teachers
from dicap.frozen.folds import assign_folds
from dicap.frozen.loops.recommended import recorded_rates
from dicap.frozen.recommended import PART, fit, labels_and_weights
from dicap.frozen.solver import rotate, solve


def partly_labelled(seed=0, n=60, labelled=40, classes=4):
    """Rows x (n, 12), and y (n, C) of which the first rows are labelled, in part."""
    rng = np.random.default_rng(seed)
    y = (rng.random((n, classes)) < 0.3).astype(np.float32)
    x = y @ rng.standard_normal((classes, 12)) + 0.8 * rng.standard_normal((n, 12))
    y[labelled:] = -1
    y[:labelled][rng.random((labelled, classes)) < 0.3] = -1
    return x.astype(np.float32), y


def entries_without_label(y):
    """(60, C) bool: those of labelled rows y (40, C) that are unknown, and all of the 20 others."""
    return np.concatenate([y < 0, np.ones((20, y.shape[1]), bool)])


# -- nothing leaks


@pytest.mark.promise("No label of a fold changes the student that scores this fold", section="Hidden and held-out labels")
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000), folds=st.integers(2, 4), neighbours=st.sampled_from([0, 3]))
def test_no_label_of_a_fold_reaches_what_scores_it(seed, folds, neighbours):
    """Whatever else changes with the labels of fold 0, its student and the scores of its rows stay as they are."""
    x, y = partly_labelled(seed)
    y, fold = y[:40], np.arange(40) % folds
    changed = np.where((fold == 0)[:, None] & (y >= 0), 1 - y, y)
    seen = []

    def watched(scores, known, *given, **options):
        k = len(seen) % (folds + 1)
        assert (known[fold == k] < 0).all() and np.array_equal(known[fold != k] >= 0, y[fold != k] >= 0)
        seen.append(scores)
        return labels_and_weights(scores, known, *given, **options)

    options = {"loss_weight": 0.1, "pseudo_weight": 0.5, "neighbours": neighbours, "open_entries": entries_without_label(y)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recommended, "labels_and_weights", watched)
        before, after = (fit(x, labels, fold, **options).heads for labels in (y, changed))
    assert np.allclose(before.w[0], after.w[0], atol=5e-3) and not np.allclose(before.w[1:], after.w[1:], atol=5e-3)
    p, q = (scores_out_of_fold(heads, x[:40], fold)[0] for heads in (before, after))
    assert np.allclose(p[fold == 0], q[fold == 0], atol=5e-3) and not np.allclose(p[fold != 0], q[fold != 0], atol=5e-3)
    assert len(seen) == 2 * (folds + 1)
    assert np.allclose(seen[0], seen[folds + 1], atol=5e-3), "what the student of fold 0 learns from"


@pytest.mark.promise(
    "A fold's labels change the head that scores the fold only through the choice of the student",
    section="Hidden and held-out labels",
)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000), folds=st.integers(2, 4))
def test_labels_of_a_fold_reach_its_head_through_the_choice_alone(seed, folds):
    """With other labels of fold 0, its heads of both kinds are the same; the share of each is chosen."""
    x, y = partly_labelled(seed)
    y, fold = y[:40], np.arange(40) % folds
    changed = np.where((fold == 0)[:, None] & (y >= 0), 1 - y, y)
    options = {"loss_weight": 0.1, "neighbours": 0, "open_entries": entries_without_label(y)}

    def heads(labels, weight):
        found = fit(x, labels, fold, pseudo_weight=weight, **options)
        return found.heads, found.choice

    with pytest.MonkeyPatch.context() as patch:  # heads solved beside other ones stop elsewhere within the tolerance
        patch.setattr("dicap.frozen.crossfit.TOLERANCE", 1e-3)
        (taken, choice), (own, _), (student, _) = heads(y, "auto"), heads(changed, 0.0), heads(changed, PART)
    assert choice is not None
    assert np.allclose(taken.w[0], (1 - choice.share) * own.w[0] + choice.share * student.w[0], atol=2e-3)


# -- the parts


def slow_pseudo_labels(scores, y, open_entries):
    """Entry by entry: the class's quota among its own open entries; the chance by the curve of the known ones."""
    target, weight = np.zeros(scores.shape), np.zeros(scores.shape)
    chances = curve_by_rank(scores[: len(y)], y).at(scores)
    for c in range(scores.shape[1]):
        known = [value for value in y[:, c] if value >= 0]
        entries = sorted(scores[i, c] for i in range(len(scores)) if open_entries[i, c])
        f, g = sum(v == 1 for v in known) / len(known), sum(v == 0 for v in known) / len(known)
        high, low = int(f * len(entries)), int(0.998 * g * len(entries))
        if not high:
            continue
        for i in range(len(scores)):
            if not open_entries[i, c]:
                continue
            chance = chances[i, c]
            if scores[i, c] >= entries[len(entries) - high]:
                target[i, c], weight[i, c] = 1, chance**2
            elif low and scores[i, c] <= entries[low - 1]:
                weight[i, c] = (1 - chance) ** 2
    return target, weight


@pytest.mark.parametrize("partly", [False, True])
def test_pseudo_labels_are_those_of_a_loop_over_entries(partly):
    rng = np.random.default_rng(1)
    y = np.where(rng.random((20, 3)) < 0.3, -1 if partly else 0, rng.integers(0, 2, (20, 3))).astype(np.float32)
    scores = rng.random((50, 3)).astype(np.float32)
    open_entries = np.concatenate([y < 0, np.ones((30, 3), bool)])
    found = labels_and_weights(scores, y, open_entries).pseudo
    target, weight = slow_pseudo_labels(scores, y, open_entries)
    assert np.array_equal(found.target, target) and np.allclose(found.weight, weight, atol=1e-6)
    assert not found.weight[:20][y >= 0].any() and (found.weight[:20][y < 0].any() == partly)


def test_teachers_score_what_they_never_saw():
    """Known entries by the head without their fold too; open entries by the head itself."""
    x, y = partly_labelled()
    fold = assign_folds(y[:40], 3, 0)
    scores = solve_teachers(x, y[:40], fold, loss_weight=0.5).scores((0,))
    for c in range(4):
        logits = []
        for without in ((0,), (0, 1), (0, 2)):
            rows = ~np.isin(fold, without) & (y[:40, c] >= 0)
            logits.append(solve(x[:40][rows], y[:40][rows][:, [c]], loss_weight=0.5).logits(x)[0, :, 0])
        for i in range(60):
            z = logits[fold[i] if y[i, c] >= 0 else 0][i]
            assert scores[i, c] == pytest.approx(1 / (1 + np.exp(-z)), abs=5e-3), (i, c)


def test_students_learn_from_known_and_from_pseudo_labelled_entries():
    x, y = partly_labelled()
    fold, rng = assign_folds(y[:40], 2, 0), np.random.default_rng(0)
    pseudo = [Pseudo(rng.integers(0, 2, y.shape).astype(np.float32), rng.random(y.shape).astype(np.float32)) for _ in range(3)]
    found = solve_students(rotate(x), y[:40], fold, pseudo, loss_weight=0.3, pseudo_weight=0.5)
    for h, part in enumerate(pseudo):
        for c in range(4):
            known = y[:, c] >= 0
            weight = np.where(known, 1, 0.5 * part.weight[:, c])
            weight[:40][fold == h] = 0
            alone = solve(x, np.where(known, y[:, c], part.target[:, c])[:, None], weight=weight[:, None], loss_weight=0.3)
            assert np.allclose(found.w[h, c], alone.w[0, 0], atol=3e-3) and found.b[h, c] == pytest.approx(
                alone.b[0, 0], abs=3e-3
            )


def test_scores_of_heads_without_a_fold_come_to_the_scale_of_the_last():
    """Heads that are the last one, shrunk and moved: at equal rank their logits are its own, between other rows and beyond."""
    rng = np.random.default_rng(0)
    z, others, fold = rng.normal(size=(40, 3)), rng.normal(size=(90, 3)), np.arange(40) % 4
    z[0] = 9
    shift = np.array([0, 1, -2, 0.5])
    moved = np.stack([*(others + each for each in shift), others])
    assert at_rank(z + shift[fold, None], fold, moved) == pytest.approx(z)
    assert np.array_equal(at_rank(z, fold, moved[:, :0]), z), "without other rows it stays"
    inside = (z > others.min(0)) & (z < others.max(0))
    assert at_rank(0.5 * z, fold, np.stack([*[0.5 * others] * 4, others]))[inside] == pytest.approx(z[inside])


def drawn(n, classes, sharpness, seed):
    """Scores of a network that is `sharpness` times too sure of itself, labels, and the true chance as a function of scores."""
    rng = np.random.default_rng(seed)
    x = rng.normal(-1, 2, (n, classes))
    labels = (rng.random(x.shape) < 1 / (1 + np.exp(-x))).astype(np.uint8)
    p = 1 / (1 + np.exp(-sharpness * x))
    return p, labels, lambda p: 1 / (1 + ((1 - p) / p) ** (1 / sharpness))


def test_the_rate_of_a_bin_is_the_mean_of_its_unlabelled_entries():
    (p, y, _), (p_unlabelled, _, _) = drawn(30, 3, 1, 0), drawn(60, 3, 1, 1)
    p_unlabelled = np.where(p_unlabelled < 0.8, p_unlabelled, 0.79)  # the last bins stay empty
    curve = curve_by_rank(p, y)
    found, rates = recorded_rates(curve, *map(torch.from_numpy, (p, y, p_unlabelled)), bins=10), curve.at(p_unlabelled)
    for k, rate in enumerate(found.r_pos[:8]):
        inside = rates[(p_unlabelled * 10).astype(int) == k]
        assert len(inside) and float(rate) == pytest.approx(inside.mean(), abs=1e-7)
    assert (found.r_pos[8:] == found.r_pos[7]).all(), "of an empty bin the nearest one's"
    assert found.n_pos.sum() == y.sum() and found.n_neg.sum() == (1 - y).sum()


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 3.0])
def test_groups_find_the_truth_however_sure_the_network_is(sharpness):
    p, y, true = drawn(2000, 10, sharpness, 0)
    curve = curve_by_rank(p, y)
    q, _, _ = drawn(500, 10, sharpness, 1)
    assert np.abs(curve.at(q) - true(q)).mean() < 0.02
    assert (np.diff(curve.knots) > 0).all() and (np.diff(curve.rate) >= 0).all() and len(curve.knots) <= 60
