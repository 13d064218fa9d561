"""DRML: dual relation semi-supervised multi-label learning (AAAI 2020; docs/methods.md 4.5).

It works on fixed features of the backbone. Two classifiers are driven apart on unlabelled images and the projector below
them is driven to make them agree; a relation network on both answers makes the prediction. An epoch of the main stage is a
round; at the end of each late round the images on which the classifiers agree best join the labelled pool for good, with
the relation network's soft answer as their label. Unlabelled is D_u; the published code takes the test images.
"""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from dicap.calibration import PseudoLabels
from dicap.data.loader import Request
from dicap.methods import rules
from dicap.methods.base import Batch, Method, Player, Refresh, Roles, Teacher, Update
from dicap.network import build_network
from dicap.network.relation import RelationHead, RelationNetwork

RECORD_EVERY = 10  # rounds: between two of them little changes


class DRML(Method):
    """Four updates a step, each with an optimiser of its own."""

    @property
    def in_parts(self) -> bool:
        """Its several optimisers take turns on losses that are means over a batch."""
        return False

    def build_network(self, *, pretrained: bool = True) -> nn.Module:
        """Backbone, projector, two classifiers, relation network."""
        return build_network(
            self.settings,
            self.classes,
            pretrained=pretrained,
            make_head=lambda d: RelationHead(d, self.classes),
            kind=RelationNetwork,
        )

    def scores(self, network: nn.Module, images: Tensor) -> Tensor:
        """(B, C) of images (B, 3, H, W), or of their pooled features (B, D)."""
        assert isinstance(network, RelationNetwork)
        return torch.sigmoid(network.head.logits(images) if images.ndim == 2 else network(images)[0])

    @property
    def on_features(self) -> bool:
        """The main stage sees pooled features of the images as stored."""
        return True

    def features(self, network: nn.Module, images: Tensor) -> Tensor:
        """Pooled features (B, D)."""
        assert isinstance(network, RelationNetwork)
        return network.pooled(images)

    # -- warm-up: of backbone and linear classifier, or none

    @property
    def warmup_epochs(self) -> int:
        """None with drml.features `pretrained`: the backbone stays as it comes."""
        return self.settings.warmup.epochs if self.settings.drml.features == "warmup" else 0

    def warmup_loss(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """ASL of the linear classifier: CAP's warm-up."""
        assert isinstance(network, RelationNetwork)
        logits = network.head.linear(network.pooled(batch.views["strong"]))
        return {"loss_sup": self.reduce(self.supervised(logits, batch.y), batch.images)}

    # -- main stage

    def begin_main(self, network: nn.Module) -> None:
        """From here on the relation network answers."""
        assert isinstance(network, RelationNetwork)
        network.head.relational.fill_(True)

    @property
    def main_epochs(self) -> int:
        """Rounds."""
        return self.settings.drml.rounds

    @property
    def iterations(self) -> int:
        """Steps a round."""
        return self.settings.drml.iterations

    @property
    def labelled_batch(self) -> int:
        """Images of the pool a step, and as many others."""
        return self.settings.drml.batch_size

    @property
    def publishes(self) -> Literal["ema", "raw"]:
        """The networks themselves: the method has no EMA."""
        return "raw"

    def recorded(self, epoch: int) -> bool:
        """Every tenth round and the last."""
        return epoch % RECORD_EVERY == 0 or epoch == self.main_epochs - 1

    def main_requests(self, labelled: np.ndarray, unlabelled: np.ndarray, uncertain: np.ndarray) -> list[Request]:
        """No views."""
        return []

    def players(self, network: nn.Module, companions: nn.ModuleDict, stage: str) -> list[Player]:
        """A joint, B disagree, C agree, D relation: Adam at constant rates."""
        if stage != "train":
            return []
        s, head = self.settings.drml, network.head
        assert isinstance(head, RelationHead)
        projector, classifiers = list(head.projector.parameters()), [*head.c1.parameters(), *head.c2.parameters()]
        return [
            Player("joint", [*projector, *classifiers], s.lr_joint, one_cycle=False),
            Player("disagree", classifiers, s.lr_disagree, one_cycle=False),
            Player("agree", projector, s.lr_agree, one_cycle=False),
            Player("relation", list(head.relation.parameters()), s.lr_relation, one_cycle=False),
        ]

    def refresh(self, teacher: Teacher, roles: Roles) -> Refresh:
        """Adopt the closest images once drml.start rounds are over; what is adopted keeps its soft label."""
        s, rows = self.settings.drml, self.unlabelled(roles)
        answers = teacher.outputs(rows, _answers, online=True)  # (N_u, 3, C): C1, C2, R
        f1, f2, p = answers.unbind(1)
        carry = teacher.carry
        target = carry["target"] if carry else torch.zeros_like(p)  # (N_u, C) soft labels of the adopted
        adopted = carry["adopted"] if carry else torch.zeros(len(p), dtype=torch.bool, device=p.device)
        if teacher.epoch > s.start:
            chosen = rules.closest(
                (f1 - f2).square().sum(1),
                ~adopted,
                count=s.per_round if s.select == "adaptive" else None,
                within=s.distance,
            )
            target = torch.where(chosen.unsqueeze(1), p, target)
            adopted = adopted | chosen

        active = rules.seen(teacher.labels(self.labelled(roles)))
        confidence = torch.where(adopted.unsqueeze(1), target, p)
        label = rules.fixed_threshold(confidence, 0.5, active)
        label = torch.where(adopted.unsqueeze(1), label, torch.full_like(label, -1))
        weight = torch.where(label == 1, confidence, 1 - confidence) * (label >= 0)
        return Refresh(
            PseudoLabels(confidence, label, weight, soft=True),
            guarded=int((~active).sum()),
            carry={"target": target, "adopted": adopted},
        )

    def main_updates(self, network: nn.Module, batch: Batch) -> Iterator[Update]:
        """A: C_loss over P, C1, C2. B: C_loss - L_DA over C1, C2. C: L_DA over P. D: C_loss over R."""
        s, head = self.settings.drml, network.head
        assert isinstance(head, RelationHead)
        x, n = batch.views["features"], len(batch.y)
        known = torch.cat([torch.ones_like(batch.y, dtype=torch.bool), batch.label >= 0])  # (B, C)
        soft = torch.where(batch.label == 1, batch.weight, 1 - batch.weight)  # back to the soft target
        target = torch.cat([batch.y.float(), soft])
        pool = torch.cat([torch.ones(n, dtype=torch.bool, device=x.device), (batch.label >= 0).any(1)])  # (B,)

        def losses() -> tuple[Tensor, Tensor, Tensor]:
            f1, f2 = head.classify(x)
            l_c = masked_mse(f1, target, known) + masked_mse(f2, target, known)
            l_r = masked_mse(torch.sigmoid(head.relate(f1, f2)), target, known)
            return l_c, l_r, discrepancy(f1, f2, ~pool)

        l_c, l_r, _ = losses()
        yield Update({"loss_sup": l_c + s.relation * l_r}, ("joint",))
        l_c, l_r, l_da = losses()
        yield Update({"loss_disagree": l_c + s.relation * l_r - s.discrepancy * l_da}, ("disagree",))
        yield Update({"loss_agree": s.discrepancy * discrepancy(*head.classify(x), ~pool)}, ("agree",))
        l_c, l_r, _ = losses()
        yield Update({"loss_relation": l_c + s.relation * l_r}, ("relation",))


def _answers(network: nn.Module, features: Tensor) -> Tensor:
    head = network.head
    assert isinstance(head, RelationHead)
    f1, f2 = head.classify(features)
    return torch.stack([f1, f2, torch.sigmoid(head.relate(f1, f2))], 1)


def masked_mse(f: Tensor, target: Tensor, known: Tensor) -> Tensor:
    """Mean squared error over the entries that are `known`, all (B, C)."""
    return ((f - target).square() * known).sum() / known.sum().clamp_min(1)


def discrepancy(f1: Tensor, f2: Tensor, rows: Tensor) -> Tensor:
    """L_DA: the L1 norm of f1 - f2 over the whole matrix of the chosen images (B,): a sum, not a mean."""
    return ((f1 - f2).abs() * rows.unsqueeze(1)).sum()
