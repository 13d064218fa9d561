"""What a method decides; the loop (`dicap.training.loop`) does the rest.

A method says which images are labelled for it, what a step looks at, the warm-up loss, how teacher scores become
pseudo-labels, and the main loss. It holds no state of training: everything it returns is a function of its arguments.
What a method must remember from epoch to epoch is the `carry` of its `Refresh`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dicap.calibration import PseudoLabels, Rates, Thresholds
from dicap.catalogue import MethodFacts
from dicap.data.augment import View
from dicap.data.loader import Request
from dicap.losses import asymmetric_loss
from dicap.network import build_network
from dicap.settings import Settings


@dataclass(frozen=True)
class Roles:
    """Rows of the converted set by role, each (n,) int64, ascending."""

    sup: np.ndarray
    est: np.ndarray
    unlabeled: np.ndarray
    test: np.ndarray
    validation: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # labelled, for early stopping alone

    @property
    def labelled(self) -> np.ndarray:
        """D_l = D_sup and D_est."""
        return np.concatenate([self.sup, self.est])

    @property
    def unsup(self) -> np.ndarray:
        """D_unsup = D_u and D_est, ascending: D_est is treated exactly like D_u (docs/methods.md 3.2)."""
        return np.sort(np.concatenate([self.unlabeled, self.est]))


class Teacher(Protocol):
    """What a method may look at when it makes pseudo-labels."""

    epoch: int
    carry: dict[str, Tensor]  # of the epoch before, on the device; empty in the first

    def scores(self, rows: np.ndarray) -> Tensor:
        """(n, C) float32 scores of the teacher for these images, in [0, 1]."""
        ...

    def outputs(self, rows: np.ndarray, function: Callable[[nn.Module, Tensor], Tensor], *, online: bool = False) -> Tensor:
        """(n, ...) float32: function(network, images) in eval mode, of the teacher or of the network in training.

        For methods on features the function gets those instead of images.
        """
        ...

    def labels(self, rows: np.ndarray) -> Tensor:
        """(n, C) labels; only of images whose labels the method may read."""
        ...

    def hidden_labels(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """(n, C) labels of any image and (n,) bool, whether it has any: for the policy `optimal` alone."""
        ...


class Refresh(NamedTuple):
    """What an epoch of the main stage trains on."""

    pseudo: PseudoLabels  # of D_unsup (or the method's unlabelled images), in its order
    rates: Rates | None = None
    thresholds: Thresholds | None = None
    crossed: int = 0
    guarded: int = 0  # classes (or angle maps) where a guard against a published defect acted
    labelled_weight: Tensor | None = None  # (n_l, C) weights of the labelled entries, in the order of `labelled`
    carry: Mapping[str, Tensor] = {}  # what the next refresh, and `install`, may read


class Others(NamedTuple):
    """Entries to contrast that other processes hold, where several share a step.

    total: entries of the whole step; own: this process's place among them; gather: (m, ...) of this process's entries ->
    (total, ...) of all, with gradient.
    """

    total: int
    own: slice
    gather: Callable[[Tensor], Tensor]


class Batch(NamedTuple):
    """One step's tensors on the device; of this process's part of the step, where several share it."""

    views: dict[str, Tensor]  # by request key, uint8
    y: Tensor  # (b_l, C) labels of the labelled images
    label: Tensor  # (b_u, C) int8 pseudo-labels, empty in warm-up
    weight: Tensor  # (b_u, C)
    soft: bool
    pairs: Tensor  # (m, 3) int64, entries to contrast: place among the strong views, class, place among the weak views
    images: int  # of the whole step, over which sums are averaged
    y_weight: Tensor | None = None  # (b_l, C)
    others: Others | None = None

    @property
    def contrasted(self) -> int:
        """Entries to contrast in the whole step."""
        return len(self.pairs) if self.others is None else self.others.total


class Update(NamedTuple):
    """One update of a step: the terms of its loss by name (their sum is minimised) and whose tensors it moves."""

    terms: dict[str, Tensor]
    players: tuple[str, ...] = ()  # all of them


@dataclass(frozen=True)
class Player:
    """Tensors with an optimiser of their own; with weight_decay 0, AdamW is Adam."""

    name: str
    parameters: Sequence[nn.Parameter]
    lr: float
    weight_decay: float = 0.0
    one_cycle: bool = True  # else a constant rate


class Method:
    """The common frame; subclasses override what their section of docs/methods.md changes.

    Attributes:
        annotated: share of the training images that have labels, of which `ratio` may be used.
    """

    def __init__(self, settings: Settings, facts: MethodFacts, classes: int, annotated: float = 1.0) -> None:
        self.settings = settings
        self.facts = facts
        self.classes = classes
        self.annotated = annotated
        a = settings.augment
        self.weak = View("weak", flip=a.flip)
        self.strong_warmup = View("strong", cutout=a.cutout_warmup, policy=a.policy, flip=a.flip)
        self.strong = View("strong", cutout=a.cutout, policy=a.policy, flip=a.flip)

    # -- network ------------------------------------------------------------------------------------------

    def build_network(self, *, pretrained: bool = True) -> nn.Module:
        """A new network; called under a seed of its own."""
        return build_network(self.settings, self.classes, pretrained=pretrained)

    def scores(self, network: nn.Module, images: Tensor) -> Tensor:
        """Test scores (B, C) in [0, 1] of images (B, 3, H, W) uint8."""
        return torch.sigmoid(network(images)[0].float())

    def companions(self) -> nn.ModuleDict:
        """Networks that are trained beside the model in warm-up and are no part of it; made under the network's seed."""
        return nn.ModuleDict()

    def players(self, network: nn.Module, companions: nn.ModuleDict, stage: str) -> list[Player]:
        """Who moves in warm-up or train; empty: every trainable tensor of the network, by the common optimiser."""
        return []

    @property
    def on_features(self) -> bool:
        """Whether the main stage works on the fixed `features` of the images, computed once, instead of views."""
        return False

    def features(self, network: nn.Module, images: Tensor) -> Tensor:
        """(B, D) of images (B, 3, H, W) as stored, where `on_features`."""
        raise NotImplementedError

    @property
    def in_parts(self) -> bool:
        """Whether losses are sums over images, so that several processes can each take a part of a step."""
        return self.settings.loss.reduction == "sum"

    @property
    def publishes(self) -> Literal["ema", "raw"]:
        """Which weights are the result of the main stage."""
        return "ema"

    # -- which images -------------------------------------------------------------------------------------

    def labelled(self, roles: Roles) -> np.ndarray:
        """Images whose labels train the network before fine-tuning: all of D_l (docs/methods.md 3.13-I)."""
        return roles.labelled

    def unlabelled(self, roles: Roles) -> np.ndarray:
        """Images that get pseudo-labels."""
        return roles.unlabeled

    def warmup_labelled(self, roles: Roles) -> np.ndarray:
        """Images whose labels the warm-up reads: the same as later."""
        return self.labelled(roles)

    @property
    def keeps_est(self) -> bool:
        """Whether D_est is kept from training up to fine-tuning, so that correctness can be counted on it."""
        return False

    def thresholds(self, p: Tensor, y: Tensor) -> Thresholds:
        """Thresholds of the classes from scores p (N, C) and labels y (N, C), where `keeps_est`."""
        raise NotImplementedError

    def readable(self, roles: Roles) -> np.ndarray:
        """Images whose labels training may read at all."""
        return roles.labelled

    @property
    def share(self) -> float:
        """Of the training images, those whose labels may be used: by it batches are composed."""
        return self.settings.ratio * self.annotated

    @property
    def warmup_batch(self) -> int:
        """Labelled images of a warm-up step."""
        return self.settings.warmup_batch(self.share)

    @property
    def labelled_batch(self) -> int:
        """Labelled images of a main step; the others of train.batch_size are unlabelled."""
        return self.settings.labelled_batch(self.share)

    # -- warm-up ------------------------------------------------------------------------------------------

    @property
    def warmup_epochs(self) -> int:
        """Epochs of the warm-up."""
        return self.settings.warmup.epochs

    @property
    def warmup_over_unlabelled(self) -> tuple[int, int] | None:
        """(labelled, unlabelled) images a step where a warm-up epoch is a pass over the unlabelled images."""
        return None

    @property
    def warmup_unlabelled(self) -> bool:
        """Whether a warm-up step also draws unlabelled images."""
        return False

    def warmup_requests(self, labelled: np.ndarray, unlabelled: np.ndarray) -> list[Request]:
        """The views of a warm-up step; the arguments are rows."""
        return [Request("strong", np.concatenate([labelled, unlabelled]), self.strong_warmup)]

    def warmup_loss(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """Terms of the warm-up loss by name; their sum is minimised."""
        logits, _ = network(batch.views["strong"])
        return {"loss_sup": self.reduce(self.supervised(logits, batch.y), batch.images)}

    def warmup_updates(self, network: nn.Module, batch: Batch, companions: nn.ModuleDict) -> Iterator[Update]:
        """The updates of a warm-up step, one after the other; each may be computed when the one before is done."""
        yield Update(self.warmup_loss(network, batch))

    def supervised(self, logits: Tensor, y: Tensor) -> Tensor:
        """Element loss against labels, (B, C): ASL unless the method says otherwise."""
        loss = self.settings.loss
        return asymmetric_loss(logits, y, gamma_neg=loss.gamma_neg, gamma_pos=loss.gamma_pos, clip=loss.clip)

    def reduce(self, elements: Tensor, images: int) -> Tensor:
        """Sum over entries / images of the step, or the mean over entries (docs/methods.md 3.13-D)."""
        if self.settings.loss.reduction == "mean":
            return elements.mean() if elements.numel() else elements.sum()
        return elements.sum() / images

    def warmup_pairs(self, images: int, rng: np.random.Generator) -> np.ndarray:
        """Entries of a warm-up step to contrast, (m, 3) as in `Batch.pairs`."""
        return np.empty((0, 3), np.int64)

    # -- main stage ---------------------------------------------------------------------------------------

    @property
    def main_epochs(self) -> int:
        """Epochs of the main stage."""
        return self.settings.train.epochs

    @property
    def iterations(self) -> int | None:
        """Steps of a main epoch that draws from the pool of labelled and adopted images; None: a pass over D_u."""
        return None

    def recorded(self, epoch: int) -> bool:
        """Whether this epoch's pseudo-labels are written down."""
        return True

    def begin_main(self, network: nn.Module) -> None:
        """Change the network in place at the start of the main stage."""

    def install(self, network: nn.Module, refresh: Refresh) -> None:
        """Put an epoch's tables into the network (and into its EMA) where its scores depend on them."""

    def refresh(self, teacher: Teacher, roles: Roles) -> Refresh:
        """Pseudo-labels for an epoch of the main stage."""
        raise NotImplementedError(f"{self.facts.title} has no main stage")

    @property
    def relabels(self) -> bool:
        """Whether each batch gets its pseudo-labels anew from the teacher's look at its weak views."""
        return False

    def relabel(self, teacher: nn.Module, views: dict[str, Tensor], refresh: Refresh) -> PseudoLabels:
        """Pseudo-labels (b_u, C) of one batch, where `relabels`."""
        raise NotImplementedError

    @property
    def contrasts(self) -> bool:
        """Whether main steps contrast entries that depend on their pseudo-labels."""
        return False

    def main_pairs(self, label: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Entries of a main step to contrast, given its pseudo-labels (b_u, C); (m, 3) as in `Batch.pairs`."""
        return np.empty((0, 3), np.int64)

    def main_requests(self, labelled: np.ndarray, unlabelled: np.ndarray, uncertain: np.ndarray) -> list[Request]:
        """The views of a main step; rows, and (b_u,) bool: which unlabelled images have an uncertain entry."""
        return [Request("strong", np.concatenate([labelled, unlabelled]), self.strong)]

    def main_updates(self, network: nn.Module, batch: Batch) -> Iterator[Update]:
        """The updates of a main step, as `warmup_updates`."""
        yield Update(self.main_loss(network, batch))

    def main_loss(self, network: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """L = L_sup + L_pseudo: the labels' loss and the pseudo-labels' weighted loss, on strong views."""
        logits, _ = network(batch.views["strong"])
        n = len(batch.y)
        return {
            "loss_sup": self.reduce(self.supervised(logits[:n], batch.y), batch.images),
            "loss_pseudo": self.pseudo_loss(logits[n:], batch),
        }

    def pseudo_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Sum of w(p, label) * loss(logits, label) over confident entries (paper eq. L_pseudo; docs/methods.md 3.6)."""
        positive = (batch.label == 1).float()
        elements = batch.weight * self.supervised(logits, positive)
        if batch.soft:  # the opposite label with the opposite weight: a soft target
            elements = elements + (1 - batch.weight) * self.supervised(logits, 1 - positive)
        if self.settings.loss.reduction == "mean":
            return elements.sum() / (batch.label >= 0).sum().clamp_min(1)
        return elements.sum() / batch.images


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
