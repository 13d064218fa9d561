"""BBAM: balanced binary angular margin with negative sampling (S2ML2-BBAM, NeurIPS 2024; docs/methods.md 4.8).

The statistics of the angles between features and class prototypes live in the network's head, because its scores depend
on them: an epoch's refresh computes them from the online network and `install` puts them into it and into its EMA.
"""

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dicap.methods import rules
from dicap.methods.base import Batch, Method, Phase, Refresh, Roles, Teacher, hard_mask, reduced
from dicap.network.cosine import CosineHead, balance

PUBLISHED_WARMUP_SEED = 1000


class BBAM(Method):
    """A cosine head, a margin, CAP's quota on balanced scores, and the hardest negatives."""

    def make_head(self, channels: int) -> nn.Module:
        """The cosine head."""
        return CosineHead(channels, self.classes, clamp=self.settings.bbam.clamp)

    # -- phases

    def warmup(self, roles: Roles) -> Phase:
        """16 images a step at every ratio, as published, unless set; see `warmup_rows`."""
        phase = replace(super().warmup(roles), labelled=self.warmup_rows(roles), lr=self.lr)
        return replace(phase, batch_labelled=16) if self.settings.warmup.batch_size == "auto" else phase

    def main(self, roles: Roles) -> Phase:
        """4/8/16/32 labelled images of 64 at 5/10/15/20 %, on AWA2 32 of 128, as published, unless set."""
        s, phase = self.settings, replace(super().main(roles), lr=self.lr, install=install_statistics)
        size = s.train.batch_size if s.bbam.batch_size == "auto" else s.bbam.batch_size
        if s.bbam.batch_size == "auto" and (s.train.batch_labelled != "auto" or self.share < 0.15):
            return phase
        labelled = max(1, size // (2 if s.bbam.batch_size == "auto" and self.share >= 0.2 else 4))
        return replace(phase, batch_labelled=labelled, batch_unlabelled=size - labelled)

    @property
    def lr(self) -> float | None:
        """Peak learning rate of both stages; None: that of all methods."""
        return None if self.settings.bbam.lr == "auto" else self.settings.bbam.lr

    def warmup_rows(self, roles: Roles) -> np.ndarray:
        """D_l; with bbam.warmup_split `seed_1000` the published code's other draw of as many images."""
        if self.settings.bbam.warmup_split == "same":
            return roles.labelled
        rows = np.sort(np.concatenate([roles.labelled, roles.unlabeled]))
        return rows[np.random.RandomState(PUBLISHED_WARMUP_SEED).permutation(len(rows))[: len(roles.labelled)]]

    # -- loss

    def warmup_losses(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """BAM on the labelled images, without balancing."""
        cosine = network.head.cosines(network.features(batch.views["strong"]))  # type: ignore[union-attr, operator]
        return {"loss_sup": reduced(self.margin_loss(cosine, batch.y), batch.images, self.settings)}

    def main_losses(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """BAM of balanced cosines, times the masks of pseudo-labelling and of negative sampling."""
        head: CosineHead = network.head  # type: ignore[assignment]
        cosine = head.cosines(network.features(batch.views["strong"]))  # type: ignore[operator]  # (B, C)
        value = torch.cat([batch.y, batch.label.clamp_min(0)])
        if self.settings.bbam.balance:
            cosine = head.balanced(cosine, value)
        weight = torch.cat([batch.weight.new_ones(batch.y.shape) if batch.y_weight is None else batch.y_weight, batch.weight])
        elements, n = weight * self.margin_loss(cosine, value), len(batch.y)
        return {
            "loss_sup": reduced(elements[:n], batch.images, self.settings),
            "loss_pseudo": reduced(elements[n:], batch.images, self.settings),
        }

    def margin_loss(self, cosine: Tensor, y: Tensor) -> Tensor:
        """Element loss, (B, C)."""
        return angular_margin_loss(cosine, y, scale=self.settings.bbam.scale, margin=self.settings.bbam.margin)

    # -- each epoch: quota on the teacher's balanced scores, statistics and prototypes of the online network

    def refresh(self, teacher: Teacher, roles: Roles) -> Refresh:
        """Pseudo-labels, negative sampling and the statistics of the next epoch."""
        s, cap = self.settings.bbam, self.settings.cap
        labelled, unlabelled = roles.labelled, roles.unlabeled
        y = teacher.labels(labelled)  # (N_l, C)
        if s.transform == "hidden_labels" and s.balance:
            p = self._leaking_scores(teacher, unlabelled)
        else:
            p = teacher.scores(unlabelled)  # the network balances with the last epoch's statistics, (N_u, C)
        label, thresholds, guarded = rules.quota(p, y, eta_pos=cap.eta_pos, eta_neg=cap.eta_neg, unseen=cap.unseen)

        h = teacher.outputs(np.concatenate([labelled, unlabelled]), _hidden, online=True)  # (N, D)
        both = torch.cat([y.to(torch.int8), label])  # (N, C)
        cosine = F.normalize(h, dim=1) @ F.normalize(prototypes(h, both), dim=1).T  # (N, C)
        old = (teacher.carry["mean"], teacher.carry["variance"]) if teacher.carry else None
        mean, variance, unknown = angle_statistics(cosine, both, old, momentum=s.momentum, clamp=s.clamp)
        if not s.balance:
            mean, variance, unknown = torch.zeros_like(mean), torch.zeros_like(variance), torch.zeros_like(unknown)

        kept = rules.hard_negatives(cosine, both, s.negatives).float()
        labelled_weight = kept[: len(y)]
        if s.labelled_mask == "first_epoch" and teacher.carry:
            labelled_weight = teacher.carry["labelled_weight"]
        pseudo = hard_mask(p, label)
        carry = {"mean": mean, "variance": variance}
        if s.labelled_mask == "first_epoch":
            carry["labelled_weight"] = labelled_weight
        return Refresh(
            pseudo._replace(weight=pseudo.weight * kept[len(y) :]),
            thresholds=thresholds,
            guarded=torch.maximum(guarded, unknown),
            labelled_weight=labelled_weight,
            carry=carry,
        )

    def _leaking_scores(self, teacher: Teacher, rows: np.ndarray) -> Tensor:
        """Scores with each entry's map chosen by its true label, as the published code does."""
        cosine = teacher.outputs(rows, lambda network, images: network.head.cosines(network.features(images)))  # type: ignore[operator, union-attr]
        if not teacher.carry:
            return torch.sigmoid(cosine)
        assert teacher.oracle is not None
        truth, known = (tensor.to(cosine.device) for tensor in teacher.oracle.labels(rows))
        statistics, clamp = (teacher.carry["mean"], teacher.carry["variance"]), self.settings.bbam.clamp
        leaking, honest = balance(cosine, *statistics, truth, clamp=clamp), balance(cosine, *statistics, clamp=clamp)
        return torch.sigmoid(torch.where(known.unsqueeze(1), leaking, honest))  # a truly unlabelled image has nothing to leak


def install_statistics(network: nn.Module, refresh: Refresh) -> None:
    """Put the statistics into the head, for this epoch's losses and scores."""
    head: CosineHead = network.head  # type: ignore[assignment]
    head.mean.copy_(refresh.carry["mean"])
    head.variance.copy_(refresh.carry["variance"])


def _hidden(network: nn.Module, images: Tensor) -> Tensor:
    return network.head.hidden(network.features(images))  # type: ignore[operator, union-attr]


def angular_margin_loss(cosine: Tensor, y: Tensor, *, scale: float = 20.0, margin: float = 0.4) -> Tensor:
    """-[y log s(l) + (1 - y) log(1 - s(l))] with l = scale (cosine - margin y), (B, C) float32 (Equation (24))."""
    y = y.float()
    return F.binary_cross_entropy_with_logits(scale * (cosine.float() - margin * y), y, reduction="none")


def prototypes(h: Tensor, label: Tensor) -> Tensor:
    """Mean of the features of each class's positives, (C, D), of features (N, D) and labels (N, C); 0 without positives.

    The published code averages the features as they are, not scaled to unit length, so long ones count for more.
    """
    positive = (label == 1).to(h.dtype)
    return positive.T @ h / positive.sum(0).clamp_min(1).unsqueeze(1)


def angle_statistics(
    cosine: Tensor, label: Tensor, old: tuple[Tensor, Tensor] | None, *, momentum: float = 0.01, clamp: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of the angles to the prototypes, over negatives and positives of every class, as published.

    new = (1 - momentum) * current + momentum * old, of both; what there was before the first epoch is 0, and the current
    variance is taken around the new mean, not around the current one.

    Args:
        cosine: (N, C) to the prototypes; label: (N, C), entries of -1 are ignored.
        old: statistics of the epoch before; None: zeros.

    Returns:
        mean, variance, (2, C) float32 each, row 0 of the negatives; the number of classes without statistics of their own, ()
        (fewer than two positives or negatives, or no spread), which keep the old ones: 0 stands for "unknown". The published
        code divides by 0 there.
    """
    theta = torch.arccos(cosine.double().clamp(-1 + clamp, 1 - clamp) if clamp else cosine.double().clamp(-1, 1))
    zeros = theta.new_zeros(2, theta.shape[1])
    before = (zeros, zeros) if old is None else old
    means, variances, known = [], [], []
    for value in (0, 1):
        chosen = label == value  # (N, C)
        n = chosen.sum(0)
        current = torch.where(chosen, theta, 0.0).sum(0) / n.clamp_min(1)
        mean = (1 - momentum) * current + momentum * before[0][value]
        variance = torch.where(chosen, (theta - mean) ** 2, 0.0).sum(0) / (n - 1).clamp_min(1)
        means.append(mean)
        variances.append((1 - momentum) * variance + momentum * before[1][value])
        known.append(torch.where(chosen, theta, -torch.inf).amax(0) > torch.where(chosen, theta, torch.inf).amin(0))
    known = torch.stack(known).all(0)  # (C,)
    mean, variance = torch.where(known, torch.stack(means), before[0]), torch.where(known, torch.stack(variances), before[1])
    return mean.float(), variance.float(), (~known).sum()
