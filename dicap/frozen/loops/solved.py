"""Warm-up and main stage of a linear head on a frozen backbone: what is a pass of gradient steps elsewhere is one convex problem.

A row is the mean feature of an image. The main stage has one round: teachers are solved on the labelled
rows, they label the unlabelled ones by the method's own rule, and the student is solved on both. That of the recommended rule is
in `dicap.frozen.loops.recommended`.
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
    """Stage 1: logistic regression on the labelled rows, the weight of the loss by cross-validation."""
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
    """Stage 2, Algorithm 1 with its fourth step at the minimum."""
    phase, linear = replace(run.method.main(run.experiment.roles), epochs=1), run.settings.linear
    problem, loss_weight = Problem.of(run.experiment, network, phase), chosen_loss_weight(run.source)
    students = Students(network)
    run.begin_with(students, {"raw": network}, phase, eval_every=1)
    for _ in run.epochs:
        # (1) - (3) rates, thresholds, pseudo-labels and weights; (4) L = L_sup + L_pseudo at its minimum
        rows = problem.all_rows
        rotated = rotate(rows)
        near = teacher_rows(rows, linear.neighbours, rotated)
        teachers = solve_teachers(near, problem.y, problem.fold, loss_weight=loss_weight)
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
    """The weight of the loss that the warm-up chose and left in its folder."""
    assert source is not None, "the main stage follows a warm-up"
    return float(read_json(source / CHOICE)["C"])


def record_choice(run: Trainer, loss_weight: float, choice: Choice | None = None) -> None:
    """Write linear.C and, where that was chosen, how much of the students is used, beside the model."""
    used = {} if choice is None else choice._asdict() | {"unlabelled": choice.in_words()}
    write_json({"C": loss_weight} | used, run.state.products / CHOICE)


def folds_of(experiment: Experiment, labelled: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A fold for each labelled row, (n_l,), that follows the images, not their order; a group of images is in one fold.

    Raises:
        DataError: all labelled images are of one group.
    """
    groups, seed = read_groups(experiment.folder), torch_seed(experiment.settings.seed, "folds", 0) % 2**32
    of = None if groups is None else groups[labelled]
    rank = np.unique(experiment.store.ids[labelled].astype(str), return_inverse=True)[1]
    try:
        return deal_folds(rank, y, FOLDS, seed, of)
    except ValueError as error:
        raise DataError(f"{experiment.folder}: {error}; label images of another group") from None


@dataclass(frozen=True)
class Problem:
    """The rows of a stage and what is known of them.

    Attributes:
        rows: (N, D) float32 of all images, as the head scales them.
        labelled, unlabelled: rows of the phase, (n_l,) and (n_u,).
        y: (n_l, C) float32 labels, -1 where unknown.
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
        """(n_l + n_u,) the labelled images, then the unlabelled ones."""
        return np.concatenate([self.labelled, self.unlabelled])

    @property
    def all_rows(self) -> np.ndarray:
        """Rows (n_l + n_u, D) of the labelled images, then of the unlabelled ones."""
        return self.rows[self.order]


class Students:
    """What a stage has solved: the last of its heads is the network's."""

    def __init__(self, network: nn.Module) -> None:
        assert isinstance(network.head, LinearHead)
        self.head = network.head
        self.heads: Solution | None = None

    def set_heads(self, heads: Solution) -> float:
        """Keep what was solved and let the network answer so; the minimised value of the last head, mean over classes."""
        self.heads, linear = heads, self.head.linear
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(heads.w[-1]))
            linear.bias.copy_(torch.from_numpy(heads.b[-1]))
        return float(heads.objective[-1].mean())

    def state_dict(self) -> dict[str, Any]:
        """All heads."""
        return {} if self.heads is None else {name: torch.as_tensor(value) for name, value in self.heads._asdict().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        if state:
            self.set_heads(Solution(**{name: value.numpy() for name, value in state.items()}))


class HeadTeacher(EpochTeacher):
    """Scores (n_l + n_u, C) of the labelled rows, then the unlabelled ones; no network is asked."""

    def __init__(self, problem: Problem, network: nn.Module, table: np.ndarray) -> None:
        super().__init__(problem.experiment, network, network, epoch=0, carry={})
        self.problem, self.table = problem, table

    def scores(self, rows: np.ndarray, *, view: str = "auto", mode: str = "eval") -> Tensor:
        """(n, C) float32 scores of rows of the phase; a solved head has one view of an image, and no train mode."""
        place = np.full(self.experiment.store.n, -1)
        place[self.problem.order] = np.arange(len(self.table))
        assert (place[rows] >= 0).all(), "neither labelled nor unlabelled in this phase"
        return torch.from_numpy(self.table[place[rows]]).to(self.experiment.runtime.device)


def entries(pseudo: PseudoLabels, labelled: int) -> Pseudo:
    """Targets and weights (n, C) float32 of pseudo-labels, behind so many labelled rows; an uncertain entry has weight 0.

    A soft target is the label with its weight and the opposite label with the rest (docs/methods.md 3.10).
    """
    label, weight = pseudo.label.cpu().numpy(), pseudo.weight.cpu().numpy().astype(np.float32)
    target, used = (label == 1).astype(np.float32), weight * (label >= 0)
    if pseudo.soft:
        target, used = np.where(label == 1, weight, 1 - weight), (label >= 0).astype(np.float32)
    none = np.zeros((labelled, label.shape[1]), np.float32)
    return Pseudo(np.concatenate([none, target]), np.concatenate([none, used]))
