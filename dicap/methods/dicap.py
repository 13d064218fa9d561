"""DiCaP: distribution-calibrated pseudo-labelling (AAAI 2026; docs/methods.md 3)."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from dicap.calibration.rates import Rates, correctness_weight, count_bins, estimate_rates, in_pieces
from dicap.calibration.thresholds import PseudoLabels, Thresholds, dual_thresholds, hard_labels
from dicap.data.loader import Request
from dicap.losses import nt_xent
from dicap.methods.base import Batch, Method, Phase, Refresh, Roles, Teacher, frozen_statistics, pseudo_loss, reduced


class DiCaP(Method):
    """Weights estimated on D_est, dual thresholds from D_sup, and a contrastive loss on uncertain entries.

    >>> from pathlib import Path
    >>> from dicap.settings import resolve_values
    >>> values = {"dataset": "voc2012", "data_root": "VOC", "ratio": 0.05, "seed": 1, "method": "dicap"}
    >>> method = DiCaP(resolve_values(values, Path("params.yaml")).settings, classes=20, share=0.05)
    >>> scores = torch.tensor([[0.9], [0.6], [0.1]])
    >>> thresholds = method.thresholds(scores, torch.tensor([[1], [1], [0]]))
    >>> rates = estimate_rates(*count_bins(scores, torch.tensor([[1], [0], [0]]), 20))
    >>> method.pseudo_labels(torch.tensor([[0.8], [0.3], [0.05]]), rates, thresholds).label.flatten().tolist()
    [1, -1, 0]
    """

    # -- phases: only the bin counts and fine-tuning read the labels of D_est

    def warmup(self, roles: Roles) -> Phase:
        """Warm-up on D_sup. WCL adds as many images of D_unsup to a step; warmup.over `unlabelled` has `main`'s batches (3.3)."""
        phase = replace(super().warmup(roles), labelled=roles.sup)
        if not self.settings.warmup.wcl:
            return phase
        phase = replace(phase, unlabelled=roles.unsup, batch_unlabelled=phase.batch_labelled, pairs=self.pairs)
        if self.settings.warmup.over == "labelled":
            return phase
        main = super().main(roles)
        return replace(phase, batch_labelled=main.batch_labelled, batch_unlabelled=main.batch_unlabelled)

    def main(self, roles: Roles) -> Phase:
        """Main stage on D_sup and on D_unsup = D_u and D_est."""
        phase = replace(super().main(roles), labelled=roles.sup, unlabelled=roles.unsup)
        return replace(phase, pairs=self.pairs) if self.settings.contrastive.enabled else phase

    # -- warm-up: ASL on D_sup + the class-wise contrastive loss on all images of the step, WCL (docs/methods.md 3.3)

    def warmup_views(self, labelled: np.ndarray, unlabelled: np.ndarray) -> list[Request]:
        """Strong views of all images; with WCL their weak views too."""
        rows = np.concatenate([labelled, unlabelled])
        requests = [Request("strong", rows, self.strong_warmup)]
        return [*requests, Request("weak", rows, self.weak)] if self.settings.warmup.wcl else requests

    def warmup_losses(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """L = L_sup + lambda L_con (Equation (4)). L_con contrasts at most max_pairs entries (Equation (11'))."""
        logits, z_s = network(batch.views["strong"])  # (B, C), (B, C, D)
        labelled = logits[: len(batch.y)]
        terms = {"loss_sup": reduced(self.supervised(labelled, batch.y), batch.images, self.settings, batch.y)}
        if self.settings.warmup.wcl:
            z_w = self.weak_embeddings(network, batch.views["weak"])  # (B, C, D)
            terms["loss_con"] = self.contrast(z_w, z_s, batch)
        return terms

    # -- each epoch: rates on D_est, thresholds on D_sup, pseudo-labels and weights on D_unsup (Algorithm 1)

    def refresh(self, teacher: Teacher, roles: Roles) -> Refresh:
        """Steps 1 to 3 of an epoch (docs/methods.md 3.4 to 3.6)."""
        c, t = self.settings.calibration, self.settings.thresholds
        unsup = roles.unsup
        p = teacher.scores(unsup)  # (N_u, C); D_est is scored in the same pass as D_u
        is_est = np.isin(unsup, roles.est)
        est, others = (torch.from_numpy(np.flatnonzero(mask)).to(p.device) for mask in (is_est, ~is_est))

        # (1) correctness rates on D_est
        p_sup = teacher.scores(roles.sup)
        y_sup = teacher.labels(roles.sup)
        if c.policy == "labeled":
            p_count, y_count = p_sup, y_sup
        elif c.policy == "optimal":
            y_hidden, known = teacher.hidden_labels(unsup[~is_est])
            p_count, y_count = p[others][known], y_hidden[known]  # an image without labels is not a negative
        else:
            p_count, y_count = p[est], teacher.labels(unsup[is_est])
        rates = estimate_rates(*count_bins(p_count, y_count, c.bins), anchor=c.anchor, empty_bin=c.empty_bin)

        # (2) dual thresholds: mid-ranges of the scores on D_sup
        thresholds = self.thresholds(p_sup, y_sup)

        # (3) pseudo-labels and their weights
        pseudo = self.pseudo_labels(p, rates, thresholds)
        guarded = ((thresholds.n_pos == 0) | (thresholds.n_neg == 0)).sum() if t.rule != "none" else None
        return Refresh(pseudo, rates, thresholds, guarded)

    def thresholds(self, p: Tensor, y: Tensor) -> Thresholds:
        """Dual thresholds from scores and labels of D_sup (docs/methods.md 3.5)."""
        return dual_thresholds(p, y, rule=self.settings.thresholds.rule)

    def pseudo_labels(self, p: Tensor, rates: Rates, thresholds: Thresholds) -> PseudoLabels:
        """Pseudo-labels and weights from scores p (n, C)."""
        c = self.settings.calibration
        label = hard_labels(p, thresholds, rule=self.settings.thresholds.rule)
        weight = in_pieces(lambda p, label: correctness_weight(p, label, rates, policy=c.policy), p, label)
        return PseudoLabels(p, label, weight, soft=c.target == "soft")  # soft: the target is the probability itself

    # -- each step: L = L_sup + L_pseudo + lambda L_uncer (docs/methods.md 3.6 to 3.8)

    def main_views(self, labelled: np.ndarray, unlabelled: np.ndarray, uncertain: np.ndarray) -> list[Request]:
        """Strong views of all images; weak views of the images with uncertain entries."""
        requests = super().main_views(labelled, unlabelled, uncertain)
        if uncertain.any() and self.settings.contrastive.enabled:
            requests.append(Request("weak", unlabelled[uncertain], self.weak))
        return requests

    def main_losses(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The three terms of Equation (12); L_uncer needs at least two uncertain entries in the step."""
        logits, z_s = network(batch.views["strong"])  # (B, C), (B, C, D)
        n = len(batch.y)
        terms = {
            "loss_sup": reduced(self.supervised(logits[:n], batch.y), batch.images, self.settings, batch.y),
            "loss_pseudo": pseudo_loss(self, logits[n:], batch),
        }
        if len(batch.pairs) >= 2:
            z_w = self.weak_embeddings(network, batch.views["weak"])  # of the images with an uncertain entry, (b, C, D)
            terms["loss_con"] = self.contrast(z_w, z_s[n:], batch)
        return terms

    def pairs(self, label: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Entries to contrast, (m, 3) int64: index among the b images, class, index among the images with a weak view.

        All uncertain entries of labels (b, C) are contrasted, in warm-up all entries. Images without an uncertain entry have no
        weak view. At most contrastive.max_pairs entries are drawn, because the similarity matrix grows with their square.
        """
        uncertain, limit = label == -1, self.settings.contrastive.max_pairs  # (b, C)
        image, c = np.nonzero(uncertain)
        pairs = np.stack([image, c, (uncertain.any(1).cumsum() - 1)[image]], axis=1)
        return pairs if len(pairs) <= limit else pairs[np.sort(rng.choice(len(pairs), limit, replace=False))]

    def weak_embeddings(self, network: nn.Module, weak: Tensor) -> Tensor:
        """z_w of the online network in train mode (docs/methods.md 3.13-C3), (B, C, D).

        They have a gradient only with contrastive.weak_gradient (3.14-A). BatchNorm's running statistics never change here.
        """
        with torch.set_grad_enabled(self.settings.contrastive.weak_gradient), frozen_statistics(network):
            return network(weak)[1]

    def contrast(self, z_w: Tensor, z_s: Tensor, batch: Batch) -> Tensor:
        """lambda * NT-Xent of the batch's pairs of z_s and z_w."""
        c, sums = self.settings.contrastive, self.settings.loss.reduction == "sum"
        strong, classes, weak = batch.pairs.unbind(1)
        weak_z, strong_z = z_w[weak, classes].float(), z_s[strong, classes].float()  # (m, D)
        loss = nt_xent(weak_z, strong_z, temperature=c.temperature)
        if c.coefficient != "auto":
            return loss * c.coefficient
        return loss / batch.images if sums else loss  # coefficient 1 relative to the other terms: sums / images, or means
