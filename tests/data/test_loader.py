"""Batches do not depend on workers, order, resumption or other images."""

import numpy as np
import pytest
import torch

from data.raw import small_set
from dicap.data.augment import View
from dicap.data.loader import Request, load, scoring_batches
from dicap.data.store import Store

STRONG, WEAK = View("strong", cutout=0.5), View("weak")


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store.open(small_set(tmp_path_factory.mktemp("loader"), n_train=20))


def batches(store, plan, **options):
    options = {"seed": 1, "stage": "train", "epoch": 0, "workers": 0} | options
    return list(load(store, plan, **options))


def test_a_view_belongs_to_its_row_whatever_stands_beside_it(store):
    alone = batches(store, [[Request("x", np.array([7]), STRONG)]])[0]["x"][0]
    among = batches(store, [[Request("x", np.array([3]), STRONG)], [Request("x", np.array([1, 7, 2]), STRONG)]])[1]["x"][1]
    assert torch.equal(alone, among)


def test_seed_stage_epoch_and_key_draw_anew(store):
    request = [[Request("x", np.arange(20), STRONG)]]
    first = batches(store, request)[0]["x"]
    for options in ({"seed": 2}, {"stage": "warmup"}, {"epoch": 1}):
        assert (batches(store, request, **options)[0]["x"] != first).flatten(1).any(1).float().mean() > 0.8
    other = batches(store, [[Request("y", np.arange(20), STRONG)]])[0]["y"]
    assert (other != first).flatten(1).any(1).float().mean() > 0.8
    assert torch.equal(batches(store, request)[0]["x"], first)


def test_scoring_gives_every_row_once_in_order(store):
    rows = np.random.default_rng(1).permutation(store.n)[:17]
    parts = list(scoring_batches(store, rows, 5))
    assert [len(part) for part, _ in parts] == [5, 5, 5, 2]
    assert (np.concatenate([part for part, _ in parts]) == rows).all()
    assert torch.equal(torch.cat([images for _, images in parts]), store.read(rows))
    assert all(images.is_contiguous(memory_format=torch.channels_last) for _, images in parts)


def test_weak_scoring_mirrors_half_of_the_rows_whatever_the_batches(store):
    rows = np.arange(store.n)
    whole = next(iter(scoring_batches(store, rows, 100, flip=(1, "train", 3))))[1]
    pieces = torch.cat([images for _, images in scoring_batches(store, rows, 7, flip=(1, "train", 3))])
    plain = store.read(rows)
    assert torch.equal(whole, pieces)
    mirrored = (whole != plain).flatten(1).any(1)
    assert torch.equal(whole[mirrored], plain[mirrored].flip(3)) and 0.2 < mirrored.float().mean() < 0.8
    again = next(iter(scoring_batches(store, rows, 100, flip=(1, "train", 4))))[1]
    assert not torch.equal(again, whole)
