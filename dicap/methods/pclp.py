"""PCLP: correlation-induced label prior (ICML 2024; docs/methods.md 4.7).

Stage 1 (the warm-up) is a bidirectional GAN. Its prior over the label coordinates is a structural causal model. Stage 2 trains
the encoder alone, on the labels and on consistency between weak and strong views.
"""

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dicap.calibration.thresholds import PseudoLabels
from dicap.data.loader import Request
from dicap.errors import SettingsError
from dicap.losses import binary_cross_entropy
from dicap.methods import rules
from dicap.methods.base import Batch, Method, ParamGroup, Phase, Refresh, Roles, Teacher
from dicap.network.adversary import Discriminator, Generator
from dicap.network.causal_prior import CausalPrior
from dicap.network.latent import LatentHead, LatentNetwork
from dicap.settings.batch_sizes import pclp_batch


class PCLP(Method):
    """An encoder whose first C latent coordinates are label logits. Stage 1 also trains generator, discriminator and prior."""

    network_class = LatentNetwork

    # -- phases

    def warmup(self, roles: Roles) -> Phase:
        """Passes over D_u with 2 labelled + 6 unlabelled images per step, as published.

        Raises SettingsError if D_u holds a single image, because BatchNorm cannot normalise a batch of one strong view.
        """
        s = self.settings.pclp
        if len(roles.unlabelled) == 1:
            raise SettingsError("params.yaml: ratio: leaves 1 unlabelled image, but pclp needs at least 2; lower it")
        return replace(
            super().warmup(roles),
            unlabelled=roles.unlabelled,
            batch_labelled=s.warmup_labelled,
            batch_unlabelled=s.warmup_unlabelled,
            epochs=s.warmup_epochs,
        )

    def main(self, roles: Roles) -> Phase:
        """The encoder alone, with Adam; as published 16 of 64 images are labelled, and the one-cycle is complete."""
        s = self.settings
        batch, labelled = pclp_batch(s)
        return replace(
            super().main(roles),
            batch_labelled=labelled,
            batch_unlabelled=batch - labelled,
            epochs=s.train.epochs if s.pclp.epochs == "auto" else s.pclp.epochs,
            cycle_epochs=0,
            groups=self.encoder_group,
        )

    def encoder_group(self, network: nn.Module) -> list[ParamGroup]:
        """Backbone and latent head."""
        return [ParamGroup("encoder", [p for p in network.parameters() if p.requires_grad], self.settings.optimiser.lr)]

    # -- networks

    @property
    def latent(self) -> int:
        """Length of z: the first of 32, 64, 128 ... above C, so 32 on VOC, 128 on COCO and NUS-WIDE."""
        return max(32, 1 << self.classes.bit_length())

    @property
    def adversary_size(self) -> int:
        """Image size of the adversary in pixels: pclp.adversary_size, or the largest power of two within image_size."""
        setting = self.settings.pclp.adversary_size
        return 1 << (self.settings.image_size.bit_length() - 1) if setting == "auto" else setting

    def make_head(self, channels: int) -> nn.Module:
        """The latent head; with the backbone it is the encoder."""
        return LatentHead(channels, self.classes, self.latent)

    def companions(self) -> nn.ModuleDict:
        """Generator, discriminator and causal prior, trained with the encoder; empty with pclp.prior `none`."""
        s = self.settings.pclp
        if s.prior == "none":
            return nn.ModuleDict()
        shape = (self.latent, self.adversary_size, s.adversary_width)
        return nn.ModuleDict(
            {
                "generator": Generator(*shape),
                "discriminator": Discriminator(*shape),
                "prior": CausalPrior(self.classes),
            }
        )

    def param_groups(self, network: nn.Module, companions: nn.ModuleDict) -> list[ParamGroup]:
        """Five groups with one Adam each; without companions the encoder's group alone."""
        encoder, lr = self.encoder_group(network), self.settings.pclp.adversary_lr
        if not companions:
            return encoder
        prior = companions["prior"]
        assert isinstance(prior, CausalPrior)
        return [
            *encoder,
            ParamGroup("discriminator", list(companions["discriminator"].parameters()), lr),
            ParamGroup("generator", list(companions["generator"].parameters()), lr),
            ParamGroup("adjacency", [prior.adjacency], lr),
            ParamGroup("affine", list(prior.affine.parameters()), lr),
        ]

    # -- stage 1 (its loop is `dicap.training.loops.pclp`)

    def warmup_views(self, labelled: np.ndarray, unlabelled: np.ndarray) -> list[Request]:
        """Weak views of all images, strong views of the unlabelled images."""
        return [Request("weak", np.concatenate([labelled, unlabelled]), self.weak), Request("strong", unlabelled, self.strong)]

    def encode(self, network: nn.Module, batch: Batch) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Mean and log variance (B, L) of weak views, and Equation (21) without D. Strong views pass separately, as published."""
        assert isinstance(network, LatentNetwork)
        weak, strong = batch.views["weak"], batch.views["strong"]
        mean, logvar = network.gaussian(weak)  # (B, L)
        n, c = len(batch.y), self.classes
        logits = network.gaussian(strong)[0][:, :c]  # (b_u, C)
        return mean, logvar, self.encoder_terms(mean[:n, :c], batch.y, mean[n:, :c], logits)

    # -- stage 2

    def refresh(self, teacher: Teacher, roles: Roles) -> Refresh:
        """The teacher's scores of D_u, for the record only: each step uses the scores of the network being trained.

        A soft target p is recorded as its likelier label and this label's weight. Classes without a labelled positive are
        left out.
        """
        p = teacher.scores(roles.unlabelled)  # (N_u, C)
        active = rules.seen(teacher.labels(roles.labelled))
        label = rules.fixed_threshold(p, 0.5, active)
        weight = torch.where(label == 1, p, 1 - p) * (label >= 0)
        return Refresh(PseudoLabels(p, label, weight, soft=True), guarded=(~active).sum())

    def main_views(self, labelled: np.ndarray, unlabelled: np.ndarray, uncertain: np.ndarray) -> list[Request]:
        """Weak views of the labelled images, weak and strong views of the unlabelled images."""
        return [
            Request("labelled", labelled, self.weak),
            Request("weak", unlabelled, self.weak),
            Request("strong", unlabelled, self.strong),
        ]

    def main_losses(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """ASL_mean(weak labelled) + consistency * BCE_mean(strong, sigmoid(weak)), Equation (23); the target is a constant.

        All views pass the network in one batch, as published, so they share BatchNorm's statistics.
        """
        views = [batch.views[name] for name in ("labelled", "weak", "strong")]
        labelled, weak, strong = network(torch.cat(views))[0].split([len(view) for view in views])  # (b, C) each
        return self.encoder_terms(labelled, batch.y, weak, strong, batch.label >= 0)

    def encoder_terms(
        self, labelled: Tensor, y: Tensor, weak: Tensor, strong: Tensor, active: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The losses of both stages, means over entries, from logits `labelled` (b_l, C), `weak` and `strong` (b_u, C)."""
        elements = binary_cross_entropy(strong, torch.sigmoid(weak.float()).detach())
        active = torch.ones_like(elements) if active is None else active
        return {
            "loss_sup": self.supervised(labelled, y).mean(),
            "loss_pseudo": self.settings.pclp.consistency * (elements * active).sum() / active.sum().clamp_min(1),
        }


def adversary_images(images: Tensor, size: int) -> Tensor:
    """Images (B, 3, H, W) uint8 -> (B, 3, size, size) float32 in [0, 1], as published; generated images are in [-1, 1]."""
    x = images.float() / 255
    return x if x.shape[2] == size else F.interpolate(x, (size, size), mode="bilinear", antialias=True)


def discriminator_loss(d_fake: Tensor, d_real: Tensor) -> Tensor:
    """softplus(D(G(z), z)) + softplus(-D(x, E(x))), means over (B,) (Equation (20))."""
    return F.softplus(d_fake).mean() + F.softplus(-d_real).mean()


def generator_loss(d_fake: Tensor) -> Tensor:
    """-mean(clamp(exp(D), 0.5, 2) D) (Equation (22)); the clamped ratio is a weight of each pair, without gradient."""
    return -(d_fake.exp().clamp(0.5, 2).detach() * d_fake).mean()
