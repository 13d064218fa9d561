"""DRML: its losses, who moves in each of the four updates, and images that are adopted for good."""

from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from training.test_optimisation import optimisation as optimisation_of

from dicap.methods import build_method
from dicap.methods.base import Batch, Roles
from dicap.methods.drml import answer_by_relation
from dicap.training.loops.drml import step
from dicap.training.plan import pool_plan

ROLES = Roles(np.arange(1), np.arange(1, 2), np.arange(2, 8), np.arange(0))
CHANGES = {"method": "drml", "drml.start": 0, "drml.per_round": 2, "drml.discrepancy": 0.01}


@pytest.fixture
def method():
    return build_method(tiny.settings(CHANGES), 3)


@pytest.fixture
def network(method):
    torch.manual_seed(0)
    network = method.build_network()
    answer_by_relation(network)
    return network


def test_the_relation_network_sees_the_outer_product(network):
    head, f1, f2 = network.head, torch.rand(4, 3), torch.rand(4, 3)
    products = torch.stack([torch.outer(a, b).flatten() for a, b in zip(f1, f2, strict=True)])
    torch.testing.assert_close(head.relate(f1, f2), head.relation(products))


def batch_of(network):
    torch.manual_seed(3)
    label = torch.tensor([[1, 0, 0], [-1, -1, -1], [-1, -1, -1]], dtype=torch.int8)
    weight = torch.tensor([[0.75, 0.9, 0.6], [0.0] * 3, [0.0] * 3])
    x = torch.rand(5, network.head.linear.in_features)
    return Batch({"features": x}, torch.tensor([[1, 0, 1], [0, 1, 0]]), label, weight, True, torch.empty(0, 3), 5)


def test_four_updates_each_minimise_their_loss_by_their_parameter_group_alone(method, network):
    batch, s = batch_of(network), method.settings.drml
    optimisation = optimisation_of(network, param_groups=method.param_groups(network.head))
    target = torch.cat([batch.y.float(), torch.tensor([[0.75, 0.1, 0.4]])])  # the adopted image's soft label

    def wanted():
        f1, f2 = network.head.classify(batch.views["features"])
        r = torch.sigmoid(network.head.relate(f1, f2))
        c_loss = sum(((f[:3] - target) ** 2).mean() for f in (f1, f2)) + 0.2 * ((r[:3] - target) ** 2).mean()
        l_da = s.discrepancy * (f1[3:] - f2[3:]).abs().sum()
        return {"joint": c_loss, "disagree": c_loss - l_da, "agree": l_da, "relation": c_loss}

    moved = {
        "joint": {"projector", "c1", "c2"}, "disagree": {"c1", "c2"}, "agree": {"projector"}, "relation": {"relation"},
    }  # fmt: skip
    seen = []

    def update(terms, groups):
        (name,), before = groups, {n: p.detach().clone() for n, p in network.named_parameters()}
        total = sum(terms.values())
        torch.testing.assert_close(total, wanted()[name])  # computed with what the updates before left
        optimisation.update(total, groups)
        changed = {n.split(".")[1] for n, p in network.named_parameters() if not torch.equal(p, before[n])}
        assert changed == moved[name]
        seen.append(name)

    step(tiny.updates(update), method, network.head, batch)
    assert seen == ["joint", "disagree", "agree", "relation"]
    assert {name: o.param_groups[0]["lr"] for name, o in optimisation.optimisers.items()} == {
        "joint": s.lr_joint, "disagree": s.lr_disagree, "agree": s.lr_agree, "relation": s.lr_relation,
    }  # fmt: skip
    assert not optimisation.schedules


def test_adopted_images_keep_their_first_soft_label_for_good(method):
    torch.manual_seed(0)
    carry, adopted_before, targets = {}, torch.zeros(6, dtype=torch.bool), torch.zeros(6, 3)
    labels = torch.tensor([[1, 0, 0], [0, 1, 0]])
    for epoch in range(6):  # in the last none is left to be adopted
        answers = torch.rand(6, 3, 3)
        teacher = SimpleNamespace(epoch=epoch, carry=carry, outputs=lambda *_, answers=answers: answers, labels=lambda _: labels)
        refresh = method.refresh(teacher, ROLES)
        carry = dict(refresh.carry)
        adopted = carry["adopted"]
        assert int(adopted.sum()) == min(2 * max(epoch - 1, 0), 6)  # the first at the end of round 1, after drml.start
        distance = ((answers[:, 0] - answers[:, 1]) ** 2).sum(1)
        new = adopted & ~adopted_before
        if epoch > 1:
            assert set(torch.nonzero(new).flatten().tolist()) == set(
                sorted(torch.nonzero(~adopted_before).flatten().tolist(), key=lambda i: float(distance[i]))[:2]
            )
        targets[new] = answers[new, 2]
        torch.testing.assert_close(carry["target"][adopted], targets[adopted])
        label, weight = refresh.pseudo.label, refresh.pseudo.weight
        assert (label[~adopted] == -1).all() and not weight[~adopted].any()
        assert (label[:, 2] == -1).all() and refresh.guarded == 1  # no labelled positive
        soft = torch.where(label == 1, weight, 1 - weight)
        torch.testing.assert_close(soft[adopted][:, :2], targets[adopted][:, :2])
        adopted_before = adopted


def test_a_pool_plan_draws_the_pool_evenly_and_leaves_the_adopted_out_of_the_others():
    adopted = np.array([True, False, False, True, False, False, False])
    steps = pool_plan(3, adopted, 5, 4, seed=1, epoch=2)
    counts = np.zeros(10, int)
    for one in steps:
        n = 5 - len(one.labelled)
        inside, outside = one.unlabelled[:n], one.unlabelled[n:]
        assert adopted[inside].all() and not adopted[outside].any() and len(outside) == 5
        counts[:3] += np.bincount(one.labelled, minlength=3)
        counts[3:] += np.bincount(one.unlabelled, minlength=7)
    assert (counts[[0, 1, 2, 3, 6]] == 4).all() and (counts[[4, 5, 7, 8, 9]] == 4).all()
    again, other = pool_plan(3, adopted, 5, 4, seed=1, epoch=2), pool_plan(3, adopted, 5, 4, seed=1, epoch=3)
    assert all((a.unlabelled == b.unlabelled).all() for a, b in zip(steps, again, strict=True))
    assert any(len(a.labelled) != len(b.labelled) or (a.labelled != b.labelled).any() for a, b in zip(steps, other, strict=True))
    assert all(len(step.unlabelled) + len(step.labelled) == 4 for step in pool_plan(3, np.ones(2, bool), 4, 3, seed=1, epoch=0))


def test_warm_up_trains_the_linear_classifier_or_nothing(method, network):
    for features, epochs in (("pretrained", 0), ("warmup", 2)):
        assert build_method(tiny.settings(CHANGES | {"drml.features": features}), 3).warmup(ROLES).epochs == epochs
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    network.eval()
    with torch.no_grad():
        x = network.pooled(images)
        torch.testing.assert_close(network(images)[0], network.head.relate(*network.head.classify(x)))
        network.head.relational.fill_(False)
        torch.testing.assert_close(network(images)[0], network.head.linear(x))
        assert torch.equal(method.scores(network, images), method.scores(network, x))
