"""Which images a step sees: every image once, the labelled ones evenly, nothing but the arguments decides."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dicap.methods.base import Phase
from dicap.training.plan import chunks, cycled, main_plan, warmup_plan

small = st.integers(1, 40)
phases = st.builds(
    lambda n_l, n_u, b_l, b_u: Phase(np.arange(n_l), np.arange(n_u), b_l, b_u, 1), small, st.integers(0, 40), small, small
)


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


@given(phase=phases.filter(lambda phase: len(phase.unlabelled)), epochs=st.integers(1, 4))
def test_a_pass_over_the_unlabelled_images_sees_each_once_and_the_labelled_ones_evenly(phase, epochs):
    seen = Counter()
    for epoch in range(epochs):
        steps = main_plan(phase, seed=1, stage="train", epoch=epoch)
        assert sorted(flat(step.unlabelled for step in steps)) == phase.unlabelled.tolist()
        assert all(len(step.labelled) == phase.batch_labelled for step in steps)
        seen.update(flat(step.labelled for step in steps))
    assert max(seen.values()) - min(seen[i] for i in phase.labelled) <= 1


@given(phase=phases, over=st.sampled_from(["labelled", "unlabelled"]))
def test_a_warm_up_passes_over_what_it_is_told_to_where_there_is_any(phase, over):
    """Over labelled images, with as many others in each step."""
    steps = warmup_plan(phase, over=over, seed=1, epoch=0)
    passed = "unlabelled" if over == "unlabelled" and len(phase.unlabelled) else "labelled"
    assert sorted(flat(getattr(step, passed) for step in steps)) == getattr(phase, passed).tolist()
    for step in steps if passed == "labelled" else ():
        assert len(step.unlabelled) == (len(step.labelled) if len(phase.unlabelled) else 0)
        assert set(step.unlabelled) <= set(phase.unlabelled)


@pytest.mark.parametrize("over", ["labelled", "unlabelled"])
def test_a_plan_changes_with_seed_and_epoch(over):
    phase = Phase(np.arange(20), np.arange(50), 4, 6, 1)
    plans = [warmup_plan(phase, over=over, seed=seed, epoch=epoch) for seed, epoch in ((1, 2), (2, 2), (1, 3))]
    for part in ("labelled", "unlabelled"):
        assert len({tuple(flat(getattr(step, part) for step in plan)) for plan in plans}) == 3


def test_images_without_labels_count_in_the_composition_of_a_step(tiny_experiment):
    """28 training images, a quarter of their labels, and 8 images that never had any: 7 of 36 are labelled."""
    auto = {"ratio": 0.25, "train.batch_size": 64, "train.batch_labelled": "auto", "warmup.batch_size": "auto"}
    experiment = tiny_experiment(auto)
    method, roles = experiment.method, experiment.roles
    assert method.share == pytest.approx(7 / 36)
    assert method.main(roles).batch_labelled == round(1.25 * 7 / 36 * 64) == 16
    assert method.warmup(roles).batch_labelled == round(320 * 7 / 36) == 62
