"""DRML: dual relation semi-supervised multi-label learning (AAAI 2020; docs/methods.md 4.5).

It works on fixed features of the backbone. Two classifiers are driven apart on unlabelled images and the projector below
them is driven to make them agree; a relation network on both answers makes the prediction. An epoch of the main stage is a
round; at the end of each late round the images on which the classifiers agree best join the labelled pool for good, with
the relation network's soft answer as their label. Unlabelled is D_u; the published code takes the test images. The loop with
its four updates a step is `dicap.training.loops.drml`.
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
    """Fixed features, two classifiers, and a relation network over their answers."""

    network_class = RelationNetwork

    def make_head(self, channels: int) -> nn.Module:
        """Projector, two classifiers, relation network."""
        return RelationHead(channels, self.classes)

    def scores(self, network: nn.Module, inputs: Tensor) -> Tensor:
        """(B, C) of images (B, 3, H, W), or of their pooled features (B, D)."""
        assert isinstance(network, RelationNetwork)
        return torch.sigmoid(network.head.logits(inputs) if inputs.ndim == 2 else network(inputs)[0])

    def warmup(self, roles: Roles) -> Phase:
        """Train backbone and a linear classifier; no epochs with drml.features `pretrained`: the backbone stays as it comes."""
        phase = super().warmup(roles)
        return phase if self.settings.drml.features == "warmup" else replace(phase, epochs=0)

    def main(self, roles: Roles) -> Phase:
        """Rounds on pooled features; from here on the relation network answers."""
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
        """ASL of the linear classifier: CAP's warm-up."""
        assert isinstance(network, RelationNetwork)
        logits = network.head.linear(network.pooled(batch.views["strong"]))
        return {"loss_sup": reduced(self.supervised(logits, batch.y), batch.images, self.settings)}

    def main_views(self, labelled: np.ndarray, unlabelled: np.ndarray, uncertain: np.ndarray) -> list[Request]:
        """The features of the images as stored."""
        return [Request("features", np.concatenate([labelled, unlabelled]), View("test"))]

    def param_groups(self, head: RelationHead) -> list[ParamGroup]:
        """A joint, B disagree, C agree, D relation: Adam at constant rates."""
        s = self.settings.drml
        projector, classifiers = list(head.projector.parameters()), [*head.c1.parameters(), *head.c2.parameters()]
        return [
            ParamGroup("joint", [*projector, *classifiers], s.lr_joint, one_cycle=False),
            ParamGroup("disagree", classifiers, s.lr_disagree, one_cycle=False),
            ParamGroup("agree", projector, s.lr_agree, one_cycle=False),
            ParamGroup("relation", list(head.relation.parameters()), s.lr_relation, one_cycle=False),
        ]

    def refresh(self, teacher: Teacher, roles: Roles) -> Refresh:
        """Adopt the closest images at the end of each round after drml.start; what is adopted keeps its soft label."""
        s, rows = self.settings.drml, roles.unlabelled
        f1, f2, p = teacher.outputs(rows, answers).unbind(1)  # (N_u, C) of C1, C2 and R
        carry = teacher.carry
        target = carry["target"] if carry else torch.zeros_like(p)  # (N_u, C) soft labels of the adopted
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
        """C_loss, L_R and L_DA of a batch of features, with the head as it is now (docs/methods.md 4.5)."""
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
        """L_DA alone, which asks nothing of the relation network, half of the head's work."""
        return discrepancy(*head.classify(batch.views["features"]), ~in_pool(batch))


class Losses(NamedTuple):
    """The three losses that DRML's four updates are made of, scalars."""

    classification: Tensor
    relation: Tensor
    discrepancy: Tensor


def answer_by_relation(network: nn.Module) -> None:
    """Let the relation network answer from now on, in place."""
    assert isinstance(network, RelationNetwork)
    network.head.relational.fill_(True)


def answers(network: nn.Module, features: Tensor) -> Tensor:
    """Scores of C1, C2 and R, (B, 3, C), of pooled features (B, D)."""
    head = network.head
    assert isinstance(head, RelationHead)
    f1, f2 = head.classify(features)
    return torch.stack([f1, f2, torch.sigmoid(head.relate(f1, f2))], 1)


def in_pool(batch: Batch) -> Tensor:
    """(B,) bool: the labelled images of a batch and the adopted ones among the others."""
    return torch.cat([torch.ones(len(batch.y), dtype=torch.bool, device=batch.y.device), (batch.label >= 0).any(1)])


def masked_mse(f: Tensor, target: Tensor, known: Tensor) -> Tensor:
    """Mean squared error over the entries that are `known`, all (B, C)."""
    return ((f - target).square() * known).sum() / known.sum().clamp_min(1)


def discrepancy(f1: Tensor, f2: Tensor, rows: Tensor) -> Tensor:
    """L_DA: the L1 norm of f1 - f2 over the whole matrix of the chosen images (B,): a sum, not a mean (Equation (17))."""
    return ((f1 - f2).abs() * rows.unsqueeze(1)).sum()
