"""The bundled scenes: pictograms and digits."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from dicap.data.sources import read_raw
from dicap.data.sources.benchmarks import digits, pictograms
from dicap.data.sources.benchmarks.pictograms import KINDS, TEST, TRAIN


@pytest.fixture(scope="module", params=[digits, pictograms], ids=["digits", "pictograms"])
def module(request):
    return request.param


@pytest.fixture(scope="module")
def raw(module):
    return read_raw(module.__name__.rpartition(".")[2], Path())


def test_sizes_and_names(module, raw):
    assert [item.split for item in raw.items] == ["train"] * TRAIN + ["test"] * TEST
    assert len({item.id for item in raw.items}) == TRAIN + TEST and raw.classes == module.CLASSES


def test_no_handwritten_digit_is_in_both_splits():
    scenes = digits.Scenes()
    train, test = (set(np.concatenate(scenes._sources[split]).tolist()) for split in ("train", "test"))
    assert not train & test and len(train) + len(test) == 1797
    assert all(len(chosen) > 20 for chosen in scenes._sources["test"])


def test_no_two_kinds_share_a_drawing():
    signs = "".join(KINDS.values())
    assert len(set(signs)) == len(signs)
    stencils = [drawing.tobytes() for kind in pictograms.Scenes()._stencils for drawing in kind]
    assert len(set(stencils)) == len(stencils), "the typeface has every sign: a missing one would be the same box as others"
    assert all(np.frombuffer(drawing, np.uint8).mean() > 10 for drawing in stencils)


def test_the_kinds_drawn_are_those_of_the_label(module, raw, monkeypatch):
    if module is digits:
        from sklearn.datasets import load_digits

        owner, shape = {ink.tobytes(): kind for ink, kind in zip(raw.images._glyphs, load_digits().target, strict=True)}, "_slant"
    else:
        drawings = enumerate(raw.images._stencils)
        owner, shape = {drawing.tobytes(): kind for kind, same in drawings for drawing in same}, "_turned"
    drawn, shaped = [], getattr(module, shape)

    def spy(ink, size, rng):
        drawn.append(owner[ink.tobytes()])
        return shaped(ink, size, rng)

    monkeypatch.setattr(module, shape, spy)
    for i in (0, 1, 7, TRAIN - 1, TRAIN, TRAIN + TEST - 1):
        drawn.clear()
        raw.images.read(i)
        assert tuple(sorted(set(drawn))) == raw.items[i].labels


def test_scenes_are_the_same_every_time_and_all_different(module, raw):
    again = read_raw(raw.dataset, Path())
    assert again.items == raw.items
    scenes = [raw.images.read(i).tobytes() for i in (0, 1, TRAIN)]
    assert scenes == [again.images.read(i).tobytes() for i in (0, 1, TRAIN)]
    assert len(set(scenes)) == 3
    listed = hashlib.sha256(repr([item.labels for item in raw.items]).encode()).hexdigest()
    assert listed[:16] == {digits: "e7ccba97dbb5ff96", pictograms: "a33a4603ec8293b0"}[module], "the labels are fixed for good"
