"""DRML: dual relation semi-supervised multi-label learning (AAAI 2020; docs/methods.md 4.5).

DRML works on fixed features of the backbone. On unlabelled images two classifiers are trained to disagree, and the projector
below them is trained to make them agree. A relation network predicts from the outputs of both. An epoch of the main stage is a
round. At the end of each late round the images with the smallest disagreement join the labelled pool for good ("adopted"), with
the relation network's scores as soft labels. The unlabelled images are D_u; the published code takes the test images. The loop
with its four updates per step is `dicap.training.loops.drml`.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from dicap.calibration.thresholds import PseudoLabels
from dicap.data.augment import View
from dicap.data.loader import Request
from dicap.methods import rules
from dicap.methods.base import Batch, Method, ParamGroup, Phase, Refresh, Roles, Teacher, reduced
from dicap.network.relation import RelationHead, RelationNetwork


class DRML(Method):
    """Fixed features, two classifiers, and a relation network on their outputs."""

    network_class = RelationNetwork

    def make_head(self, channels: int) -> nn.Module:
        """Projector, two classifiers, relation network."""
        return RelationHead(channels, self.classes)

    def scores(self, network: nn.Module, inputs: Tensor) -> Tensor:
        """Scores (B, C) of images (B, 3, H, W), or of their pooled features (B, D)."""
        assert isinstance(network, RelationNetwork)
        return torch.sigmoid(network.head.logits(inputs) if inputs.ndim == 2 else network(inputs)[0])

    def warmup(self, roles: Roles) -> Phase:
        """Train backbone and a linear classifier. With drml.features `pretrained` no epochs: the backbone stays pretrained."""
        phase = super().warmup(roles)
        return phase if self.settings.drml.features == "warmup" else replace(phase, epochs=0)

    def main(self, roles: Roles) -> Phase:
        """Rounds on pooled features; from here on the relation network predicts."""
        s = self.settings.drml
        return replace(
            super().main(roles),
            batch_labelled=s.batch_size,
            batch_unlabelled=s.batch_size,
            epochs=s.rounds,
            begin=answer_by_relation,
            features=RelationNetwork.pooled,  # type: ignore[arg-type]
        )

    def warmup_losses(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """ASL of the linear classifier, as in CAP's warm-up."""
        assert isinstance(network, RelationNetwork)
        logits = network.head.linear(network.pooled(batch.views["strong"]))
        return {"loss_sup": reduced(self.supervised(logits, batch.y), batch.images, self.settings)}

    def main_views(self, labelled: np.ndarray, unlabelled: np.ndarray, uncertain: np.ndarray) -> list[Request]:
        """The stored features of the images."""
        return [Request("features", np.concatenate([labelled, unlabelled]), View("test"))]

    def param_groups(self, head: RelationHead) -> list[ParamGroup]:
        """The groups of the four updates, A joint, B disagree, C agree, D relation: Adam at constant learning rates."""
        s = self.settings.drml
        projector, classifiers = list(head.projector.parameters()), [*head.c1.parameters(), *head.c2.parameters()]
        return [
            ParamGroup("joint", [*projector, *classifiers], s.lr_joint, one_cycle=False),
            ParamGroup("disagree", classifiers, s.lr_disagree, one_cycle=False),
            ParamGroup("agree", projector, s.lr_agree, one_cycle=False),
            ParamGroup("relation", list(head.relation.parameters()), s.lr_relation, one_cycle=False),
        ]

    def refresh(self, teacher: Teacher, roles: Roles) -> Refresh:
        """Adopt the images of least disagreement after each round later than drml.start. Adopted images keep their soft label."""
        s, rows = self.settings.drml, roles.unlabelled
        f1, f2, p = teacher.outputs(rows, answers).unbind(1)  # (N_u, C) of C1, C2 and R
        carry = teacher.carry
        target = carry["target"] if carry else torch.zeros_like(p)  # (N_u, C) soft labels of adopted images
        adopted = carry["adopted"] if carry else torch.zeros(len(p), dtype=torch.bool, device=p.device)
        if teacher.epoch - 1 > s.start:  # the round that has just ended
            chosen = rules.closest((f1 - f2).square().sum(1), ~adopted, s.per_round)
            target = torch.where(chosen.unsqueeze(1), p, target)
            adopted = adopted | chosen

        active = rules.seen(teacher.labels(roles.labelled))
        confidence = torch.where(adopted.unsqueeze(1), target, p)
        label = rules.fixed_threshold(confidence, 0.5, active)
        label = torch.where(adopted.unsqueeze(1), label, torch.full_like(label, -1))
        weight = torch.where(label == 1, confidence, 1 - confidence) * (label >= 0)
        return Refresh(
            PseudoLabels(confidence, label, weight, soft=True),
            guarded=(~active).sum(),
            carry={"target": target, "adopted": adopted},
        )

    def losses(self, head: RelationHead, batch: Batch) -> "Losses":
        """C_loss, L_R and L_DA of a batch of features with the current head (docs/methods.md 4.5)."""
        x = batch.views["features"]
        known = torch.cat([torch.ones_like(batch.y, dtype=torch.bool), batch.label >= 0])  # (B, C)
        soft = torch.where(batch.label == 1, batch.weight, 1 - batch.weight)  # back to the soft target
        target = torch.cat([batch.y.float(), soft])
        f1, f2 = head.classify(x)
        return Losses(
            classification=masked_mse(f1, target, known) + masked_mse(f2, target, known),
            relation=masked_mse(torch.sigmoid(head.relate(f1, f2)), target, known),
            discrepancy=discrepancy(f1, f2, ~in_pool(batch)),
        )

    def discrepancy(self, head: RelationHead, batch: Batch) -> Tensor:
        """L_DA alone. It skips the relation network, which is half of the head's work."""
        return discrepancy(*head.classify(batch.views["features"]), ~in_pool(batch))


class Losses(NamedTuple):
    """The three scalar losses that DRML's four updates combine."""

    classification: Tensor
    relation: Tensor
    discrepancy: Tensor


def answer_by_relation(network: nn.Module) -> None:
    """Switch the network's predictions from the linear classifier to the relation network, in place."""
    assert isinstance(network, RelationNetwork)
    network.head.relational.fill_(True)


def answers(network: nn.Module, features: Tensor) -> Tensor:
    """Scores (B, 3, C) of C1, C2 and R for pooled features (B, D)."""
    head = network.head
    assert isinstance(head, RelationHead)
    f1, f2 = head.classify(features)
    return torch.stack([f1, f2, torch.sigmoid(head.relate(f1, f2))], 1)


def in_pool(batch: Batch) -> Tensor:
    """(B,) bool: whether an image of the batch is labelled or adopted."""
    return torch.cat([torch.ones(len(batch.y), dtype=torch.bool, device=batch.y.device), (batch.label >= 0).any(1)])


def masked_mse(f: Tensor, target: Tensor, known: Tensor) -> Tensor:
    """Mean squared error over the entries where `known` is true; all arguments are (B, C)."""
    return ((f - target).square() * known).sum() / known.sum().clamp_min(1)


def discrepancy(f1: Tensor, f2: Tensor, rows: Tensor) -> Tensor:
    """L_DA: the sum (not the mean) of |f1 - f2| over all entries of the images in `rows` (B,) bool (Equation (17))."""
    return ((f1 - f2).abs() * rows.unsqueeze(1)).sum()
