"""D2L: joint logits of tiles, tiles on the device, four heads and which of them answers."""

import math

import numpy as np
import pytest
import tiny
import torch

from dicap.data import augment
from dicap.methods import build_method
from dicap.methods.base import Batch
from dicap.methods.d2l import copy_label_heads
from dicap.network.decoupled import cut_tiles, joint_logits


@pytest.fixture
def method():
    return build_method(tiny.settings({"method": "d2l", "head": "linear"}), 3)


@pytest.fixture
def network(method):
    torch.manual_seed(0)
    return method.build_network().eval()


def test_joint_logits_equal_a_slow_version():
    torch.manual_seed(0)
    x = torch.randn(3, 4, 2)
    got = joint_logits(x)
    for b in range(3):
        for c in range(2):
            values = [float(x[b, t, c]) for t in range(4)]
            total = sum(math.exp(v) for v in values)
            assert float(got[b, c]) == pytest.approx(sum(math.exp(v) / total * v for v in values), rel=1e-5)


@pytest.mark.parametrize("size", [32, 33])
def test_tiles_on_the_device_are_pillow_s_to_a_level(size):
    images = np.random.default_rng(0).integers(0, 256, (2, size, size, 3)).astype(np.uint8)
    ours = cut_tiles(torch.from_numpy(images).permute(0, 3, 1, 2)).permute(0, 1, 3, 4, 2).numpy()
    assert ours.shape == (2, 4, size, size, 3)
    assert np.abs(ours.astype(int) - augment.cut_tiles(images, 2).astype(int)).max() <= 1


def test_scores_are_half_the_image_s_and_half_the_tiles_logits(method, network):
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        logits, z = network(images)
        whole = network.head.f1(network.features(images))[0]
        tiles = torch.stack([network.head.f2(network.features(tile))[0] for tile in cut_tiles(images)])  # (B, 4, C)
    torch.testing.assert_close(logits, (whole + joint_logits(tiles)) / 2, rtol=1e-4, atol=1e-5)
    assert z.shape[:2] == (2, 3)


def test_the_heads_of_pseudo_labels_start_as_copies_and_never_answer(method, network):
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    assert not torch.equal(network.head.f1.linear.weight, network.head.f3.linear.weight)
    copy_label_heads(network)
    for one, other in ((network.head.f1, network.head.f3), (network.head.f2, network.head.f4)):
        assert torch.equal(one.linear.weight, other.linear.weight) and one.linear.weight is not other.linear.weight
    with torch.no_grad():
        before = network(images)[0]
        for head in (network.head.f3, network.head.f4):
            head.linear.weight.zero_()
        assert torch.equal(network(images)[0], before)


def test_each_head_learns_from_its_own_labels(method, network):
    views = {
        "strong": torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8),
        "strong_tiles": torch.randint(0, 256, (4, 4, 3, 32, 32), dtype=torch.uint8),
    }
    y, label = torch.tensor([[1, 0, 0]]), torch.tensor([[1, 0, -1]] * 3, dtype=torch.int8)
    batch = Batch(views, y, label, (label >= 0).float(), False, torch.empty(0, 3, dtype=torch.int64), 4)
    terms = method.main_losses(network, batch)
    for term, mine, others in (("loss_sup", ("f1", "f2"), ("f3", "f4")), ("loss_pseudo", ("f3", "f4"), ("f1", "f2"))):
        network.zero_grad()
        terms[term].backward(retain_graph=True)
        assert all(getattr(network.head, name).linear.weight.grad.abs().sum() > 0 for name in mine)
        assert all(getattr(network.head, name).linear.weight.grad is None for name in others)


def test_tiles_have_views_of_their_own(method):
    requests = {r.key: r for r in method.main_views(np.arange(2), np.arange(2, 5), np.zeros(3, bool))}
    assert {key: (r.view.name, r.view.tiles, len(r.rows)) for key, r in requests.items()} == {
        "strong": ("strong", 1, 5), "strong_tiles": ("strong", 2, 5), "weak": ("weak", 1, 3), "weak_tiles": ("weak", 2, 3),
    }  # fmt: skip
