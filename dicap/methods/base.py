"""The base class of the methods. A method makes the decisions, the loops in `dicap.training` run them.

A method describes its two phases, builds its network, names the views of a step, computes the loss, and turns teacher scores
into pseudo-labels. A method keeps no training state: its results depend on its arguments alone. State that lasts from epoch to
epoch is returned in `Refresh.carry`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dicap.calibration.rates import Rates
from dicap.calibration.thresholds import PseudoLabels, Thresholds
from dicap.data.augment import View
from dicap.data.loader import Request
from dicap.losses import asymmetric_loss
from dicap.network import Network, build_head, build_network
from dicap.network.stored import StoredBackbone
from dicap.settings import Settings
from dicap.settings.batch_sizes import labelled_batch, warmup_batch

NO_ROWS = np.empty(0, np.int64)


@dataclass(frozen=True)
class Roles:
    """Rows of the converted set by role, each (n,) int64, ascending."""

    sup: np.ndarray
    est: np.ndarray
    unlabelled: np.ndarray
    test: np.ndarray

    @property
    def labelled(self) -> np.ndarray:
        """D_l = D_sup and D_est, ascending, so that a method without held-out images cannot tell D_est from D_sup."""
        return np.sort(np.concatenate([self.sup, self.est]))

    @property
    def unsup(self) -> np.ndarray:
        """D_unsup = D_u and D_est, ascending; D_est is treated exactly like D_u (docs/methods.md 3.2)."""
        return np.sort(np.concatenate([self.unlabelled, self.est]))


class Teacher(Protocol):
    """What a method may read when it makes pseudo-labels."""

    epoch: int  # the epoch about to be trained, from 0
    carry: dict[str, Tensor]  # `Refresh.carry` of the previous epoch, on the device; empty in the first epoch

    def scores(self, rows: np.ndarray) -> Tensor:
        """The teacher's scores for these images, (n, C) float32 in [0, 1]."""
        ...

    def outputs(self, rows: np.ndarray, function: Callable[[nn.Module, Tensor], Tensor]) -> Tensor:
        """function(network, inputs) with the network being trained, in eval mode; (n, ...) float32."""
        ...

    def labels(self, rows: np.ndarray) -> Tensor:
        """(n, C) labels, -1 if unknown; only for images whose labels the method may read."""
        ...

    def hidden_labels(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """Hidden labels (n, C), and (n,) bool: the row has labels. Only calibration.policy `optimal` may read them."""
        ...


class Refresh(NamedTuple):
    """The pseudo-labels of one epoch of the main stage, and the tables that they come from."""

    pseudo: PseudoLabels  # for D_unsup (or the method's unlabelled images), in the order of `Phase.unlabelled`
    rates: Rates | None = None
    thresholds: Thresholds | None = None
    guarded: Tensor | None = None  # () number of classes (or angle maps) where a guard against a published defect acted
    labelled_weight: Tensor | None = None  # (n_l, C) weights of the labelled entries, in the order of `Phase.labelled`
    carry: Mapping[str, Tensor] = {}  # state for the next refresh and for `Phase.install`

    def without_confidences(self) -> "Refresh":
        """A copy without the confidences, which no loss reads."""
        return self._replace(pseudo=self.pseudo._replace(confidence=self.pseudo.confidence[:0].clone()))


class Batch(NamedTuple):
    """One step's tensors on the device."""

    views: dict[str, Tensor]  # by request key: uint8 images, or stored features
    y: Tensor  # (b_l, C) labels of the labelled images; -1: unknown
    label: Tensor  # (b_u, C) int8 pseudo-labels, empty in warm-up
    weight: Tensor  # (b_u, C)
    soft: bool
    pairs: Tensor  # (m, 3) int64, entries to contrast: see `DiCaP.pairs`
    images: int  # number of images in the step, the divisor of summed losses
    y_weight: Tensor | None = None  # (b_l, C)


@dataclass(frozen=True)
class ParamGroup:
    """Tensors with a separate optimiser; with weight_decay 0, AdamW is Adam."""

    name: str
    parameters: Sequence[nn.Parameter]
    lr: float
    weight_decay: float = 0.0
    one_cycle: bool = True  # else a constant rate


@dataclass(frozen=True)
class Phase:
    """Warm-up or main stage of a method: its images, batch sizes, length, and published weights.

    The callables are optional; a phase without one of them skips that step.

    Attributes:
        labelled, unlabelled: (n,) rows. Warm-up passes over the labelled images, the main stage over the unlabelled images.
        batch_labelled, batch_unlabelled: images of each kind in a step.
        epochs: passes over the data; 0 skips the phase.
        lr: peak learning rate; None: optimiser.lr.
        cycle_epochs: length of the one-cycle; 0: the length of the phase.
        publishes: the weights (EMA or raw) that the stage publishes as its model; the other weights are saved beside it.
        begin: network -> None; changes the network in place before the phase.
        install: (network, refresh) -> None; writes an epoch's tables into the network if its scores depend on them.
        groups: network -> parameter groups; None: one optimiser for all trainable tensors.
        features: (network, images) -> (b, D); computed once per image and used instead of views.
        relabel: (teacher, views, refresh) -> pseudo-labels (b_u, C) of one batch, computed from its weak views.
        pairs: (labels (b, C), generator) -> (m, 3) entries to contrast, as in `Batch.pairs`; -1 marks an uncertain entry.
    """

    labelled: np.ndarray
    unlabelled: np.ndarray
    batch_labelled: int
    batch_unlabelled: int
    epochs: int
    lr: float | None = None
    cycle_epochs: int = 0
    publishes: Literal["ema", "raw"] = "raw"
    begin: Callable[[nn.Module], None] | None = None
    install: Callable[[nn.Module, Refresh], None] | None = None
    groups: Callable[[nn.Module], list[ParamGroup]] | None = None
    features: Callable[[nn.Module, Tensor], Tensor] | None = None
    relabel: Callable[[nn.Module, dict[str, Tensor], Refresh], PseudoLabels] | None = None
    pairs: Callable[[np.ndarray, np.random.Generator], np.ndarray] | None = None


class Method:
    """Labelled-only training, the base of all methods. Subclasses override what their section of docs/methods.md changes."""

    network_class: type[Network] = Network

    def __init__(self, settings: Settings, classes: int, share: float) -> None:
        """`share`: fraction of the training images with visible labels; batch compositions depend on it."""
        self.settings = settings
        self.classes = classes
        self.share = share
        a = settings.augment
        self.weak = View("weak", flip=a.flip)
        self.strong_warmup = View("strong", cutout=a.cutout_warmup, flip=a.flip)
        self.strong = View("strong", cutout=a.cutout, flip=a.flip)

    def warmup(self, roles: Roles) -> Phase:
        """Stage 1 on the labels of D_l (docs/methods.md 2.8, 3.14-G)."""
        s = self.settings
        return Phase(
            labelled=roles.labelled,
            unlabelled=NO_ROWS,
            batch_labelled=warmup_batch(s, self.share),
            batch_unlabelled=0,
            epochs=s.warmup.epochs,
            publishes=s.publishes("warmup"),
        )

    def main(self, roles: Roles) -> Phase:
        """Stage 2 on the labels of D_l and the pseudo-labels of D_u (docs/methods.md 2.8)."""
        s = self.settings
        labelled = labelled_batch(s, self.share)
        return Phase(
            labelled=roles.labelled,
            unlabelled=roles.unlabelled,
            batch_labelled=labelled,
            batch_unlabelled=s.train.batch_size - labelled,
            epochs=s.train.epochs,
            cycle_epochs=s.train.cycle_epochs,
            publishes=s.publishes("train"),
        )

    def make_head(self, channels: int) -> nn.Module:
        """A new head of the kind set by `head`, on a backbone's feature map (B, D, h, w) with D channels."""
        return build_head(self.settings, channels, self.classes)

    def build_network(self, *, pretrained: bool = True, stored: StoredBackbone | None = None) -> nn.Module:
        """A new network; the caller sets the seed. See `dicap.network.build_network`."""
        return build_network(self.settings, self.make_head, self.network_class, pretrained=pretrained, stored=stored)

    def scores(self, network: nn.Module, inputs: Tensor) -> Tensor:
        """Test scores (B, C) in [0, 1] of images (B, 3, H, W) uint8, or of stored features."""
        return torch.sigmoid(network(inputs)[0].float())

    def supervised(self, logits: Tensor, y: Tensor) -> Tensor:
        """Element-wise loss against labels, (B, C): ASL unless a method overrides it."""
        loss = self.settings.loss
        return asymmetric_loss(logits, y, gamma_neg=loss.gamma_neg, gamma_pos=loss.gamma_pos, clip=loss.clip)

    def warmup_views(self, labelled: np.ndarray, unlabelled: np.ndarray) -> list[Request]:
        """The views of a warm-up step; the arguments are rows."""
        return [Request("strong", np.concatenate([labelled, unlabelled]), self.strong_warmup)]

    def warmup_losses(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Terms of the warm-up loss by name; training minimises their sum."""
        logits, _ = network(batch.views["strong"])
        return {"loss_sup": reduced(self.supervised(logits, batch.y), batch.images, self.settings, batch.y)}

    def refresh(self, teacher: Teacher, roles: Roles) -> Refresh:
        """Pseudo-labels of the main stage's unlabelled images for one epoch."""
        raise NotImplementedError(f"{type(self).__name__} has no main stage")

    def thresholds(self, p: Tensor, y: Tensor) -> Thresholds:
        """Thresholds per class from scores p and labels y (N, C) on D_sup; only for methods that hold D_est out."""
        raise NotImplementedError(f"{type(self).__name__} takes no thresholds from D_sup")

    def main_views(self, labelled: np.ndarray, unlabelled: np.ndarray, uncertain: np.ndarray) -> list[Request]:
        """The views of a main step, from rows; `uncertain`: (b_u,) bool, the image has an uncertain entry."""
        return [Request("strong", np.concatenate([labelled, unlabelled]), self.strong)]

    def main_losses(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """L = L_sup + L_pseudo: the loss on labels and the weighted loss on pseudo-labels, both on strong views."""
        logits, _ = network(batch.views["strong"])
        n = len(batch.y)
        return {
            "loss_sup": reduced(self.supervised(logits[:n], batch.y), batch.images, self.settings, batch.y),
            "loss_pseudo": pseudo_loss(self, logits[n:], batch),
        }


def reduced(elements: Tensor, images: int, settings: Settings, y: Tensor | None = None) -> Tensor:
    """Sum over entries / images of the step; with loss.reduction `mean` the mean over entries (docs/methods.md 3.13-D).

    Args:
        y: labels of the entries; unknown entries (below 0) have loss 0 and do not count in the mean.
    """
    if settings.loss.reduction == "mean":
        if y is not None and y.is_signed():  # some entries of the data set are unknown
            return elements.sum() / (y >= 0).sum().clamp_min(1)
        return elements.mean() if elements.numel() else elements.sum()
    return elements.sum() / images


def pseudo_loss(method: Method, logits: Tensor, batch: Batch) -> Tensor:
    """Equation (10): w(p, label) * loss(logits, label) over the confident entries, reduced by `reduced`."""
    positive = (batch.label == 1).float()
    elements = batch.weight * method.supervised(logits, positive)
    if batch.soft:  # a soft target: the opposite label with weight 1 - w, Equation (14)
        elements = elements + (1 - batch.weight) * (batch.label >= 0) * method.supervised(logits, 1 - positive)
    return reduced(elements, batch.images, method.settings, batch.label)


def hard_mask(p: Tensor, label: Tensor) -> PseudoLabels:
    """Pseudo-labels of methods without estimated weights: weight 1 where the label is 0 or 1, else 0."""
    return PseudoLabels(p, label.to(torch.int8), (label >= 0).float())


@contextmanager
def frozen_statistics(network: nn.Module) -> Iterator[None]:
    """BatchNorm normalises by the batch as in training, but its running statistics do not change."""
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    before = [m.momentum for m in norms]
    for m in norms:
        m.momentum = 0.0
    try:
        yield
    finally:
        for m, momentum in zip(norms, before, strict=True):
            m.momentum = momentum
