"""How processes share a step: nothing is left out, nothing taken twice, and entries to contrast find their views again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dicap.training.parallel.process_group import local_pairs, mask_of, pieces, shards
from dicap.training.plan import Step

counts = st.integers(0, 70)
sizes = st.integers(1, 9)


def step_of(n_labelled, n_unlabelled):
    return Step(100 + np.arange(n_labelled), 500 + np.arange(n_unlabelled))


@given(st.integers(0, 200), sizes)
def test_pieces_are_consecutive_and_of_nearly_one_length(n, size):
    found = pieces(n, size)
    assert np.concatenate([np.arange(n)[piece] for piece in found]).tolist() == list(range(n))
    lengths = [piece.stop - piece.start for piece in found]
    assert max(lengths) - min(lengths) <= 1


@given(counts, counts, sizes)
def test_parts_cover_a_step_once_or_all_of_them_take_it_whole(n_labelled, n_unlabelled, size):
    step = step_of(n_labelled, n_unlabelled)
    shares = [part.of(step) for part in shards(step, size)]
    assert sum(part.weight for part in shards(step, size)) == pytest.approx(1 if shards(step, size)[0].weight < 1 else size)
    if n_labelled + n_unlabelled < 2 * size:
        assert all(np.array_equal(share.labelled, step.labelled) for share in shares)
        assert all(np.array_equal(share.unlabelled, step.unlabelled) for share in shares)
        return
    assert sorted(np.concatenate([share.labelled for share in shares])) == sorted(step.labelled)
    assert sorted(np.concatenate([share.unlabelled for share in shares])) == sorted(step.unlabelled)
    images = [share.images for share in shares]
    assert min(images) >= 2 or size == 1
    assert max(images) - min(images) <= 1


@given(st.integers(1, 20), st.integers(4, 40), sizes, st.integers(0, 10**6))
def test_every_pair_goes_to_the_process_that_has_its_views(n_labelled, n_unlabelled, size, seed):
    step = step_of(n_labelled, n_unlabelled)
    shares = shards(step, size)
    if shares[0].weight != 1:
        return
    rng = np.random.default_rng(seed)
    seen = rng.random(n_unlabelled) < 0.6
    image, c = np.nonzero(seen[:, None] & (rng.random((n_unlabelled, 3)) < 0.7))
    pairs = np.stack([image, c, (seen.cumsum() - 1)[image]], axis=1)
    masks = [mask_of(n_unlabelled, part.unlabelled) for part in shares]
    stood = np.full(len(pairs), -1)
    for rank, part in enumerate(shares):
        mine, own = local_pairs(pairs, masks, seen, rank)
        here = step.unlabelled[part.unlabelled]
        watched = here[seen[part.unlabelled]]
        for place, (a, c, b) in zip(range(own.start, own.stop), mine, strict=True):
            assert here[a] == watched[b], "both views are of one image"
            stood[place] = 3 * (here[a] - 500) + c
    wanted = 3 * pairs[:, 0] + pairs[:, 1]
    assert sorted(stood) == sorted(wanted)
