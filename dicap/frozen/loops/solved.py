"""Warm-up and main stage of a linear head on a frozen backbone: what is a pass of gradient steps elsewhere is one convex problem.

A row is the mean feature of an image. The main stage has one round: teachers are solved on the labelled
rows, they label the unlabelled ones, and the student is solved on both. With cross-fitting there are K fold students beside the
student, in the same solve; nothing that reaches student k depends on a label of fold k, but for what all heads share, the
weight of the loss and what `dicap.frozen.choice` chooses, so its scores of that fold measure how often a confidence is
right. The arrays' part of it is in `dicap.frozen`; here are the experiment, the method and what is written.
"""

from collections.abc import Callable
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
from dicap.frozen.choice import Choice
from dicap.frozen.crossfit import Fit, Pseudo, crossfit, solve_teachers
from dicap.frozen.folds import deal_folds, n_folds, rank_of_names
from dicap.frozen.inputs import BankFeatures
from dicap.frozen.loss_weight import FOLDS, choose_loss_weight
from dicap.frozen.neighbours import in_metric_of_views
from dicap.frozen.solver import Solution, solve
from dicap.methods.base import Calibrates, HiddenLabels, Phase, Refresh, Roles, Teacher
from dicap.network.linear import LinearHead, fit_scaling
from dicap.randomness import torch_seed
from dicap.training.decisions import CurveSource
from dicap.training.experiment import Experiment
from dicap.training.records import record_first
from dicap.training.trainer import Trainer


def warm_up(run: Trainer, network: nn.Module) -> None:
    """Stage 1: logistic regression on the labelled rows, the weight of the loss by cross-validation."""
    phase = replace(run.method.warmup(run.experiment.roles), epochs=1)
    fit_scaling(network, run.experiment.training_features())
    problem, loss_weight = Problem.of(run.experiment, network, phase), run.experiment.settings.linear.C
    if loss_weight == "auto":
        fold = folds_of(run.experiment, problem.labelled, problem.y, FOLDS) if len(problem.y) > 1 else None
        loss_weight = choose_loss_weight(problem.rows[problem.labelled], problem.y, fold)
    record_choice(run, loss_weight)

    student = Students(network)
    run.begin_with(student, {"raw": network}, phase, eval_every=1)
    for _ in run.epochs:
        labelled, weight = problem.rows[problem.labelled], problem.label_mask
        run.checkpoint.row["loss"] = student.set_fit(Fit(solve(labelled, problem.y, weight=weight, loss_weight=loss_weight)))
        run.end_epoch()
    run.publish()


def train(run: Trainer, network: nn.Module) -> None:
    """Stage 2, Algorithm 1 with its fourth step at the minimum."""
    phase = replace(run.method.main(run.experiment.roles), epochs=1)
    problem, loss_weight = Problem.of(run.experiment, network, phase), chosen_loss_weight(run.source)

    def make_labels(teacher: Teacher) -> Refresh:
        with run.meter.timing("refresh"):
            return run.record_refresh(run.method.refresh(teacher, run.experiment.roles))

    students = Students(network)
    run.begin_with(students, {"raw": network}, phase, eval_every=1)
    for _ in run.epochs:
        # (1) - (3) rates, thresholds, pseudo-labels and weights: for each student; (4) L = L_sup + L_pseudo at its minimum
        _, found = problem.crossfit(loss_weight, make_labels)
        record_choice(run, loss_weight, found.choice)
        run.checkpoint.row["loss"] = students.set_fit(found)
        run.end_epoch()
    run.publish(students.curve_out_of_fold(problem))


def first_refresh(experiment: Experiment, network: nn.Module, folder: Path, source: Path | None = None) -> dict[str, float]:
    """The pseudo-labels that `train` is going to make, recorded under `folder`; returns the shares of the labels."""
    phase, experiment = experiment.method.main(experiment.roles), experiment.on_bank()
    problem = Problem.of(experiment, experiment.place(network), phase)
    near = None if problem.views is None else in_metric_of_views(problem.all_rows, problem.views)
    options = {"loss_weight": chosen_loss_weight(source), "neighbours": experiment.settings.linear.neighbours, "near": near}
    # Those of the fold students too, as in `train`: by fewer products at once the last digits would be others.
    teacher = HeadTeacher(problem, solve_teachers(problem.all_rows, problem.y, problem.fold, **options).scores())
    return record_first(experiment, experiment.method.refresh(teacher, experiment.roles), phase, folder)


def chosen_loss_weight(source: Path | None) -> float:
    """The weight of the loss that the warm-up chose and left in its folder."""
    assert source is not None, "the main stage follows a warm-up"
    return float(read_json(source / CHOICE)["C"])


def record_choice(run: Trainer, loss_weight: float, choice: Choice | None = None) -> None:
    """Write linear.C and, where that was chosen, how much of the unlabelled images is used, beside the model."""
    used = {} if choice is None else choice.to_dict() | {"unlabelled": choice.in_words()}
    write_json({"C": loss_weight} | used, run.state.products / CHOICE)


def folds_of(experiment: Experiment, labelled: np.ndarray, y: np.ndarray, folds: int) -> np.ndarray:
    """A fold for each labelled row, (n_l,), that follows the images, not their order; a group of images is in one fold.

    Raises:
        DataError: all labelled images are of one group.
    """
    groups, seed = read_groups(experiment.folder), torch_seed(experiment.settings.seed, "folds", 0) % 2**32
    of = None if groups is None else groups[labelled]
    try:
        return deal_folds(rank_of_names(experiment.store.ids[labelled].astype(str)), y, folds, seed, of)
    except ValueError as error:
        raise DataError(f"{experiment.folder}: {error}; label images of another group") from None


@dataclass(frozen=True)
class Problem:
    """The rows of a stage and what is known of them.

    Attributes:
        rows: (N, D) float32 of all images, as the head scales them.
        views: (m, D) those of the images with a strong view, less this view; None where neighbours are not looked for by views.
        labelled, unlabelled: rows of the phase, (n_l,) and (n_u,).
        y: (n_l, C) float32 labels, -1 where unknown.
        fold: (n_l,) fold of each labelled image; -1 without cross-fitting.
    """

    experiment: Experiment
    rows: np.ndarray
    views: np.ndarray | None
    labelled: np.ndarray
    unlabelled: np.ndarray
    y: np.ndarray
    fold: np.ndarray

    @staticmethod
    def of(experiment: Experiment, network: nn.Module, phase: Phase) -> "Problem":
        """The problem of a phase on the features of the frozen backbone."""
        s, inputs = experiment.settings.calibration, experiment.inputs
        assert isinstance(inputs, BankFeatures) and isinstance(network.head, LinearHead)
        scaling, views = network.head.scaling, None

        def scaled(x: np.ndarray) -> np.ndarray:
            with torch.inference_mode():
                return scaling(torch.from_numpy(x).to(experiment.runtime.device)).cpu().numpy()

        rows = scaled(inputs.mean(np.arange(experiment.store.n)))
        if inputs.bank.views and experiment.settings.linear.neighbours:
            viewed, seen = inputs.strong(np.union1d(phase.labelled, phase.unlabelled))  # no copy among the test images
            views = rows[viewed] - scaled(seen)
        y = experiment.labels.of(phase.labelled).numpy().astype(np.float32)
        cross_fits = s.source == "cross_fit" and isinstance(experiment.method, Calibrates)
        fold = folds_of(experiment, phase.labelled, y, s.folds) if cross_fits else np.full(len(y), -1)
        return Problem(experiment, rows, views, phase.labelled, phase.unlabelled, y, fold)

    @property
    def label_mask(self) -> np.ndarray:
        """(n_l, C) float32 weight of the labelled entries: 1, and 0 where the label is unknown."""
        return (self.y >= 0).astype(np.float32)

    @property
    def order(self) -> np.ndarray:
        """(n_l + n_u,) the labelled images, then the unlabelled ones."""
        return np.concatenate([self.labelled, self.unlabelled])

    @property
    def all_rows(self) -> np.ndarray:
        """Rows (n_l + n_u, D) of the labelled images, then of the unlabelled ones."""
        return self.rows[self.order]

    def roles_without(self, fold: int) -> Roles:
        """The roles as the student of a fold may know them: its fold is no labelled image."""
        roles = self.experiment.roles
        return Roles(self.labelled[self.fold != fold], roles.est[:0], roles.unlabeled, roles.test)

    def crossfit(self, loss_weight: float, refresh: Callable[[Teacher], Refresh]) -> tuple[Refresh, Fit]:
        """What the student learns from; the fold students and, last, the student, and what was chosen.

        Args:
            refresh: makes the pseudo-labels of the student; those of the fold students are the method's, without their fold.
        """
        made: list[Refresh] = []

        def rule(scores: np.ndarray, _: np.ndarray, fold: int | None) -> Pseudo:
            teacher = HeadTeacher(self, scores)
            made.append(refresh(teacher) if fold is None else self.experiment.method.refresh(teacher, self.roles_without(fold)))
            return entries(made[-1].pseudo)

        s = self.experiment.settings.linear
        options = {"loss_weight": loss_weight, "pseudo_weight": s.pseudo_weight, "neighbours": s.neighbours}
        found = crossfit(self.all_rows, self.y, self.fold, rule, views=self.views, **options)
        return made[-1], found


class Students:
    """What a stage has solved: the last of its heads is the network's."""

    def __init__(self, network: nn.Module) -> None:
        assert isinstance(network.head, LinearHead)
        self.head = network.head
        self.fit: Fit | None = None

    def set_fit(self, fit: Fit) -> float:
        """Keep what was solved and let the network answer so; the minimised value of the last head, mean over classes."""
        self.fit, linear = fit, self.head.linear
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(fit.heads.w[-1]))
            linear.bias.copy_(torch.from_numpy(fit.heads.b[-1]))
        return float(fit.heads.objective[-1].mean())

    def curve_out_of_fold(self, problem: Problem) -> CurveSource | None:
        """What the fold students' scores of their own folds say of a confidence; None without cross-fitting."""
        if not n_folds(problem.fold):
            return None
        assert self.fit is not None, "nothing was solved yet"
        p, ranked = map(torch.from_numpy, self.fit.out_of_fold(problem.all_rows, problem.fold))
        return CurveSource.out_of_fold(p, torch.from_numpy(problem.y), ranked)

    def state_dict(self) -> dict[str, Any]:
        """All heads."""
        return {} if self.fit is None else {name: torch.as_tensor(value) for name, value in self.fit.heads._asdict().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        if state:
            self.set_fit(Fit(Solution(**{name: value.numpy() for name, value in state.items()})))


@dataclass(frozen=True)
class HeadTeacher:
    """See `dicap.methods.base.Teacher`: scores (n_l + n_u, C) of the labelled rows, then the unlabelled ones."""

    problem: Problem
    table: np.ndarray
    epoch: int = 0

    @property
    def carry(self) -> dict[str, Tensor]:
        """Nothing is remembered."""
        return {}

    @property
    def oracle(self) -> HiddenLabels | None:
        """Hidden labels, where an option is named after reading them."""
        return self.problem.experiment.oracle

    def scores(self, rows: np.ndarray, *, view: str = "auto", mode: str = "eval") -> Tensor:
        """(n, C) float32 scores of rows of the phase; a solved head has one view of an image, and no train mode."""
        place = np.full(self.problem.experiment.store.n, -1)
        place[self.problem.order] = np.arange(len(self.table))
        assert (place[rows] >= 0).all(), "neither labelled nor unlabelled in this phase"
        return torch.from_numpy(self.table[place[rows]])

    def outputs(self, rows: np.ndarray, function: Callable[[nn.Module, Tensor], Tensor], *, online: bool = False) -> Tensor:
        """No network is asked here."""
        raise NotImplementedError("a solved head has scores alone")

    def labels(self, rows: np.ndarray) -> Tensor:
        """(n, C) labels of D_l, -1 where unknown."""
        return self.problem.experiment.labels.of(rows)


def entries(pseudo: PseudoLabels) -> Pseudo:
    """Targets and weights (n, C) float32 of pseudo-labels; an uncertain entry has weight 0.

    A soft target is the label with its weight and the opposite label with the rest (docs/methods.md 3.10).
    """
    label, weight = pseudo.label.cpu().numpy(), pseudo.weight.cpu().numpy().astype(np.float32)
    if pseudo.soft:
        return Pseudo(np.where(label == 1, weight, 1 - weight), (label >= 0).astype(np.float32))
    return Pseudo((label == 1).astype(np.float32), weight * (label >= 0))
