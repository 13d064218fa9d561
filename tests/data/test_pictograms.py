"""The bundled scenes of pictograms."""

import hashlib

import numpy as np
import pytest
from PIL import Image

from dicap.data.sources import read_raw
from dicap.data.sources.benchmarks import pictograms
from dicap.data.sources.benchmarks.pictograms import CLASSES, GRID, KINDS, TEST, TRAIN


@pytest.fixture(scope="module")
def raw():
    return read_raw("pictograms", None)


@pytest.fixture(scope="module")
def matrix(raw):
    labels = np.zeros((len(raw.items), len(CLASSES)), int)
    for row, item in enumerate(raw.items):
        labels[row, list(item.labels)] = 1
    return labels


def test_sizes_and_names(raw):
    assert [item.split for item in raw.items] == ["train"] * TRAIN + ["test"] * TEST
    assert len({item.id for item in raw.items}) == TRAIN + TEST and raw.classes == CLASSES == list(KINDS)


def test_one_to_four_kinds_and_unequal_classes(matrix):
    assert set(matrix.sum(1)) == {1, 2, 3, 4}
    share = matrix.mean(0)
    assert share.max() > 2 * share.min() and np.corrcoef(share, np.arange(len(share)))[0, 1] < -0.95
    assert np.abs(matrix[:TRAIN].mean(0) - matrix[TRAIN:].mean(0)).max() < 0.06
    assert matrix[TRAIN:].sum(0).min() >= 50, "every class can be tested"


def test_no_two_kinds_share_a_drawing():
    signs = "".join(KINDS.values())
    assert len(set(signs)) == len(signs)
    stencils = [drawing.tobytes() for kind in pictograms.Scenes()._stencils for drawing in kind]
    assert len(set(stencils)) == len(stencils), "the typeface has every sign: a missing one would be the same box as others"
    assert all(np.frombuffer(drawing, np.uint8).mean() > 10 for drawing in stencils)


def test_the_kinds_drawn_are_the_kinds_of_the_label(raw, monkeypatch):
    owner = {drawing.tobytes(): kind for kind, drawings in enumerate(raw.images._stencils) for drawing in drawings}
    drawn, turned = [], pictograms._turned

    def spy(stencil, size, rng):
        drawn.append(owner[stencil.tobytes()])
        return turned(stencil, size, rng)

    monkeypatch.setattr(pictograms, "_turned", spy)
    for i in (0, 1, 7, TRAIN - 1, TRAIN, TRAIN + TEST - 1):
        drawn.clear()
        raw.images.read(i)
        assert tuple(sorted(drawn)) == raw.items[i].labels


def test_scenes_are_the_same_every_time_and_all_different(raw):
    again = read_raw("pictograms", None)
    assert again.items == raw.items
    scenes = [raw.images.read(i).tobytes() for i in (0, 1, TRAIN)]
    assert scenes == [again.images.read(i).tobytes() for i in (0, 1, TRAIN)]
    assert len(set(scenes)) == 3
    listed = hashlib.sha256(repr([item.labels for item in raw.items]).encode()).hexdigest()
    assert listed[:16] == "a33a4603ec8293b0", "the labels of the data set are fixed for good"


def test_no_place_is_preferred():
    """Centres fill the square that leaves each pictogram inside; a quarter of them lies in each quarter of the scene."""
    rng, sizes = np.random.default_rng(0), np.array([70.0, 70.0])
    centres = np.concatenate([pictograms._places(sizes, rng) for _ in range(500)])
    assert centres.min() >= 35 and centres.max() <= GRID - 35
    quarters = np.histogram2d(*centres.T, bins=[[0, GRID / 2, GRID]] * 2)[0] / len(centres)
    assert np.abs(quarters - 0.25).max() < 0.06


def test_pictograms_keep_apart_where_there_is_room():
    rng, sizes = np.random.default_rng(0), np.array([60.0, 70.0])
    gaps = [np.hypot(*np.diff(pictograms._places(sizes, rng), axis=0)[0]) for _ in range(200)]
    assert np.mean(np.array(gaps) >= pictograms.OVERLAP * 65) > 0.98


def test_a_pictogram_stands_out_from_its_ground(raw, monkeypatch):
    scenes = [np.asarray(raw.images.read(i)).astype(float) for i in range(0, TRAIN, 400)]
    monkeypatch.setattr(pictograms, "_turned", lambda stencil, size, rng: Image.new("L", (8, 8)))
    grounds = [np.asarray(raw.images.read(i)).astype(float) for i in range(0, TRAIN, 400)]
    assert all(scene.shape == (GRID, GRID, 3) for scene in scenes)
    assert all((np.abs(scene - ground).mean(2) > 60).mean() > 0.01 for scene, ground in zip(scenes, grounds, strict=True))
