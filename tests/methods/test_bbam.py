"""BBAM: loss, angle transform, and statistics with momentum."""

import copy
import math
from types import SimpleNamespace

import numpy as np
import tiny
import torch
import torch.nn.functional as F
from training.test_optimisation import optimisation as optimisation_of

from dicap.methods import build_method
from dicap.methods.base import Batch, Roles
from dicap.methods.bbam import angle_statistics, angular_margin_loss
from dicap.network.cosine import CosineHead, balance


def test_loss_is_finite_at_the_ends():
    for value in (-1.0, 1.0):
        cosine = torch.full((1, 2), value * 1.0000002, requires_grad=True)  # rounding takes a cosine beyond 1
        angular_margin_loss(balance(cosine, torch.zeros(2, 2), torch.zeros(2, 2)), torch.tensor([[0, 1]])).sum().backward()
        assert torch.isfinite(cosine.grad).all()


def test_without_a_label_the_transform_is_the_mean_of_both_and_without_statistics_there_is_none():
    mean, variance = torch.tensor([[1.5, 1.4], [0.7, 0.9]]), torch.tensor([[0.02, 0.0], [0.08, 0.03]])
    cosine = torch.tensor([[0.3, 0.2], [-0.5, 0.9]])
    a = (0.05 / variance[:, 0]).sqrt()
    angle = a.mean() * torch.arccos(cosine[:, 0]) + ((1 - a) * mean[:, 0]).mean()
    for value in (None, torch.tensor([[1, 0], [0, 1]])):
        got = balance(cosine, mean, variance, value)
        torch.testing.assert_close(got[:, 1], cosine[:, 1])
        assert torch.allclose(got[:, 0], torch.cos(angle)) == (value is None)


def slow_statistics(cosine, label, old, momentum=0.01):
    """[label value][class] of means and variances, as published; classes that lack positives or negatives keep the old ones."""
    means, variances = ([[float(x) for x in row] for row in part] for part in old)
    for c in range(label.shape[1]):
        angles = {v: [math.acos(float(cosine[i, c])) for i in range(len(label)) if label[i, c] == v] for v in (0, 1)}
        if min(map(len, angles.values())) < 2:
            continue
        for v, values in angles.items():
            means[v][c] = (1 - momentum) * sum(values) / len(values) + momentum * means[v][c]
            around = sum((angle - means[v][c]) ** 2 for angle in values) / (len(values) - 1)  # the smoothed mean
            variances[v][c] = (1 - momentum) * around + momentum * variances[v][c]
    return torch.tensor(means), torch.tensor(variances)


def test_statistics_equal_a_slow_version_and_remember():
    rng = np.random.default_rng(0)
    cosine = torch.from_numpy(rng.uniform(-1, 1, (25, 4)))
    label = torch.from_numpy(rng.choice([-1, 0, 1], (25, 4)))
    label[:, 2] = 0  # no positives: unknown
    cosine[:, 3] = 0.3  # no spread: unknown
    old = torch.rand(2, 4) + 0.1, torch.rand(2, 4) + 0.1
    mean, variance, unknown = angle_statistics(cosine, label, old)
    wanted = slow_statistics(cosine[:, :3], label[:, :3], (old[0][:, :3], old[1][:, :3]))
    torch.testing.assert_close(mean[:, :3], wanted[0])
    torch.testing.assert_close(variance[:, :3], wanted[1])
    assert unknown == 2
    torch.testing.assert_close(mean[:, 2:], old[0][:, 2:])
    torch.testing.assert_close(variance[:, 2:], old[1][:, 2:])


def outputs_of(h):
    """What a teacher gives of features h, of any length, that are a table by row."""
    network = torch.nn.Module()
    network.features, network.head = torch.nn.Identity(), CosineHead(6, 3)
    network.head.mlp = torch.nn.Identity()
    return lambda rows, function: function(network, h[rows][:, :, None, None])


def test_an_epoch_s_statistics_and_mask_equal_the_published_procedure():
    torch.manual_seed(3)
    n, n_l, classes = 40, 12, 3
    roles = Roles(np.arange(8), np.arange(8, n_l), np.arange(n_l, n), np.arange(0))
    y = (torch.rand(n, classes) < 0.4).to(torch.uint8)
    method, carry = build_method(tiny.settings({"method": "bbam", "bbam.negatives": 0.5}), classes), {}
    old = torch.zeros(2, classes), torch.zeros(2, classes)
    for _ in range(3):  # epochs
        scores = torch.rand(n, classes)
        h = torch.randn(n, 6) * torch.logspace(-1, 1, n)[torch.randperm(n), None] + 0.5  # lengths differ a hundredfold
        tables = {"scores": scores.__getitem__, "labels": y.__getitem__, "outputs": outputs_of(h)}
        refresh = method.refresh(SimpleNamespace(**tables, carry=carry), roles)
        label = torch.cat([y[:n_l].to(torch.int8), refresh.pseudo.label])
        cosine, kept = torch.empty(n, classes), torch.zeros(n, classes)
        for c in range(classes):
            positives = [i for i in range(n) if label[i, c] == 1]
            centre = sum(h[i].double() for i in positives) / len(positives)  # of raw features
            for i in range(n):
                x = h[i].double()
                cosine[i, c] = float(x @ centre) / math.sqrt(float(x @ x) * float(centre @ centre))
            negatives = sorted((i for i in range(n) if label[i, c] == 0), key=lambda i: -float(cosine[i, c]))
            kept[positives + negatives[: int(0.5 * len(positives))], c] = 1
        old = slow_statistics(cosine, label, old)
        torch.testing.assert_close(refresh.carry["mean"], old[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(refresh.carry["variance"], old[1], rtol=1e-4, atol=1e-5)
        assert torch.equal(refresh.labelled_weight, kept[:n_l])
        assert torch.equal(refresh.pseudo.weight, kept[n_l:])
        carry = dict(refresh.carry)


def test_a_main_step_equals_the_published_one():
    torch.manual_seed(0)
    method = build_method(tiny.settings({"method": "bbam", "bbam.lr": 3e-3}), 3)
    network = method.build_network().train()
    statistics = torch.tensor([[1.5, 1.4, 1.6], [0.9, 1.1, 1.0]]), torch.tensor([[0.01, 0.02, 0.02], [0.04, 0.03, 0.05]])
    network.head.mean.copy_(statistics[0])
    network.head.variance.copy_(statistics[1])
    slow = copy.deepcopy(network)
    optimisation = optimisation_of(network, lr=method.lr, weight_decay=10.0)
    images = torch.randint(0, 256, (5, 3, 32, 32), dtype=torch.uint8)
    y, label = torch.tensor([[1, 0, 0], [0, 1, 1]]), torch.tensor([[1, 0, -1], [0, -1, 1], [0, 0, 0]], dtype=torch.int8)
    sampled = torch.tensor([[1.0, 1, 0], [0, 1, 1], [1, 1, 0], [0, 0, 1], [1, 0, 1]])
    batch = Batch({"strong": images}, y, label, sampled[2:], False, torch.empty(0, 3), 5, y_weight=sampled[:2])

    optimisation.update(sum(method.main_losses(network, batch).values()))

    h = slow.head.mlp(slow.features(images).mean((2, 3)))
    target, loss = torch.cat([y, label.clamp_min(0)]), 0.0
    for i in range(5):
        for c in range(3):
            v = int(target[i, c])
            cosine = F.cosine_similarity(h[i], slow.head.weight[c], dim=0)
            a = (statistics[1][:, c].mean() / statistics[1][v, c]).sqrt()
            turned = torch.cos(a * torch.arccos(cosine) + (1 - a) * statistics[0][v, c])
            sigma = torch.sigmoid(20 * (turned - 0.4 * v))
            loss = loss - sampled[i, c] * torch.log(sigma if v else 1 - sigma)
    (loss / 5).backward()
    torch.optim.AdamW(slow.parameters(), lr=optimisation.lr, betas=(0.95, 0.999), weight_decay=10.0).step()
    assert optimisation.optimisers["network"].param_groups[0]["max_lr"] == 3e-3
    tiny.assert_same_step(network, slow)


def test_head_scores_are_the_average_of_both_maps():
    torch.manual_seed(0)
    head, features = CosineHead(8, 3), torch.rand(5, 8, 2, 2)
    head.mean.copy_(torch.tensor([[1.5] * 3, [1.0] * 3]))
    head.variance.copy_(torch.tensor([[0.01] * 3, [0.04] * 3]))
    torch.testing.assert_close(head(features)[0], balance(head.cosines(features), head.mean, head.variance))
    assert {"mean", "variance"} <= head.state_dict().keys()  # a saved model scores as it was evaluated
