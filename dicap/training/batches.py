"""From the steps of an epoch to the tensors of its batches."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dicap.calibration.thresholds import PseudoLabels
from dicap.data.loader import Request
from dicap.methods.base import Batch, Phase, Refresh
from dicap.randomness import generator
from dicap.training.experiment import Experiment
from dicap.training.plan import Step


@dataclass
class Batches:
    """The batches of an epoch of labelled images: the views that each step requests, and the tensors made of them."""

    experiment: Experiment
    phase: Phase
    steps: Sequence[Step]
    epoch: int

    def rows(self, step: Step) -> tuple[np.ndarray, np.ndarray]:
        """The labelled and the unlabelled images of a step."""
        return self.phase.labelled[step.labelled], self.phase.unlabelled[step.unlabelled]

    def requests(self) -> list[list[Request]]:
        """The views of every step."""
        return [self.experiment.method.warmup_views(*self.rows(step)) for step in self.steps]

    def make(self, i: int, views: dict[str, Tensor]) -> Batch:
        """The batch of step i from its views; in warm-up every entry may be contrasted."""
        images, classes = self.steps[i].images, self.experiment.method.classes
        none = torch.empty(0, classes, device=self.experiment.runtime.device)
        entries = np.full((images, classes), -1, np.int8)
        return self.batch(i, views, PseudoLabels(none, none.to(torch.int8), none), "warmup", entries)

    def batch(self, i: int, views: dict[str, Tensor], pseudo: PseudoLabels, stage: str, entries: np.ndarray) -> Batch:
        """The tensors of step i, with the entries it contrasts.

        Args:
            pseudo: of the unlabelled images.
            entries: (b, C) labels of the contrasted images, -1 where an entry is uncertain.
        """
        e, step, pairs = self.experiment, self.steps[i], np.empty((0, 3), np.int64)
        if self.phase.pairs is not None:
            pairs = self.phase.pairs(entries, generator(e.settings.seed, stage, self.epoch, i, "pairs"))
        return Batch(
            views=views,
            y=e.runtime.put(e.labels.of(self.rows(step)[0])),
            label=pseudo.label,
            weight=pseudo.weight,
            soft=pseudo.soft,
            pairs=e.runtime.put(pairs),
            images=step.images,
        )


@dataclass
class MainBatches(Batches):
    """The batches of an epoch of the main stage, with the pseudo-labels of a refresh, or with new ones for each batch."""

    refresh: Refresh
    teacher: nn.Module

    def __post_init__(self) -> None:
        self.label = self.refresh.pseudo.label.cpu().numpy()  # (N_u, C), on the host to plan the steps

    def requests(self) -> list[list[Request]]:
        """The views of every step."""
        uncertain = self.label.min(1, initial=0) < 0  # (N_u,), without a table of them all
        views = self.experiment.method.main_views
        return [views(*self.rows(step), uncertain[step.unlabelled]) for step in self.steps]

    def make(self, i: int, views: dict[str, Tensor]) -> Batch:
        """The batch of step i from its views."""
        e, step, refresh = self.experiment, self.steps[i], self.refresh
        place, pseudo = e.runtime.put(step.unlabelled), refresh.pseudo
        if self.phase.relabel is None:
            pseudo = pseudo._replace(label=pseudo.label[place], weight=pseudo.weight[place].float())
        else:
            tables = pseudo
            with torch.no_grad():  # as in a refresh: they are constants
                pseudo = self.phase.relabel(self.teacher, views, refresh)
            for table, made in zip(tables[:3], pseudo[:3], strict=True):  # of the epoch, for its record
                table[place] = made
        batch, weight = self.batch(i, views, pseudo, "train", self.label[step.unlabelled]), refresh.labelled_weight
        return batch if weight is None else batch._replace(y_weight=weight[e.runtime.put(step.labelled)])


class FinetuneBatches(Batches):
    """The batches of fine-tuning: strong views of D_est with its labels."""

    def requests(self) -> list[list[Request]]:
        """The views of every step."""
        return [[Request("strong", self.rows(step)[0], self.experiment.method.strong)] for step in self.steps]
