"""BBAM: loss, angle transform, statistics with momentum, and the leaks that only named options bring back."""

import math

import numpy as np
import pytest
import tiny
import torch

from dicap.methods import build_method
from dicap.methods.base import Roles
from dicap.methods.bbam import angle_statistics, angular_margin_loss, prototypes
from dicap.methods.leaks import named_leak
from dicap.network.cosine import CosineHead, balance, transform


def test_loss_equals_a_slow_version():
    torch.manual_seed(0)
    cosine, y = torch.rand(6, 3) * 2 - 1, torch.randint(0, 2, (6, 3))
    got = angular_margin_loss(cosine, y, scale=20, margin=0.4)
    for i in range(6):
        for c in range(3):
            value = 20 * (float(cosine[i, c]) - 0.4 * int(y[i, c]))
            sigma = 1 / (1 + math.exp(-value))
            assert float(got[i, c]) == pytest.approx(-math.log(sigma if y[i, c] else 1 - sigma), rel=1e-4, abs=1e-5)


def test_loss_is_finite_at_the_ends():
    for value in (-1.0, 1.0):
        cosine = torch.full((1, 2), value, requires_grad=True)
        angular_margin_loss(balance(cosine, torch.zeros(2, 2), torch.zeros(2, 2)), torch.tensor([[0, 1]])).sum().backward()
        assert torch.isfinite(cosine.grad).all()


def test_without_the_clamp_a_cosine_above_1_is_not_a_number():
    assert balance(torch.tensor([[1.0000002]]), torch.zeros(2, 1), torch.zeros(2, 1), clamp=0).isnan().all()
    assert torch.isfinite(balance(torch.tensor([[1.0000002]]), torch.zeros(2, 1), torch.zeros(2, 1))).all()


def test_transform_equals_the_printed_formula():
    mean, variance = torch.tensor([[1.5, 1.4], [0.7, 0.9]]), torch.tensor([[0.02, 0.0], [0.08, 0.03]])
    a, b = transform(mean, variance)
    for v in (0, 1):
        wanted = math.sqrt(0.05 / float(variance[v, 0]))
        assert float(a[v, 0]) == pytest.approx(wanted)
        assert float(b[v, 0]) == pytest.approx((1 - wanted) * float(mean[v, 0]), rel=1e-5)
    assert a[:, 1].tolist() == [1, 1] and b[:, 1].tolist() == [0, 0]  # unknown statistics: the identity

    cosine = torch.tensor([[0.3, 0.2], [-0.5, 0.9]])
    theta = torch.arccos(cosine)
    y = torch.tensor([[1, 0], [0, 1]])
    got = balance(cosine, mean, variance, y)
    for i in range(2):
        for c in range(2):
            v = int(y[i, c])
            assert float(got[i, c]) == pytest.approx(math.cos(float(a[v, c] * theta[i, c] + b[v, c])), abs=1e-5)
    half = balance(cosine, mean, variance)
    assert float(half[0, 0]) == pytest.approx(math.cos(float(a[:, 0].mean() * theta[0, 0] + b[:, 0].mean())), abs=1e-5)


def test_the_transform_gives_both_labels_the_mean_variance():
    torch.manual_seed(1)
    theta = torch.cat([1.5 + 0.05 * torch.randn(500), 0.9 + 0.2 * torch.randn(500)]).unsqueeze(1)
    label = torch.cat([torch.zeros(500), torch.ones(500)]).unsqueeze(1)
    mean, variance, unknown = angle_statistics(torch.cos(theta), label, None)
    balanced = torch.arccos(balance(torch.cos(theta), mean, variance, label))
    assert unknown == 0
    for half in (balanced[:500], balanced[500:]):
        assert float(half.var()) == pytest.approx(float(variance.mean()), rel=0.05)


def test_statistics_equal_a_slow_version_and_remember():
    rng = np.random.default_rng(0)
    cosine = torch.from_numpy(rng.uniform(-1, 1, (25, 3)))
    label = torch.from_numpy(rng.choice([-1, 0, 1], (25, 3)))
    label[:, 2] = 0  # no positives: unknown
    old = torch.rand(2, 3) + 0.1, torch.rand(2, 3) + 0.1
    mean, variance, unknown = angle_statistics(cosine, label, old, momentum=0.01)
    for v in (0, 1):
        for c in (0, 1):
            angles = [math.acos(float(cosine[i, c])) for i in range(25) if label[i, c] == v]
            assert float(mean[v, c]) == pytest.approx(0.99 * np.mean(angles) + 0.01 * float(old[0][v, c]), rel=1e-5)
            assert float(variance[v, c]) == pytest.approx(0.99 * np.var(angles, ddof=1) + 0.01 * float(old[1][v, c]), rel=1e-5)
    assert unknown == 1
    torch.testing.assert_close(mean[:, 2], old[0][:, 2])
    first = angle_statistics(cosine, label, None)
    assert first[1][:, 2].tolist() == [0, 0] and float(first[0][0, 0]) != float(mean[0, 0])


def test_prototypes_are_the_mean_features_of_the_positives():
    h, label = torch.eye(4), torch.tensor([[1, 0], [1, 0], [-1, 0], [0, 0]])
    assert prototypes(h, label).tolist() == [[0.5, 0.5, 0, 0], [0, 0, 0, 0]]


def test_head_scores_are_the_average_of_both_maps():
    torch.manual_seed(0)
    head, features = CosineHead(8, 3), torch.rand(5, 8, 2, 2)
    logits, z = head(features)
    torch.testing.assert_close(logits, head.cosines(features), atol=1e-4, rtol=1e-4)  # no statistics yet
    assert z.shape == (5, 3, 256)
    head.mean.copy_(torch.tensor([[1.5] * 3, [1.0] * 3]))
    head.variance.copy_(torch.tensor([[0.01] * 3, [0.04] * 3]))
    torch.testing.assert_close(head(features)[0], balance(head.cosines(features), head.mean, head.variance))
    assert {"mean", "variance"} <= head.state_dict().keys()  # a saved model scores as it was evaluated


def roles():
    return Roles(np.arange(4), np.arange(4, 6), np.arange(6, 20), np.arange(20, 24))


def test_warm_up_sees_the_same_labels_unless_the_leak_is_named():
    clean = build_method(tiny.settings({"method": "bbam"}), 3)
    leaky = build_method(tiny.settings({"method": "bbam", "bbam.warmup_split": "seed_1000"}), 3)
    assert clean.warmup(roles()).labelled.tolist() == list(range(6)) and named_leak(clean.settings) is None
    other = leaky.warmup(roles()).labelled
    assert len(other) == 6 and other.tolist() == np.random.RandomState(1000).permutation(20)[:6].tolist()
    assert named_leak(leaky.settings) == "bbam.warmup_split: seed_1000"


@pytest.mark.parametrize(
    ("ratio", "batch", "wanted"), [(0.05, 64, 4), (0.1, 64, 8), (0.15, 64, 16), (0.2, 64, 32), (0.05, 32, 2)]
)
def test_published_batches(ratio, batch, wanted):
    changes = {"method": "bbam", "ratio": ratio, "train.batch_size": batch, "train.batch_labelled": "auto"}
    assert build_method(tiny.settings(changes), 3).main(roles()).batch_labelled == wanted
    assert build_method(tiny.settings(changes | {"warmup.batch_size": "auto"}), 3).warmup(roles()).batch_labelled == 16
