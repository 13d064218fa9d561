"""Warm-up and main stage of a linear head on a frozen backbone: what is a pass of gradient steps elsewhere is one convex problem.

Rows are the mean features of an image and its mirror image, standardised by all training images. With cross-fitting there are
K + 1 heads, solved at once: head k never sees fold k of the labelled images and labels the unlabelled ones for itself; the
student learns from all labelled images and from the heads' mean, with correctness counted on the out-of-fold scores.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from dicap.artifacts import replacing
from dicap.calibration import PseudoLabels
from dicap.curve import curve_by_rank
from dicap.errors import DataError
from dicap.linear.folds import assign_folds, left_out, of_own_head
from dicap.linear.selection import choose_l2
from dicap.linear.solver import Solution, solve, turn
from dicap.linear.standard import Standard, standard_of
from dicap.methods.base import Calibrates, HiddenLabels, Phase, Roles
from dicap.network.linear import LinearHead
from dicap.randomness import torch_seed
from dicap.training.decisions import Counted
from dicap.training.experiment import Experiment
from dicap.training.inputs import BankFeatures
from dicap.training.records import record_first
from dicap.training.trainer import Trainer

HEADS = "heads.safetensors"
L2_FOLDS = 5  # of the cross-validation that chooses the penalty


def warm_up(run: Trainer, network: nn.Module) -> None:
    """Stage 1: logistic regression on the labelled rows, the penalty by cross-validation."""
    phase = run.method.warmup(run.experiment.roles)
    heads = Heads.new(run.experiment, network, phase.labelled)
    run.begin_with(heads, {"raw": network}, replace(phase, epochs=1), eval_every=1)
    for _ in run.epochs():
        run.log(loss=heads.fit(phase, None))
    heads.save(run.state.products)
    run.publish(heads.counted())


def train(run: Trainer, network: nn.Module) -> None:
    """Stage 2, Algorithm 1: every round counts correctness anew, labels D_unsup by it, and solves for the heads again."""
    method, roles = run.method, run.experiment.roles
    phase = replace(method.main(roles), epochs=run.settings.linear.rounds)
    heads = Heads.load(run.experiment, network, phase.labelled, run.source)  # type: ignore[arg-type]
    run.begin_with(heads, {"raw": network}, phase, eval_every=run.settings.train.eval_every)
    for epoch in run.epochs():
        # (1) - (3) rates, thresholds, pseudo-labels and weights: for the student, and by each fold's head for itself
        refresh = run.refresh(lambda teacher: method.refresh(teacher, roles), teacher=heads.teacher(epoch))
        of_folds = [method.refresh(heads.teacher(epoch, k), heads.roles_without(k)).pseudo for k in range(heads.folds)]
        # (4) L = L_sup + L_pseudo at its minimum, for all heads at once
        run.log(loss=heads.fit(phase, [*of_folds, refresh.pseudo]))
    heads.save(run.state.products)
    run.publish(heads.counted())


def first_refresh(experiment: Experiment, network: nn.Module, folder: Path, source: Path | None = None) -> dict[str, float]:
    """What `train` would make of its first round, recorded under `folder`; returns the shares of the labels."""
    phase = experiment.method.main(experiment.roles)
    assert source is not None
    heads = Heads.load(experiment, experiment.place(network), phase.labelled, source)
    return record_first(experiment, experiment.method.refresh(heads.teacher(0), experiment.roles), phase, folder)


@dataclass
class Heads:
    """K fold heads and the student's, the last; without cross-fitting the student's alone.

    Attributes:
        rows: (N, D) standardised features of all images; standard: how they were.
        fold: (n,) of each labelled image, in the order of `labelled`; -1 without cross-fitting.
        l2: the penalty (scikit-learn's C) of labelled rows.
        solution: H = K + 1 heads over C classes.
    """

    experiment: Experiment
    linear: nn.Linear
    rows: np.ndarray
    standard: Standard
    labelled: np.ndarray
    fold: np.ndarray
    l2: float
    solution: Solution | None = None

    # -- begin

    @staticmethod
    def new(
        experiment: Experiment,
        network: nn.Module,
        labelled: np.ndarray,
        *,
        l2: float | None = None,
        fold: np.ndarray | None = None,
    ) -> "Heads":
        """Heads before their first fit: standardisation, folds and the penalty depend on features and labels alone."""
        s, inputs = experiment.settings, experiment.inputs
        assert isinstance(inputs, BankFeatures) and isinstance(network.head, LinearHead)
        rows, roles = inputs.mean(np.arange(experiment.store.n)), experiment.roles
        training = np.sort(np.concatenate([roles.labelled, roles.validation, roles.unlabeled]))
        standard = standard_of(rows[training])
        rows = standard.apply(rows)
        y = experiment.labels.of(labelled).numpy().astype(np.float32)
        cross_fit = s.calibration.source == "cross_fit" and isinstance(experiment.method, Calibrates)
        seed = torch_seed(s.seed, "folds", 0) % 2**32
        if fold is None:
            fold = assign_folds(y, s.calibration.folds, seed) if cross_fit else np.full(len(y), -1)
        if l2 is None and s.linear.l2 != "auto":
            l2 = s.linear.l2
        if l2 is None:
            folds = fold if cross_fit else assign_folds(y, min(L2_FOLDS, len(y)), seed)
            l2 = choose_l2(rows[labelled], y, folds).l2
        return Heads(experiment, network.head.linear, rows, standard, labelled, fold, l2)

    @property
    def folds(self) -> int:
        """K; 0 without cross-fitting."""
        return int(self.fold.max(initial=-1)) + 1

    # -- fit

    def fit(self, phase: Phase, pseudo: list[PseudoLabels] | None) -> float:
        """Solve for all heads and put the student's into the network; returns the student's mean objective.

        Args:
            pseudo: of `phase.unlabelled`, for each head; None: labelled rows alone.
        """
        y = self.experiment.labels.of(self.labelled).numpy().astype(np.float32)  # (n_l, C)
        heads = self.folds + 1
        seen = np.ones((heads, len(y), 1), np.float32)
        if self.folds:
            seen[:-1] = left_out(self.fold, self.folds)
        rows, target = self.rows[self.labelled], np.broadcast_to(y, (heads, *y.shape))
        weight = np.broadcast_to(seen, target.shape)
        if pseudo is not None:
            rows = np.concatenate([rows, self.rows[phase.unlabelled]])
            made = [entries(part) for part in pseudo]
            share = self.experiment.settings.linear.pseudo_weight
            target = np.concatenate([target, np.stack([t for t, _ in made])], axis=1)
            weight = np.concatenate([weight, share * np.stack([w for _, w in made])], axis=1)
        self.solution = solve(turn(rows), target, weight=weight, l2=self.l2, start=self.solution)
        self._put()
        return float(self.solution.objective[-1].mean())

    def _put(self) -> None:
        """The student's head in the coordinates of features that are not standardised."""
        assert self.solution is not None
        w, b = self.solution.w[-1], self.solution.b[-1]  # (C, D), (C,)
        w = w / self.standard.scale
        with torch.no_grad():
            self.linear.weight.copy_(torch.from_numpy(w))
            self.linear.bias.copy_(torch.from_numpy(b - w @ self.standard.mean))

    # -- scores

    def scores(self, rows: np.ndarray, head: int | None = None) -> np.ndarray:
        """Chances (n, C) float32 by a fold's head, or for the student's pseudo-labels by the mean of the folds' heads."""
        assert self.solution is not None
        chance = 1 / (1 + np.exp(-self.solution.logits(self.rows[rows])))  # (H, n, C)
        if head is not None:
            return chance[head]
        return chance[: self.folds].mean(0) if self.folds else chance[-1]

    def out_of_fold(self) -> np.ndarray:
        """Chances (n_l, C) of the labelled images, each by the head that never saw it."""
        assert self.solution is not None
        logits = self.solution.logits(self.rows[self.labelled])[: self.folds]
        return 1 / (1 + np.exp(-of_own_head(logits, self.fold)))

    def counted(self) -> Counted | None:
        """The measured chance of the published model, from the out-of-fold scores."""
        if not self.folds:
            return None
        p, y = torch.from_numpy(self.out_of_fold()), self.experiment.labels.of(self.labelled)
        return Counted(curve_by_rank(p, y), p, y)

    def teacher(self, epoch: int, head: int | None = None) -> "HeadTeacher":
        """Who labels the unlabelled images: a fold's head for itself, or the heads' mean for the student."""
        return HeadTeacher(self, epoch, head)

    def roles_without(self, fold: int) -> Roles:
        """The roles as head `fold` may know them: its fold is no labelled image."""
        roles, keep = self.experiment.roles, self.labelled[self.fold != fold]
        return Roles(keep, roles.est[:0], roles.unlabeled, roles.test, roles.validation)

    # -- state, and what is handed to the next stage

    def state_dict(self) -> dict[str, Any]:
        """The solution, as tensors; nothing before the first fit."""
        if self.solution is None:
            return {}
        return {name: torch.from_numpy(np.ascontiguousarray(getattr(self.solution, name))) for name in ("w", "b")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        if state:
            w, b = state["w"].numpy(), state["b"].numpy()
            self.solution = Solution(w, b, np.zeros(b.shape), np.zeros(b.shape), 0)
            self._put()

    def save(self, folder: Path) -> None:
        """`<folder>/heads.safetensors`: all heads, the penalty, and the fold of each labelled image."""
        extra = {"fold": torch.from_numpy(self.fold), "l2": torch.tensor(self.l2, dtype=torch.float64)}
        with replacing(folder / HEADS) as temporary:
            save_file(self.state_dict() | extra, temporary)

    @staticmethod
    def load(experiment: Experiment, network: nn.Module, labelled: np.ndarray, folder: Path) -> "Heads":
        """The heads of the stage before. Raises DataError if they are missing or of other labelled images."""
        path = folder / HEADS
        try:
            state = load_file(path)
        except (OSError, SafetensorError):
            raise DataError(f"{path}: missing or damaged; run `dvc repro warmup`") from None
        heads = Heads.new(experiment, network, labelled, l2=float(state["l2"]), fold=state["fold"].numpy())
        heads.load_state_dict(state)
        return heads


@dataclass(frozen=True)
class HeadTeacher:
    """See `dicap.methods.base.Teacher`.

    A fold's head scores every image itself. For the student, labelled images have their out-of-fold scores, so that what is
    counted on them holds for images that no head has seen.
    """

    heads: Heads
    epoch: int
    head: int | None

    @property
    def carry(self) -> dict[str, Tensor]:
        """Nothing is remembered."""
        return {}

    @property
    def oracle(self) -> HiddenLabels | None:
        """Hidden labels, where an option is named after reading them."""
        return self.heads.experiment.oracle

    def scores(self, rows: np.ndarray) -> Tensor:
        """(n, C) float32 scores."""
        scores = self.heads.scores(rows, self.head)
        if self.head is None and self.heads.folds:
            place = {row: i for i, row in enumerate(self.heads.labelled.tolist())}
            seen = np.flatnonzero(np.isin(rows, self.heads.labelled))
            if len(seen):
                scores[seen] = self.heads.out_of_fold()[[place[row] for row in rows[seen].tolist()]]
        return torch.from_numpy(scores.astype(np.float32))

    def outputs(self, rows: np.ndarray, function: Callable[[nn.Module, Tensor], Tensor], *, online: bool = False) -> Tensor:
        """No network is asked here."""
        raise NotImplementedError("a solved head has scores alone")

    def labels(self, rows: np.ndarray) -> Tensor:
        """(n, C) uint8 labels of D_l."""
        return self.heads.experiment.labels.of(rows)


def entries(pseudo: PseudoLabels) -> tuple[np.ndarray, np.ndarray]:
    """Targets and weights (n, C) float32 of pseudo-labels; an uncertain entry has weight 0.

    A soft target is the label with its weight and the opposite label with the rest (docs/methods.md 3.10).
    """
    label, weight = pseudo.label.numpy(), pseudo.weight.numpy().astype(np.float32)
    target = (label == 1).astype(np.float32)
    if pseudo.soft:
        return np.where(label == 1, weight, 1 - weight), (label >= 0).astype(np.float32)
    return target, weight * (label >= 0)
