"""D2L: dual-decoupling learning with metric-adaptive thresholds (ECCV 2024; docs/methods.md 4.9).

D2L trains on whole images and on 2 x 2 tiles, with separate heads for labels (f1, f2) and for pseudo-labels (f3, f4).
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from dicap.calibration.thresholds import PseudoLabels, Thresholds
from dicap.data.loader import Request
from dicap.methods import rules
from dicap.methods.base import Batch, Method, Phase, Refresh, Roles, Teacher, hard_mask, pseudo_loss, reduced
from dicap.network import build_head
from dicap.network.decoupled import GRID, DecoupledHeads, DecoupledNetwork


class D2L(Method):
    """Four heads, for whole images and for tiles, and thresholds fitted on the labelled images."""

    network_class = DecoupledNetwork

    def main(self, roles: Roles) -> Phase:
        """The main stage starts with copies of f1 and f2 as f3 and f4. Every batch gets new pseudo-labels, as published."""
        return replace(super().main(roles), begin=copy_label_heads, relabel=self.relabel)

    def make_head(self, channels: int) -> nn.Module:
        """Four heads of the kind set by `head`."""
        return DecoupledHeads(lambda: build_head(self.settings, channels, self.classes))

    # -- warm-up: ASL(f1, y) + ASL(joint f2, y)

    def warmup_views(self, labelled: np.ndarray, unlabelled: np.ndarray) -> list[Request]:
        """Strong views of the images and of their tiles."""
        view = self.strong_warmup
        return [Request("strong", labelled, view), Request("strong_tiles", labelled, replace(view, tiles=GRID))]

    def warmup_losses(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Losses of both label heads; images and tiles pass the backbone separately, as published."""
        assert isinstance(network, DecoupledNetwork)
        whole, _ = network.head.f1(network.features(batch.views["strong"]))
        joint = network.joint(network.tile_features(batch.views["strong_tiles"]), network.head.f2)
        elements = self.supervised(whole, batch.y) + self.supervised(joint, batch.y)  # (B, C)
        return {"loss_sup": reduced(elements, batch.images, self.settings, batch.y)}

    # -- main stage

    def refresh(self, teacher: Teacher, roles: Roles) -> Refresh:
        """Thresholds from the teacher's scores of D_l, and pseudo-labels of D_u, which `relabel` replaces on each batch.

        Here all tiles of an image share one flip; within a training step each tile has its own flip.
        """
        p_l, y = teacher.scores(roles.labelled), teacher.labels(roles.labelled)  # (N_l, C)
        thresholds, guarded = rules.metric_thresholds(p_l, y, beta=self.settings.d2l.beta)
        pseudo = self.pseudo_labels(teacher.scores(roles.unlabelled), thresholds)
        return Refresh(pseudo, thresholds=thresholds, guarded=guarded)

    def pseudo_labels(self, q: Tensor, thresholds: Thresholds) -> PseudoLabels:
        """1[q >= threshold] for all entries of active classes (Equation (27))."""
        return hard_mask(q, rules.fixed_threshold(q, thresholds.tau_pos, thresholds.active))

    def relabel(self, teacher: nn.Module, views: dict[str, Tensor], refresh: Refresh) -> PseudoLabels:
        """New pseudo-labels from the teacher's scores on the batch's weak views, in full precision."""
        assert isinstance(teacher, DecoupledNetwork) and refresh.thresholds is not None
        weak = views["weak"]
        with torch.autocast(weak.device.type, enabled=False):
            q = torch.sigmoid(teacher.look(weak, views["weak_tiles"])[0])
        return self.pseudo_labels(q, refresh.thresholds)

    def main_views(self, labelled: np.ndarray, unlabelled: np.ndarray, uncertain: np.ndarray) -> list[Request]:
        """Strong views of all images and their tiles, and weak views of the unlabelled images for their new pseudo-labels."""
        rows = np.concatenate([labelled, unlabelled])
        return [
            Request("strong", rows, self.strong),
            Request("strong_tiles", rows, replace(self.strong, tiles=GRID)),
            Request("weak", unlabelled, self.weak),
            Request("weak_tiles", unlabelled, replace(self.weak, tiles=GRID)),
        ]

    def main_losses(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Equation (28): ASL(f1, y) + ASL(joint f2, y) on D_l, ASL(f3, label) + ASL(joint f4, label) on D_u."""
        assert isinstance(network, DecoupledNetwork)
        n, heads = len(batch.y), network.head
        images = network.features(batch.views["strong"])
        tiles = network.tile_features(batch.views["strong_tiles"])
        cut = n * GRID**2
        elements = self.supervised(heads.f1(images[:n])[0], batch.y)
        elements = elements + self.supervised(network.joint(tiles[:cut], heads.f2), batch.y)
        return {
            "loss_sup": reduced(elements, batch.images, self.settings, batch.y),
            "loss_pseudo": pseudo_loss(self, heads.f3(images[n:])[0], batch)
            + pseudo_loss(self, network.joint(tiles[cut:], heads.f4), batch),
        }


def copy_label_heads(network: nn.Module) -> None:
    """Copy the label heads to the pseudo-label heads: f1 -> f3, f2 -> f4, in place."""
    assert isinstance(network, DecoupledNetwork)
    heads = network.head
    heads.f3.load_state_dict(heads.f1.state_dict())
    heads.f4.load_state_dict(heads.f2.state_dict())
