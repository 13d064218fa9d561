"""Warm-up and main stage of a linear head on a frozen backbone, each solved as one convex problem instead of by gradient steps.

A row is the mean feature of an image. The main stage has one round: a teacher is solved on the labelled rows, the method's rule
turns its scores into pseudo-labels of the unlabelled rows, and the student is solved on both. `dicap.frozen.loops.recommended` is
the main stage of the recommended rule.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dicap.calibration.thresholds import PseudoLabels
from dicap.data.format import read_groups
from dicap.errors import DataError
from dicap.files.artifacts import CHOICE
from dicap.files.json_files import read_json, write_json
from dicap.frozen.crossfit import Pseudo, solve_students, solve_teachers
from dicap.frozen.folds import FOLDS, deal_folds
from dicap.frozen.inputs import BankFeatures
from dicap.frozen.loss_weight import choose_loss_weight
from dicap.frozen.recommended import PART, Choice, teacher_rows
from dicap.frozen.solver import Solution, rotate, solve
from dicap.methods.base import Phase
from dicap.network.linear import LinearHead, fit_scaling
from dicap.randomness import torch_seed
from dicap.training.experiment import Experiment
from dicap.training.teacher import EpochTeacher
from dicap.training.trainer import Trainer


def warm_up(run: Trainer, network: nn.Module) -> None:
    """Stage 1: logistic regression on the labelled rows; cross-validation chooses the weight of the loss."""
    phase = replace(run.method.warmup(run.experiment.roles), epochs=1)
    fit_scaling(network, run.experiment.training_features())
    problem, loss_weight = Problem.of(run.experiment, network, phase), run.experiment.settings.linear.C
    if loss_weight == "auto":
        fold = folds_of(run.experiment, problem.labelled, problem.y) if len(problem.y) > 1 else problem.fold
        loss_weight = choose_loss_weight(problem.rows[problem.labelled], problem.y, fold)
    record_choice(run, loss_weight)

    student = Students(network)
    run.begin_with(student, {"raw": network}, phase, eval_every=1)
    for _ in run.epochs:
        labelled, known = problem.rows[problem.labelled], problem.y >= 0
        run.checkpoint.row["loss"] = student.set_heads(solve(labelled, problem.y, weight=known, loss_weight=loss_weight))
        run.end_epoch()
    run.publish()


def train(run: Trainer, network: nn.Module) -> None:
    """Stage 2: Algorithm 1, with its fourth step solved to the minimum."""
    phase, linear = replace(run.method.main(run.experiment.roles), epochs=1), run.settings.linear
    problem, loss_weight = Problem.of(run.experiment, network, phase), chosen_loss_weight(run.source)
    students = Students(network)
    run.begin_with(students, {"raw": network}, phase, eval_every=1)
    for _ in run.epochs:
        # (1) - (3) rates, thresholds, pseudo-labels and weights; (4) L = L_sup + L_pseudo at its minimum
        rows = problem.all_rows
        rotated = rotate(rows)
        averages = teacher_rows(rows, linear.neighbours, rotated)
        teachers = solve_teachers(averages, problem.y, problem.fold, loss_weight=loss_weight)
        teacher = HeadTeacher(problem, network, teachers.scores())
        with run.meter.timing("refresh"):
            refresh = run.record_refresh(run.method.refresh(teacher, run.experiment.roles))
        weight = PART if linear.pseudo_weight == "auto" else linear.pseudo_weight
        options = {"loss_weight": loss_weight, "pseudo_weight": weight}
        heads = solve_students(rotated, problem.y, problem.fold, [entries(refresh.pseudo, len(problem.y))], **options)
        record_choice(run, loss_weight)
        run.checkpoint.row["loss"] = students.set_heads(heads)
        run.end_epoch()
    run.publish()


def chosen_loss_weight(source: Path | None) -> float:
    """The weight of the loss that the warm-up chose, read from its folder."""
    assert source is not None, "the main stage follows a warm-up"
    return float(read_json(source / CHOICE)["C"])


def record_choice(run: Trainer, loss_weight: float, choice: Choice | None = None) -> None:
    """Write the chosen linear.C and, if it was chosen, the share of the students, beside the model."""
    facts = {} if choice is None else choice._asdict() | {"unlabelled": choice.in_words()}
    write_json({"C": loss_weight} | facts, run.state.products / CHOICE)


def folds_of(experiment: Experiment, labelled: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A fold for each labelled row, (n_l,), independent of the order of the images; all images of a group are in one fold.

    Raises:
        DataError: all labelled images are of one group.
    """
    groups, seed = read_groups(experiment.folder), torch_seed(experiment.settings.seed, "folds", 0) % 2**32
    groups = None if groups is None else groups[labelled]
    rank = np.unique(experiment.store.ids[labelled].astype(str), return_inverse=True)[1]
    try:
        return deal_folds(rank, y, FOLDS, seed, groups)
    except ValueError as error:
        raise DataError(f"{experiment.folder}: {error}; label images of another group") from None


@dataclass(frozen=True)
class Problem:
    """The rows, labels and folds of a stage.

    Attributes:
        rows: (N, D) float32 features of all images, scaled by the head.
        labelled, unlabelled: rows of the phase, (n_l,) and (n_u,).
        y: (n_l, C) float32 labels, -1 if unknown.
        fold: (n_l,) fold of each labelled image; -1 without cross-fitting.
    """

    experiment: Experiment
    rows: np.ndarray
    labelled: np.ndarray
    unlabelled: np.ndarray
    y: np.ndarray
    fold: np.ndarray

    @staticmethod
    def of(experiment: Experiment, network: nn.Module, phase: Phase) -> "Problem":
        """The problem of a phase on the features of the frozen backbone."""
        inputs = experiment.inputs
        assert isinstance(inputs, BankFeatures) and isinstance(network.head, LinearHead)
        with torch.inference_mode():
            features = torch.from_numpy(inputs.mean(np.arange(experiment.store.n)))
            rows = network.head.scaling(features.to(experiment.runtime.device)).cpu().numpy()
        y = experiment.labels.of(phase.labelled).numpy().astype(np.float32)
        fold = folds_of(experiment, phase.labelled, y) if experiment.settings.recommends else np.full(len(y), -1)
        return Problem(experiment, rows, phase.labelled, phase.unlabelled, y, fold)

    @property
    def order(self) -> np.ndarray:
        """Rows of the labelled images, then of the unlabelled images, (n_l + n_u,)."""
        return np.concatenate([self.labelled, self.unlabelled])

    @property
    def all_rows(self) -> np.ndarray:
        """Features (n_l + n_u, D) of the labelled images, then of the unlabelled images."""
        return self.rows[self.order]


class Students:
    """The solved heads of a stage; the network gets the last of them."""

    def __init__(self, network: nn.Module) -> None:
        assert isinstance(network.head, LinearHead)
        self.head = network.head
        self.heads: Solution | None = None

    def set_heads(self, heads: Solution) -> float:
        """Keep the heads and copy the last into the network; returns its minimised objective, averaged over classes."""
        self.heads, linear = heads, self.head.linear
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(heads.w[-1]))
            linear.bias.copy_(torch.from_numpy(heads.b[-1]))
        return float(heads.objective[-1].mean())

    def state_dict(self) -> dict[str, Any]:
        """The tensors of all heads."""
        return {} if self.heads is None else {name: torch.as_tensor(value) for name, value in self.heads._asdict().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the heads that `state_dict` returned."""
        if state:
            self.set_heads(Solution(**{name: value.numpy() for name, value in state.items()}))


class HeadTeacher(EpochTeacher):
    """A teacher with a table of scores (n_l + n_u, C), labelled rows first; it runs no network."""

    def __init__(self, problem: Problem, network: nn.Module, table: np.ndarray) -> None:
        super().__init__(problem.experiment, network, network, epoch=0, carry={})
        self.problem, self.table = problem, table

    def scores(self, rows: np.ndarray, *, view: str = "auto", mode: str = "eval") -> Tensor:
        """(n, C) float32 scores of rows of the phase; a solved head has one view per image, and no train mode."""
        index = np.full(self.experiment.store.n, -1)
        index[self.problem.order] = np.arange(len(self.table))
        assert (index[rows] >= 0).all(), "a row is not in this phase"
        return torch.from_numpy(self.table[index[rows]]).to(self.experiment.runtime.device)


def entries(pseudo: PseudoLabels, labelled: int) -> Pseudo:
    """Targets and weights (n, C) float32 of pseudo-labels, after this number of labelled rows; uncertain entries have weight 0.

    A soft target mixes the label, by its weight w, with the opposite label, by 1 - w (docs/methods.md 3.10).
    """
    label, weight = pseudo.label.cpu().numpy(), pseudo.weight.cpu().numpy().astype(np.float32)
    target, used = (label == 1).astype(np.float32), weight * (label >= 0)
    if pseudo.soft:
        target, used = np.where(label == 1, weight, 1 - weight), (label >= 0).astype(np.float32)
    zeros = np.zeros((labelled, label.shape[1]), np.float32)
    return Pseudo(np.concatenate([zeros, target]), np.concatenate([zeros, used]))
