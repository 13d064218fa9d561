"""Features are computed once: asked for again in any order, subset, split or set they are the same bits, at no cost."""

import os
import random
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
import tiny
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from dicap.data.convert import convert
from dicap.data.sources.base import FileImages, Item, RawSet
from dicap.data.store import Store
from dicap.frozen.features import compute
from dicap.frozen.features.bank import as_maps
from dicap.frozen.features.compute import fill
from dicap.frozen.features.known import KnownFeatures
from dicap.frozen.features.recipe import Recipe, pretrained_network

SETTINGS = {"features.views": 2}
N = 24


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A folder of N photographs, two of them of the same pixels."""
    folder, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for i in range(N):
        pixels = (rng if i else np.random.default_rng(7)).integers(0, 256, (4, 4, 3), np.uint8)
        pixels = np.random.default_rng(7).integers(0, 256, (4, 4, 3), np.uint8) if i == N - 1 else pixels
        Image.fromarray(pixels).resize((40, 40)).save(folder / f"{i}.png")
    return folder


class Bank:
    """The bank of some of the photographs, in an order; `tested` of them are test images."""

    def __init__(self, pictures, rows, place, changes=None, network=None, tested=()):
        s = tiny.settings(SETTINGS | (changes or {}))
        items = [Item(f"{i}", f"{i}.png", "test" if i in tested else "train", ()) for i in rows]
        raw = RawSet("made-up", ["c"], items, FileImages(pictures, [item.path for item in items]))
        convert(raw, place / "set", image_size=s.image_size, workers=0)
        self.store, self.place = Store.open(place / "set"), place
        self.network = network or pretrained_network(s)
        self.recipe = Recipe.of(s, self.store, self.network)

    def fill(self, known, **options):
        folder, known = self.place / "features", known or Path(mkdtemp(dir=self.place))
        computed = fill(folder, self.recipe, self.store, self.network, known, workers=0, **options)
        return computed, {name: np.load(folder / f"{name}.npy") for name in self.recipe.files}


@pytest.fixture(scope="module")
def whole(pictures, tmp_path_factory):
    """The features of all photographs by view, computed without a store."""
    return Bank(pictures, range(N), tmp_path_factory.mktemp("whole")).fill(None)[1]


def same(found, whole, rows, tested=()):
    """Whether these are the features of `rows`, without strong views of those `tested`."""
    for name, values in found.items():
        without = np.isin(rows, [*tested]) & name.startswith("strong")
        if not np.isnan(values[without]).all() or values[~without].tobytes() != whole[name][list(rows)][~without].tobytes():
            return False
    return True


def picture(row):
    return 0 if row == N - 1 else row


ROWS = st.lists(st.integers(0, N - 1), min_size=1, unique=True)
ASKED = st.tuples(ROWS, st.sets(st.integers(0, N - 1)))


@pytest.mark.promise("A photograph's features are computed once for any set, split or order", section="Your files and labels")
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(asked=st.lists(ASKED, min_size=1, max_size=4), data=st.randoms())
def test_whatever_is_asked_for_only_what_was_never_seen_is_computed(pictures, whole, tmp_path_factory, asked, data):
    """Of test images no strong view is."""
    known, seen, looked_at = tmp_path_factory.mktemp("known"), set(), set()
    for rows, tested in (*asked, (data.sample(range(N), N), set())):
        bank = Bank(pictures, rows, tmp_path_factory.mktemp("bank"), tested=tested)
        computed, found = bank.fill(known)
        assert same(found, whole, rows, tested)
        assert computed == sum(picture(row) not in (seen if row in tested else looked_at) for row in rows)
        seen |= set(map(picture, rows))
        looked_at |= {picture(row) for row in rows if row not in tested}


@pytest.mark.promise("A damaged feature is computed again", section="Your files and labels")
def test_a_damaged_feature_is_computed_again(pictures, whole, tmp_path):
    bank, rng = Bank(pictures, range(N), tmp_path / "x"), random.Random(0)
    bank.fill(tmp_path / "known")
    for store in sorted((tmp_path / "known").iterdir()):
        tiny.flip(rng.choice(sorted(store.glob("*/*"))), rng.randrange(10**6), rng.randrange(8))
    computed, found = bank.fill(tmp_path / "known")
    assert same(found, whole, range(N)) and 1 <= computed <= len(bank.recipe.files)
    assert bank.fill(tmp_path / "known")[0] == 0


def test_few_unknown_images_are_computed_by_themselves_and_not_stored(pictures, tmp_path):
    bank = Bank(pictures, range(9), tmp_path / "bank")
    plain = as_maps(torch.from_numpy(bank.fill(None)[1]["plain"]))
    for count, again in ((3, 3), (9, 0)):
        for expected in (count, again):
            asked = KnownFeatures(tmp_path / "known", tiny.settings(SETTINGS), bank.network, [None])
            maps = asked.maps(bank.store.pixels(np.arange(count)))
            assert asked.computed == expected and torch.allclose(maps, plain[:count], rtol=2e-3, atol=1e-4)


@pytest.mark.promise("Features of other weights, sizes or engines are never used", section="Your files and labels")
def test_of_other_weights_sizes_grids_engines_and_policies_nothing_is_known(pictures, tmp_path, monkeypatch):
    monkeypatch.setattr("dicap.frozen.features.known.FEW", 0)
    first = Bank(pictures, range(3), tmp_path / "first")
    known = tmp_path / "known"
    first.fill(known)
    other = pretrained_network(tiny.settings(SETTINGS))
    with torch.no_grad():
        next(other.backbone.parameters()).add_(1e-3)
    for number, (changes, network) in enumerate(
        [({}, other), ({"image_size": 48}, None), ({"features.grid": 2}, None), ({"network.normalize": "imagenet"}, None)]
    ):
        bank = Bank(pictures, range(3), tmp_path / f"{number}", changes, network)
        computed, found = bank.fill(known)
        assert computed == 3 and same(found, bank.fill(None)[1], range(3))
        for made_by, count in ((["an engine", None], 0), (["another engine"], 3)):
            asked = KnownFeatures(known, tiny.settings(SETTINGS | changes), bank.network, made_by)
            maps = asked.maps(bank.store.pixels(np.arange(3)))
            assert torch.equal(maps, as_maps(torch.from_numpy(found["plain"]))) and asked.computed == count
    assert first.fill(known, made_by="another engine")[0] == 3
    stronger = Bank(pictures, range(3), tmp_path / "cutout", {"augment.cutout": 0.2})
    plain = replace(stronger.recipe, views=0)
    assert fill(tmp_path / "p", plain, stronger.store, stronger.network, known, workers=0) == 0
    assert stronger.fill(known)[0] == 3 and first.fill(known)[0] == 0
    monkeypatch.setattr(compute, "version", lambda name: {"timm": "0"}.get(name, torch.__version__))
    seen = KnownFeatures(known, tiny.settings(SETTINGS), first.network, [None])
    lock = seen._stores[0].folder / "lock"
    lock.unlink()
    lock.mkdir()  # where nothing can be stored, as on a full disk, it is computed all the same
    assert torch.equal(seen.maps(first.store.pixels(np.arange(3))), as_maps(torch.from_numpy(first.fill(None)[1]["plain"])))
    lock.rmdir()
    assert first.fill(known)[0] == 3


@pytest.mark.promise("A changed photograph is decoded again, an unchanged photograph is not", section="Your files and labels")
def test_photographs_that_did_not_change_are_not_decoded_again(pictures, tmp_path, monkeypatch):
    folder, decoded = tmp_path / "raw", []
    folder.mkdir()
    for i in range(6):
        (folder / f"{i}.png").write_bytes((pictures / f"{i}.png").read_bytes())
    read = FileImages.read
    monkeypatch.setattr(FileImages, "read", lambda self, i: (decoded.append(self.paths[i]), read(self, i))[1])

    def converted(names, size=16, known=tmp_path / "known"):
        decoded.clear()
        items = [Item(name, f"{name}.png", "train", ()) for name in names]
        raw = RawSet("made-up", ["c"], items, FileImages(folder, [item.path for item in items]))
        convert(raw, tmp_path / "set", image_size=size, workers=0, known=known)
        count, found = len(decoded), tiny.content(tmp_path / "set")
        if known is not None:
            converted(names, size, None)
            assert tiny.content(tmp_path / "set") == found
        return count

    assert converted("0123") == 4
    assert converted("3021") == 0 and converted("54") == 2 and converted("01245") == 0
    stamp = os.stat(folder / "0.png")
    (folder / "0.png").write_bytes((folder / "1.png").read_bytes().ljust(stamp.st_size, b"\0")[: stamp.st_size])
    os.utime(folder / "0.png", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # a new file with the old one's size and date
    (folder / "1.png").unlink()
    assert converted("2345") == 0
    (folder / "1.png").write_bytes((folder / "2.png").read_bytes())
    assert converted("12345") == 1
    for data in (tmp_path / "known").glob("*/*/*"):
        tiny.flip(data, data.stat().st_size // 2)
    assert converted("12345") == 5 and converted("12345", 8) == 5 and converted("54321", 8) == 0
    inside, anywhere = (FileImages(folder, ["2.png"], [below]) for below in (folder, None))
    assert inside.mark(0) != anywhere.mark(0), "one that is refused as a link to elsewhere is not found in its place"
