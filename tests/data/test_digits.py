"""The embedded default data set."""

import numpy as np
import pytest

from dicap.data.resize import convert_one
from dicap.data.sources import read_raw
from dicap.data.sources.benchmarks import digits
from dicap.data.sources.benchmarks.digits import TEST, TRAIN


@pytest.fixture(scope="module")
def raw():
    return read_raw("digits", None)


@pytest.fixture(scope="module")
def matrix(raw):
    labels = np.zeros((len(raw.items), 10), int)
    for row, item in enumerate(raw.items):
        labels[row, list(item.labels)] = 1
    return labels


def test_one_to_four_digits_and_unequal_classes(matrix):
    assert set(matrix.sum(1)) == {1, 2, 3, 4}
    share = matrix.mean(0)
    assert share.max() > 2 * share.min() and (np.diff(share) < 0.005).all()
    assert np.abs(matrix[:TRAIN].mean(0) - matrix[TRAIN:].mean(0)).max() < 0.06


def test_no_handwritten_digit_is_in_both_splits():
    scenes = digits.Scenes()
    train, test = (set(np.concatenate(scenes._sources[split]).tolist()) for split in ("train", "test"))
    assert not train & test and len(train) + len(test) == 1797
    assert all(len(chosen) > 20 for chosen in scenes._sources["test"])


def test_the_digits_drawn_are_the_digits_of_the_label(raw, monkeypatch):
    scenes = digits.Scenes()
    drawn: list[int] = []
    owner = {}
    for split, sources in scenes._sources.items():
        for digit, chosen in enumerate(sources):
            owner |= {(split, int(i)): digit for i in chosen}
    glyph_digit = {scenes._glyphs[i].tobytes(): digit for (_, i), digit in owner.items()}
    slant = digits._slant

    def spy(glyph, size, rng):
        drawn.append(glyph_digit[glyph.tobytes()])
        return slant(glyph, size, rng)

    monkeypatch.setattr(digits, "_slant", spy)
    for i in (0, 1, 7, TRAIN - 1, TRAIN, TRAIN + TEST - 1):
        drawn.clear()
        scenes.read(i)
        assert tuple(sorted(set(drawn))) == raw.items[i].labels


def test_scenes_are_the_same_every_time_and_all_different(raw):
    again = read_raw("digits", None)
    assert again.items == raw.items
    results = [convert_one(raw.images, i, 48).data for i in (0, 1, TRAIN)]
    assert results == [convert_one(again.images, i, 48).data for i in (0, 1, TRAIN)]
    assert len(set(results)) == 3


def test_digits_keep_apart(raw):
    rng = np.random.default_rng(0)
    for count in (2, 3, 4) * 30:
        sizes = rng.uniform(26, 32, count)
        centres = digits._places(sizes, rng)
        gap = np.abs(centres[:, None] - centres[None]).max(2) + np.eye(count) * 99
        assert gap.min() >= 25  # at least four fifths of a digit's side in one direction
