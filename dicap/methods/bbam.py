"""BBAM: balanced binary angular margin with negative sampling (S2ML2-BBAM, NeurIPS 2024; docs/methods.md 4.8).

The network's head holds the statistics of the angles between features and class prototypes, because its scores depend on them.
An epoch's refresh computes them from the online network, and `install_statistics` writes them into the network and its EMA.
"""

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dicap.methods import rules
from dicap.methods.base import Batch, Method, Phase, Refresh, Roles, Teacher, hard_mask, reduced
from dicap.network.cosine import CLAMP, CosineHead, balance


class BBAM(Method):
    """A cosine head, a margin loss, CAP's quota on balanced scores, and hard-negative sampling."""

    def make_head(self, channels: int) -> nn.Module:
        """The cosine head."""
        return CosineHead(channels, self.classes)

    # -- phases

    def warmup(self, roles: Roles) -> Phase:
        """16 images per step at every ratio, as published, unless warmup.batch_size is set."""
        phase = replace(super().warmup(roles), lr=self.lr)
        return replace(phase, batch_labelled=16) if self.settings.warmup.batch_size == "auto" else phase

    def main(self, roles: Roles) -> Phase:
        """As published 4/8/16/32 labelled images of 64 at 5/10/15/20 %, and 32 of 128 on AWA2, unless the settings differ."""
        s, phase = self.settings, replace(super().main(roles), lr=self.lr, install=install_statistics)
        size = s.train.batch_size if s.bbam.batch_size == "auto" else s.bbam.batch_size
        if s.bbam.batch_size == "auto" and (s.train.batch_labelled != "auto" or self.share < 0.15):
            return phase
        labelled = max(1, size // (2 if s.bbam.batch_size == "auto" and self.share >= 0.2 else 4))
        return replace(phase, batch_labelled=labelled, batch_unlabelled=size - labelled)

    @property
    def lr(self) -> float | None:
        """Peak learning rate of both stages; None: optimiser.lr."""
        return None if self.settings.bbam.lr == "auto" else self.settings.bbam.lr

    # -- loss

    def warmup_losses(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The margin loss on the labelled images, without balancing."""
        cosine = network.head.cosines(network.features(batch.views["strong"]))  # type: ignore[union-attr, operator]
        return {"loss_sup": reduced(self.margin_loss(cosine, batch.y), batch.images, self.settings)}

    def main_losses(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The margin loss of balanced cosines, times the masks of pseudo-labelling and negative sampling."""
        head: CosineHead = network.head  # type: ignore[assignment]
        value = torch.cat([batch.y, batch.label.clamp_min(0)])
        cosine = head.cosines(network.features(batch.views["strong"]))  # type: ignore[operator]  # (B, C)
        cosine = balance(cosine, head.mean, head.variance, value)
        weight = torch.cat([batch.weight.new_ones(batch.y.shape) if batch.y_weight is None else batch.y_weight, batch.weight])
        elements, n = weight * self.margin_loss(cosine, value), len(batch.y)
        return {
            "loss_sup": reduced(elements[:n], batch.images, self.settings),
            "loss_pseudo": reduced(elements[n:], batch.images, self.settings),
        }

    def margin_loss(self, cosine: Tensor, y: Tensor) -> Tensor:
        """Element-wise loss, (B, C)."""
        return angular_margin_loss(cosine, y, scale=self.settings.bbam.scale, margin=self.settings.bbam.margin)

    # -- each epoch: quota on the teacher's balanced scores, statistics and prototypes of the online network

    def refresh(self, teacher: Teacher, roles: Roles) -> Refresh:
        """Pseudo-labels, sampled negatives, and the angle statistics for this epoch."""
        s, cap = self.settings.bbam, self.settings.cap
        labelled, unlabelled = roles.labelled, roles.unlabelled
        y = teacher.labels(labelled)  # (N_l, C)
        p = teacher.scores(unlabelled)  # (N_u, C), balanced with the previous epoch's statistics
        label, thresholds, guarded = rules.quota(p, y, eta_pos=cap.eta_pos, eta_neg=cap.eta_neg)

        rows = np.concatenate([labelled, unlabelled])
        h = teacher.outputs(rows, lambda network, x: network.head.hidden(network.features(x)))  # type: ignore  # (N, D)
        both = torch.cat([y.to(torch.int8), label])  # (N, C)
        cosine = F.normalize(h, dim=1) @ F.normalize(prototypes(h, both), dim=1).T  # (N, C)
        old = (teacher.carry["mean"], teacher.carry["variance"]) if teacher.carry else None
        mean, variance, unknown = angle_statistics(cosine, both, old, momentum=s.momentum)

        kept = rules.hard_negatives(cosine, both, s.negatives).float()
        pseudo = hard_mask(p, label)
        return Refresh(
            pseudo._replace(weight=pseudo.weight * kept[len(y) :]),
            thresholds=thresholds,
            guarded=torch.maximum(guarded, unknown),
            labelled_weight=kept[: len(y)],
            carry={"mean": mean, "variance": variance},
        )


def install_statistics(network: nn.Module, refresh: Refresh) -> None:
    """Put the statistics into the head, for this epoch's losses and scores."""
    head: CosineHead = network.head  # type: ignore[assignment]
    head.mean.copy_(refresh.carry["mean"])
    head.variance.copy_(refresh.carry["variance"])


def angular_margin_loss(cosine: Tensor, y: Tensor, *, scale: float = 20.0, margin: float = 0.4) -> Tensor:
    """-[y log s(l) + (1 - y) log(1 - s(l))] with l = scale (cosine - margin y), (B, C) float32 (Equation (24))."""
    y = y.float()
    return F.binary_cross_entropy_with_logits(scale * (cosine.float() - margin * y), y, reduction="none")


def prototypes(h: Tensor, label: Tensor) -> Tensor:
    """Mean feature of each class's positives, (C, D), from features (N, D) and labels (N, C); 0 without positives.

    As in the published code the features are not scaled to unit length first, so long features count for more.
    """
    positive = (label == 1).to(h.dtype)
    return positive.T @ h / positive.sum(0).clamp_min(1).unsqueeze(1)


def angle_statistics(
    cosine: Tensor, label: Tensor, old: tuple[Tensor, Tensor] | None, *, momentum: float = 0.01
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of the angles to the prototypes, over the negatives and the positives of every class, as published.

    Both are averaged as new = (1 - momentum) * current + momentum * old, starting from 0. The current variance is taken around
    the new mean, not around the current mean.

    Args:
        cosine: (N, C) cosines to the prototypes; label: (N, C), entries of -1 are ignored.
        old: mean and variance of the previous epoch; None: zeros.

    Returns:
        mean, variance: (2, C) float32 each, row 0 for negatives, row 1 for positives; and the number () of classes without
        statistics in this epoch: fewer than two positives or negatives, or no spread. These classes keep their old statistics;
        0 means "unknown". The published code divides by 0 there.
    """
    theta = torch.arccos(cosine.double().clamp(-1 + CLAMP, 1 - CLAMP))
    zeros = theta.new_zeros(2, theta.shape[1])
    before = (zeros, zeros) if old is None else old
    chosen = torch.stack([label == 0, label == 1])  # (2, N, C)
    n = chosen.sum(1)  # (2, C), the shape of the following tensors too
    mean = (1 - momentum) * torch.where(chosen, theta, 0.0).sum(1) / n.clamp_min(1) + momentum * before[0]
    spread = torch.where(chosen, (theta - mean.unsqueeze(1)) ** 2, 0.0).sum(1) / (n - 1).clamp_min(1)
    variance = (1 - momentum) * spread + momentum * before[1]
    known = (torch.where(chosen, theta, -torch.inf).amax(1) > torch.where(chosen, theta, torch.inf).amin(1)).all(0)  # (C,)
    mean, variance = torch.where(known, mean, before[0]), torch.where(known, variance, before[1])
    return mean.float(), variance.float(), (~known).sum()
