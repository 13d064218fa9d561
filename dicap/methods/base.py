"""What a method decides; the loops in `dicap.training` do the rest.

A method describes its two phases, makes its network, says which views a step needs and how they become a loss, and turns
teacher scores into pseudo-labels. It holds no state of training: everything it returns is a function of its arguments.
What must be remembered from epoch to epoch is the `carry` of its `Refresh`.
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
        """D_l = D_sup and D_est, ascending: a method that holds nothing out does not see where D_est begins."""
        return np.sort(np.concatenate([self.sup, self.est]))

    @property
    def unsup(self) -> np.ndarray:
        """D_unsup = D_u and D_est, ascending: D_est is treated exactly like D_u (docs/methods.md 3.2)."""
        return np.sort(np.concatenate([self.unlabelled, self.est]))


class Teacher(Protocol):
    """What a method may look at when it makes pseudo-labels."""

    epoch: int  # that is about to be trained, from 0
    carry: dict[str, Tensor]  # what the method kept from the epoch before, on the device; empty in the first epoch

    def scores(self, rows: np.ndarray) -> Tensor:
        """(n, C) scores of the teacher for these images, in [0, 1]: float32."""
        ...

    def outputs(self, rows: np.ndarray, function: Callable[[nn.Module, Tensor], Tensor]) -> Tensor:
        """(n, ...) float32: function(network, inputs) of the network in training, in eval mode."""
        ...

    def labels(self, rows: np.ndarray) -> Tensor:
        """(n, C) labels, -1 where unknown; only of images whose labels the method may read."""
        ...

    def hidden_labels(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """(n, C) labels that training must not read, and (n,) bool, whether a row has any; for calibration.policy `optimal`."""
        ...


class Refresh(NamedTuple):
    """What an epoch of the main stage trains on."""

    pseudo: PseudoLabels  # of D_unsup (or the method's unlabelled images), in its order
    rates: Rates | None = None
    thresholds: Thresholds | None = None
    guarded: Tensor | None = None  # () count of classes (or angle maps) where a guard against a published defect acted
    labelled_weight: Tensor | None = None  # (n_l, C) weights of the labelled entries, in the order of `Phase.labelled`
    carry: Mapping[str, Tensor] = {}  # what the next refresh, and `Phase.install`, may read

    def without_confidences(self) -> "Refresh":
        """What the losses read."""
        return self._replace(pseudo=self.pseudo._replace(confidence=self.pseudo.confidence[:0].clone()))


class Batch(NamedTuple):
    """One step's tensors on the device."""

    views: dict[str, Tensor]  # by request key: uint8 images, or features computed before
    y: Tensor  # (b_l, C) labels of the labelled images; -1: unknown
    label: Tensor  # (b_u, C) int8 pseudo-labels, empty in warm-up
    weight: Tensor  # (b_u, C)
    soft: bool
    pairs: Tensor  # (m, 3) int64, entries to contrast: see `DiCaP.pairs`
    images: int  # of the step, over which sums are averaged
    y_weight: Tensor | None = None  # (b_l, C)


@dataclass(frozen=True)
class ParamGroup:
    """Tensors with an optimiser of their own; with weight_decay 0, AdamW is Adam."""

    name: str
    parameters: Sequence[nn.Parameter]
    lr: float
    weight_decay: float = 0.0
    one_cycle: bool = True  # else a constant rate


@dataclass(frozen=True)
class Phase:
    """Warm-up or main stage of a method: which images, how many a step, how long, what is published.

    The callables are optional; where one is None, the phase has no such step.

    Attributes:
        labelled, unlabelled: (n,) rows. Warm-up passes over the labelled images, the main stage over the unlabelled ones.
        batch_labelled, batch_unlabelled: images of each kind in a step.
        epochs: passes; 0 where the phase is left out.
        lr: peak learning rate; None: optimiser.lr.
        cycle_epochs: length of the one-cycle; 0: as long as the phase.
        publishes: the weights that the next stage starts from, or that are the result; the others are kept beside them.
        begin: network -> None; changes the network in place before the phase.
        install: (network, refresh) -> None; puts an epoch's tables into the network where its scores depend on them.
        groups: network -> what is trained and how; None: every trainable tensor by the common optimiser.
        features: (network, images) -> (b, D), computed once of every image and used in place of views.
        relabel: (teacher, views, refresh) -> pseudo-labels (b_u, C) of one batch, made anew from its weak views.
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
    """Labelled-only training and the common frame: subclasses override what their section of docs/methods.md changes."""

    network_class: type[Network] = Network

    def __init__(self, settings: Settings, classes: int, share: float) -> None:
        """`share`: of the training images, those whose labels may be used; batches are composed by it."""
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
        """A new head on the feature map (B, D, h, w) of a backbone, D channels: the one that `head` names."""
        return build_head(self.settings, channels, self.classes)

    def build_network(self, *, pretrained: bool = True, stored: StoredBackbone | None = None) -> nn.Module:
        """A new network; called under a seed of its own. See `dicap.network.build_network`."""
        return build_network(self.settings, self.make_head, self.network_class, pretrained=pretrained, stored=stored)

    def scores(self, network: nn.Module, inputs: Tensor) -> Tensor:
        """Test scores (B, C) in [0, 1] of images (B, 3, H, W) uint8, or of what the network takes in their place."""
        return torch.sigmoid(network(inputs)[0].float())

    def supervised(self, logits: Tensor, y: Tensor) -> Tensor:
        """Element loss against labels, (B, C): ASL unless the method says otherwise."""
        loss = self.settings.loss
        return asymmetric_loss(logits, y, gamma_neg=loss.gamma_neg, gamma_pos=loss.gamma_pos, clip=loss.clip)

    def warmup_views(self, labelled: np.ndarray, unlabelled: np.ndarray) -> list[Request]:
        """The views of a warm-up step; the arguments are rows."""
        return [Request("strong", np.concatenate([labelled, unlabelled]), self.strong_warmup)]

    def warmup_losses(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Terms of the warm-up loss by name; their sum is minimised."""
        logits, _ = network(batch.views["strong"])
        return {"loss_sup": reduced(self.supervised(logits, batch.y), batch.images, self.settings, batch.y)}

    def refresh(self, teacher: Teacher, roles: Roles) -> Refresh:
        """Pseudo-labels of the unlabelled images of `main`, for an epoch of it."""
        raise NotImplementedError(f"{type(self).__name__} has no main stage")

    def thresholds(self, p: Tensor, y: Tensor) -> Thresholds:
        """Thresholds of the classes from scores p and labels y (N, C) of D_sup, of a method that holds D_est out."""
        raise NotImplementedError(f"{type(self).__name__} takes no thresholds from D_sup")

    def main_views(self, labelled: np.ndarray, unlabelled: np.ndarray, uncertain: np.ndarray) -> list[Request]:
        """The views of a main step; rows, and (b_u,) bool: which unlabelled images have an uncertain entry."""
        return [Request("strong", np.concatenate([labelled, unlabelled]), self.strong)]

    def main_losses(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """L = L_sup + L_pseudo: the labels' loss and the pseudo-labels' weighted loss, on strong views."""
        logits, _ = network(batch.views["strong"])
        n = len(batch.y)
        return {
            "loss_sup": reduced(self.supervised(logits[:n], batch.y), batch.images, self.settings, batch.y),
            "loss_pseudo": pseudo_loss(self, logits[n:], batch),
        }


def reduced(elements: Tensor, images: int, settings: Settings, y: Tensor | None = None) -> Tensor:
    """Sum over entries / images of the step, or with loss.reduction `mean` the mean over entries (docs/methods.md 3.13-D).

    Args:
        y: labels of the elements' entries; unknown ones, below 0, are not counted in the mean (their element is 0).
    """
    if settings.loss.reduction == "mean":
        if y is not None and y.is_signed():  # some entries of the data set are unknown
            return elements.sum() / (y >= 0).sum().clamp_min(1)
        return elements.mean() if elements.numel() else elements.sum()
    return elements.sum() / images


def pseudo_loss(method: Method, logits: Tensor, batch: Batch) -> Tensor:
    """Equation (10): w(p, label) * loss(logits, label), summed over confident entries and divided as by `reduced`."""
    positive = (batch.label == 1).float()
    elements = batch.weight * method.supervised(logits, positive)
    if batch.soft:  # the opposite label with the opposite weight: a soft target, Equation (14)
        elements = elements + (1 - batch.weight) * (batch.label >= 0) * method.supervised(logits, 1 - positive)
    return reduced(elements, batch.images, method.settings, batch.label)


def hard_mask(p: Tensor, label: Tensor) -> PseudoLabels:
    """Pseudo-labels of methods without estimated weights: weight 1 where the label is 0 or 1, else 0."""
    return PseudoLabels(p, label.to(torch.int8), (label >= 0).float())


@contextmanager
def frozen_statistics(network: nn.Module) -> Iterator[None]:
    """BatchNorm normalises by the batch as in training, but leaves its running statistics alone."""
    norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    before = [m.momentum for m in norms]
    for m in norms:
        m.momentum = 0.0
    try:
        yield
    finally:
        for m, momentum in zip(norms, before, strict=True):
            m.momentum = momentum
