"""Turns the steps of an epoch into batches of tensors."""

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
    """The batches of a warm-up epoch: the views that each step requests, and the tensors made from them."""

    experiment: Experiment
    phase: Phase
    steps: Sequence[Step]
    epoch: int

    def rows(self, step: Step) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the labelled and of the unlabelled images of a step."""
        return self.phase.labelled[step.labelled], self.phase.unlabelled[step.unlabelled]

    def requests(self) -> list[list[Request]]:
        """The views of every step."""
        return [self.experiment.method.warmup_views(*self.rows(step)) for step in self.steps]

    def make(self, i: int, views: dict[str, Tensor]) -> Batch:
        """The batch of step i from its views; in warm-up every entry can be contrasted."""
        images, classes = self.steps[i].images, self.experiment.method.classes
        empty = torch.empty(0, classes, device=self.experiment.runtime.device)
        entries = np.full((images, classes), -1, np.int8)
        return self.batch(i, views, PseudoLabels(empty, empty.to(torch.int8), empty), "warmup", entries)

    def batch(self, i: int, views: dict[str, Tensor], pseudo: PseudoLabels, stage: str, entries: np.ndarray) -> Batch:
        """The tensors of step i, with the pairs of entries to contrast.

        Args:
            pseudo: pseudo-labels of the step's unlabelled images.
            entries: (b, C) labels of the images that may be contrasted; -1 marks an uncertain entry.
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
    """The batches of a main-stage epoch. Pseudo-labels come from the epoch's refresh, or per batch from `Phase.relabel`."""

    refresh: Refresh
    teacher: nn.Module

    def __post_init__(self) -> None:
        self.label = self.refresh.pseudo.label.cpu().numpy()  # (N_u, C), on the CPU for planning the steps

    def requests(self) -> list[list[Request]]:
        """The views of every step."""
        uncertain = self.label.min(1, initial=0) < 0  # (N_u,) bool, without an (N_u, C) temporary
        views = self.experiment.method.main_views
        return [views(*self.rows(step), uncertain[step.unlabelled]) for step in self.steps]

    def make(self, i: int, views: dict[str, Tensor]) -> Batch:
        """The batch of step i from its views."""
        e, step, refresh = self.experiment, self.steps[i], self.refresh
        index, pseudo = e.runtime.put(step.unlabelled), refresh.pseudo
        if self.phase.relabel is None:
            pseudo = pseudo._replace(label=pseudo.label[index], weight=pseudo.weight[index].float())
        else:
            tables = pseudo
            with torch.no_grad():  # pseudo-labels are constants of the loss
                pseudo = self.phase.relabel(self.teacher, views, refresh)
            for table, values in zip(tables[:3], pseudo[:3], strict=True):  # the epoch's record gets the batch's labels
                table[index] = values
        batch, weight = self.batch(i, views, pseudo, "train", self.label[step.unlabelled]), refresh.labelled_weight
        return batch if weight is None else batch._replace(y_weight=weight[e.runtime.put(step.labelled)])


class FinetuneBatches(Batches):
    """The batches of fine-tuning: strong views of D_est with its labels."""

    def requests(self) -> list[list[Request]]:
        """The views of every step."""
        return [[Request("strong", self.rows(step)[0], self.experiment.method.strong)] for step in self.steps]
