"""The bank: the same features as the network gives, the same bytes whatever stops it, and nothing else's features."""

import hashlib
import shutil

import numpy as np
import pytest
import tiny
import torch
from data.test_store import edit_meta
from torch.nn.functional import adaptive_avg_pool2d

from dicap.data import loader
from dicap.data.augment import View, render_batch
from dicap.data.loader import Request
from dicap.data.store import Store
from dicap.errors import DataError
from dicap.files.features import BACKBONE, write_empty
from dicap.frozen.features.bank import FeatureBank
from dicap.frozen.features.compute import fill
from dicap.frozen.features.recipe import Recipe, asked_for, pretrained_network
from dicap.frozen.inputs import BankFeatures, choose
from dicap.machine.runtime import Runtime
from dicap.network.stored import save_backbone

CPU = Runtime(torch.device("cpu"))


class Made:
    """A recipe with all that it was made from, and a folder."""

    def __init__(self, folder, store, changes=None):
        self.settings = tiny.settings({"features.views": 2, "features.grid": 2} | (changes or {}))
        self.store, self.folder = store, folder
        self.network = pretrained_network(self.settings)
        self.recipe = Recipe.of(self.settings, store, self.network)

    def fill(self):
        return fill(self.folder, self.recipe, self.store, self.network, self.folder.with_name("known"), workers=0)

    def open(self):
        return FeatureBank.open(self.folder)


@pytest.fixture(scope="module")
def store(tiny_set):
    return Store.open(tiny_set)


@pytest.fixture(scope="module")
def made(store, tmp_path_factory):
    made = Made(tmp_path_factory.mktemp("bank") / "features", store)
    made.fill()
    return made


def slow(made, row, view, name):
    """Features of one image in one view, from the views' definition: (g * g, D) float32."""
    content = hashlib.blake2b(made.store.image(row), digest_size=16).digest()
    request = Request(name, np.array([int.from_bytes(content[:8], "little")], np.uint64), view)
    images = render_batch(made.store.pixels(np.array([row])), view, loader.draws(0, "features", 0, request))
    with torch.inference_mode():
        maps = made.network.features(torch.from_numpy(images).permute(0, 3, 1, 2))
    return adaptive_avg_pool2d(maps, made.recipe.grid)[0].flatten(1).T.numpy()


@pytest.mark.parametrize(
    ("name", "view"),
    [
        ("plain", View("test")),
        ("mirror", View("weak", flip=1.0)),
        ("strong_0", View("strong", cutout=0.5)),
        ("strong_1", View("strong", cutout=0.5)),
    ],
)
def test_a_bank_holds_the_network_s_features_of_each_view(made, name, view):
    features = made.open().view(name)
    for row in (0, 17, made.store.n - 1):
        np.testing.assert_allclose(features[row], slow(made, row, view, name), rtol=2e-3, atol=2e-3)


def test_shapes_types_and_bytes(made):
    bank = made.open()
    assert bank.view("plain").shape == (made.store.n, 4, bank.channels) and bank.view("plain").dtype == np.float16
    size = sum(path.stat().st_size - 128 for path in made.folder.glob("*.npy"))
    assert size == made.recipe.bytes_per_image * made.store.n
    assert isinstance(bank.view("plain"), np.memmap) and not bank.view("plain").flags.writeable
    with pytest.raises(IndexError, match="row -1 is outside"):
        next(BankFeatures(bank, 3, 0.5).scoring(CPU, np.array([-1]), None))


def test_batches_are_what_the_image_loader_s_would_be(made):
    """The same requests: weak views mirrored where the image loader mirrors them, strong ones out of the bank."""
    bank, rows = made.open(), np.array([5, 2, 40, 11, 30])
    steps = [
        [Request("weak", rows, View("weak")), Request("strong", rows[:3], View("strong"))],
        [Request("weak", rows[::-1], View("weak"))],
    ]
    options = {"stage": "train", "epoch": 2}
    batches = list(BankFeatures(bank, 3, 0.5).views(CPU, steps, **options, start=0))
    images = list(loader.load(made.store, steps, workers=0, seed=3, **options))
    for step in (0, 1):
        with torch.inference_mode():
            maps = made.network.features(images[step]["weak"])
        torch.testing.assert_close(batches[step]["weak"], adaptive_avg_pool2d(maps, 2), rtol=2e-3, atol=2e-3)
    for i, row in enumerate(rows[:3]):
        strong = batches[0]["strong"][i].flatten(1).T
        assert any(np.array_equal(strong, bank.view(f"strong_{v}")[row]) for v in range(2))


@pytest.mark.parametrize("weak", [None, ("train", 2)])
def test_scoring_shows_what_the_image_loader_shows(made, weak):
    rows = np.arange(made.store.n)[::-1]
    found = torch.cat([features for _, features in BankFeatures(made.open(), 3, 0.5).scoring(CPU, rows, weak)])
    images = torch.cat([images for _, images in loader.scoring_batches(made.store, rows, 7, flip=weak and (3, *weak))])
    with torch.inference_mode():
        expected = adaptive_avg_pool2d(made.network.features(images), 2)
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"augment.cutout": 0.25}, "other cutout than"),
        ({"backbone": "test_resnet.r160_in1k"}, "other backbone than"),
        ({"backbone_weights": "imagenet"}, "other origin than"),
    ],
)
def test_a_bank_of_something_else_is_refused(made, changes, line):
    bank = FeatureBank.open(made.folder)
    bank.check(made.settings, made.store)
    with pytest.raises(DataError, match=f"{line}.*; run `dvc repro features`"):
        bank.check(tiny.settings({"features.views": 2, "features.grid": 2} | changes), made.store)


def test_weights_are_told_by_the_content_of_their_file(made, tmp_path):
    files = [tmp_path / name for name in ("one.safetensors", "same.safetensors", "other.safetensors")]
    for file, content in zip(files, (b"1", b"1", b"2"), strict=True):
        file.write_bytes(content)
    wanted = [asked_for(tiny.settings({"backbone_weights": str(file)}), made.store)["origin"] for file in files]
    assert [origin == wanted[0] for origin in wanted] == [True, True, False]


def test_a_bank_of_other_images_is_refused(made, tmp_path):
    raw = tiny.photographs(tmp_path / "raw", {"train": 20, "test": 4, "unlabeled": 2})
    other = Store.open(tiny.converted(raw, tmp_path / "set"))
    with pytest.raises(DataError, match="made with other images than the settings have"):
        FeatureBank.open(made.folder).check(made.settings, other)


def read(bank):
    for name in bank.recipe.files:
        bank.view(name)
    bank.backbone.state_dict()


DAMAGE = {
    "a feature": (
        lambda folder: tiny.flip(folder / "strong_1.npy", -3),
        r"strong_1\.npy: damaged .* remove .* and run `dvc repro features`",
    ),
    "the recipe": (lambda folder: edit_meta(folder, recipe={"views": 3}), "remove .* and run `dvc repro features`"),
    "its fingerprint": (
        lambda folder: edit_meta(folder, fingerprint="x"),
        "another version, or damaged .* run `dvc repro features`",
    ),
    "the checksums": (lambda folder: edit_meta(folder, checksums={}), "remove .* and run `dvc repro features`"),
    "no meta": (lambda folder: (folder / "meta.json").unlink(), "is not a feature bank"),
    "nothing in it": (write_empty, "holds no features.*run `dvc repro features`"),
    "the backbone": (lambda folder: tiny.flip(folder / BACKBONE, -3), "damaged .* run `dvc repro features`"),
    "no backbone": (lambda folder: (folder / BACKBONE).unlink(), "not readable .* run `dvc repro features`"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_is_damaged_is_one_line_with_the_remedy(made, tmp_path, what):
    own = Made(tmp_path / "features", made.store)
    shutil.copytree(made.folder, own.folder)
    save_backbone(own.network.backbone, own.folder / BACKBONE)
    stored, tensors = own.open().backbone.state_dict(), own.network.backbone.state_dict()
    assert stored.keys() == tensors.keys() and all(torch.equal(value, tensors[name]) for name, value in stored.items())
    spoil, words = DAMAGE[what]
    spoil(own.folder)
    with pytest.raises(DataError, match=words):
        read(own.open())


def test_strong_views_are_chosen_evenly_and_anew_each_epoch():
    rows = np.arange(3000)
    request = Request("strong", rows, View("strong", cutout=0.5))
    chosen = choose(request, 1, "train", 3, 4)
    assert set(chosen) == {2, 3, 4, 5}
    assert np.bincount(chosen)[2:] == pytest.approx(750, abs=120)  # five standard deviations
    assert (chosen != choose(request, 1, "train", 4, 4)).mean() == pytest.approx(0.75, abs=0.05)
    assert (chosen == choose(Request("strong", rows[::-1], request.view), 1, "train", 3, 4)[::-1]).all(), "a row's is its own"
    assert not choose(Request("plain", rows, View("test")), 1, "train", 0, 0).any()
