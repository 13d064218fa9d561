"""Every draw is a function of its arguments, and looks random."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dicap.randomness import generator, permutation, torch_seed, uniform

counters = st.tuples(st.integers(0, 2**32 - 1), st.sampled_from(["warmup", "train"]), st.integers(0, 500))


@given(counters, st.integers(0, 10**7))
def test_equal_arguments_give_equal_numbers(counter, row):
    assert generator(*counter, row, "a").random() == generator(*counter, row, "a").random()
    assert generator(*counter, row, "a").random() != generator(*counter, row, "b").random()
    assert 0 <= torch_seed(*counter, row) < 2**63


@given(counters, st.lists(st.integers(0, 10**6), min_size=1, max_size=50, unique=True))
def test_a_row_draws_the_same_whatever_stands_beside_it(counter, rows):
    together = uniform(*counter, np.array(rows), "flip")
    alone = [uniform(*counter, np.array([row]), "flip")[0] for row in rows]
    assert together.tolist() == alone
    assert ((together >= 0) & (together < 1)).all()


def test_uniform_numbers_are_uniform_and_unrelated_between_epochs():
    rows = np.arange(100_000)
    first, second = uniform(1, "train", 0, rows, "flip"), uniform(1, "train", 1, rows, "flip")
    counts = np.histogram(first, 20, (0, 1))[0]
    assert np.abs(counts - 5000).max() < 5 * np.sqrt(5000)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.015
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 0.015


def test_permutations_hold_every_place_once_and_change_with_the_epoch():
    one, other = permutation(1, "train", 0, 50), permutation(1, "train", 1, 50)
    assert sorted(one) == list(range(50)) and not (one == other).all()
