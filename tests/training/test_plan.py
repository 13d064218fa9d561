"""Which images a step sees: every image once, the labelled ones evenly, nothing but the arguments decides."""

from collections import Counter
from functools import partial

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from dicap.training.loops import main
from dicap.training.plan import chunks, cycled, labelled_plan, main_plan, warmup_plan

small = st.integers(1, 40)


def flat(pieces):
    return np.concatenate(list(pieces)).tolist()


@given(n=small, size=small)
def test_a_last_piece_of_one_joins_the_one_before(n, size):
    pieces = chunks(np.arange(n), size)
    assert flat(pieces) == list(range(n))
    assert all(len(piece) == size for piece in pieces[:-1])
    if size > 1 and n > 1:
        assert 2 <= len(pieces[-1]) <= size + 1


@given(n=small, start=st.integers(0, 100), count=small, seed=st.integers(0, 5))
def test_a_cycle_is_a_window_into_shuffled_passes(n, start, count, seed):
    arguments = {"seed": seed, "stage": "train", "stream": "labelled"}
    endless = flat(cycled(n, turn * n, n, **arguments) for turn in range((start + count) // n + 1))
    assert cycled(n, start, count, **arguments).tolist() == endless[start : start + count]
    for turn in range(len(endless) // n):
        assert sorted(endless[turn * n : (turn + 1) * n]) == list(range(n))


@given(n_l=small, n_u=st.integers(0, 40), batch=small, seed=st.integers(0, 3), epoch=st.integers(0, 3))
def test_a_warm_up_epoch_sees_every_labelled_image_once_and_as_many_others(n_l, n_u, batch, seed, epoch):
    steps = labelled_plan(n_l, n_u, batch, seed=seed, stage="warmup", epoch=epoch)
    assert sorted(flat(step.labelled for step in steps)) == list(range(n_l))
    for step in steps:
        assert len(step.unlabelled) == (len(step.labelled) if n_u else 0)
        assert ((step.unlabelled >= 0) & (step.unlabelled < max(n_u, 1))).all()


@pytest.mark.parametrize("plan", [main_plan, partial(warmup_plan, over="unlabelled")], ids=["main", "warm-up"])
@given(n_l=small, n_u=small, b_l=small, b_u=small, epochs=st.integers(1, 4))
def test_a_pass_over_the_unlabelled_images_sees_each_once_and_the_labelled_ones_evenly(plan, n_l, n_u, b_l, b_u, epochs):
    seen = Counter()
    for epoch in range(epochs):
        steps = plan(n_l, n_u, b_l, b_u, seed=1, epoch=epoch)
        assert sorted(flat(step.unlabelled for step in steps)) == list(range(n_u))
        assert all(len(step.labelled) == b_l for step in steps)
        seen.update(flat(step.labelled for step in steps))
    assert max(seen.values()) - min(seen[i] for i in range(n_l)) <= 1


def test_fixed_batches_are_those_of_two_loaders_that_do_not_shuffle(tiny_set, tmp_path, monkeypatch):
    """CAP's code: lists in the order of the draw; each epoch an iterator of each, the labelled one made anew where it ends."""
    epochs, noted = [], main.MainBatches.requests

    def requests(self):
        epochs.append([tuple(rows.tolist() for rows in self.rows(step)) for step in self.steps])
        return noted(self)

    monkeypatch.setattr(main.MainBatches, "requests", requests)
    changes = {"dataset": "digits", "method": "cap", "train.shuffle": False, "train.epochs": 2, "train.batch_labelled": 3}
    experiment = tiny.open_experiment(tiny_set, tmp_path / "split.parquet", changes)
    tiny.run_stage(experiment, "train", None, tmp_path)

    ids, seed = experiment.store.ids, experiment.settings.seed
    train, never = ([row for row, name in enumerate(ids) if name.startswith(kind)] for kind in ("train", "unlabeled"))
    order = [rows[i] for rows in (train, never) for i in np.random.RandomState(seed).permutation(len(rows))]
    labelled, unlabelled = order[:14], [row for row in order[14:] if row in experiment.roles.unlabeled]

    def loader(rows, batch):
        return iter([rows[i : i + batch] for i in range(0, len(rows), batch)])

    expected, beside = [], loader(labelled, 3)
    for batch in loader(unlabelled, 5):
        piece = next(beside, None)
        if piece is None:
            beside = loader(labelled, 3)
            piece = next(beside)
        expected.append((piece, batch))
    assert epochs == [expected, expected] and len(unlabelled) == 22


@given(n_l=small, n_u=st.integers(0, 40), b_l=small, b_u=small, over=st.sampled_from(["labelled", "unlabelled"]))
def test_a_warm_up_passes_over_what_it_is_told_to_where_there_is_any(n_l, n_u, b_l, b_u, over):
    steps = warmup_plan(n_l, n_u, b_l, b_u, over=over, seed=1, epoch=0)
    passed = "unlabelled" if over == "unlabelled" and n_u else "labelled"
    assert sorted(flat(getattr(step, passed) for step in steps)) == list(range(n_u if passed == "unlabelled" else n_l))


@pytest.mark.parametrize(
    "plan",
    [
        lambda **k: labelled_plan(20, 50, 4, stage="warmup", **k),
        lambda **k: main_plan(20, 50, 4, 6, **k),
    ],
)
def test_a_plan_is_a_function_of_seed_and_epoch_alone(plan):
    def listed(**counters):
        return [(step.labelled.tolist(), step.unlabelled.tolist()) for step in plan(**counters)]

    before = listed(seed=1, epoch=2)
    np.random.seed(0)
    assert listed(seed=1, epoch=2) == before
    assert listed(seed=2, epoch=2) != before
    assert listed(seed=1, epoch=3) != before


def test_images_without_labels_count_in_the_composition_of_a_step(tiny_experiment):
    """28 training images, a quarter of their labels, and 8 images that never had any: 7 of 36 are labelled."""
    auto = {"ratio": 0.25, "train.batch_size": 64, "train.batch_labelled": "auto", "warmup.batch_size": "auto"}
    experiment = tiny_experiment(auto)
    method, roles = experiment.method, experiment.roles
    assert method.share == pytest.approx(7 / 36)
    assert (
        (method.main(roles).batch_labelled, method.warmup(roles).batch_labelled)
        == (round(1.25 * 7 / 36 * 64), round(320 * 7 / 36))
        == (16, 62)
    )
