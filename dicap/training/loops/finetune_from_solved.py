"""Main stage from a solved head to the whole network: linear probing, then fine-tuning (Kumar et al., ICLR 2022).

K networks for cross-fitting are too dear, K heads on the frozen backbone are not. So the main stage of the frozen backbone is
solved first: correctness is counted out of fold on its features, and no label is withheld. Its labels, weights and head are
what the whole network goes on from, by gradient steps on views of the images. The curve that a published model carries was
counted out of fold on the frozen features and is carried over on the unlabelled images.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import nn

from dicap.linear.choice import PART, Choice
from dicap.methods.base import Phase, Refresh
from dicap.network import attach_backbone
from dicap.randomness import permutation
from dicap.training.decisions import CurveSource
from dicap.training.experiment import Experiment
from dicap.training.loops import solved as convex
from dicap.training.loops.main import learn
from dicap.training.loops.solved import Problem, Students
from dicap.training.trainer import Trainer

MOST_CARRIED = 512  # images on which the curve is carried over: each is scored by the whole network


def train(run: Trainer, network: nn.Module) -> None:
    """Steps 1 to 3 of Algorithm 1 once, on features and out of fold; its fourth step for the whole network."""
    phase = run.method.main(run.experiment.roles)
    solution = solve_frozen(run.experiment, network, phase, run.source)
    convex.record_choice(run, solution.l2, solution.choice)
    learn(run, network, phase, lambda _: solution.refresh, pseudo_weight=solution.pseudo_weight)
    run.publish(solution.before)


def first_refresh(experiment: Experiment, network: nn.Module, folder: Path, source: Path | None = None) -> dict[str, float]:
    """The pseudo-labels that `train` is going to make, recorded under `folder`; returns the shares of the labels."""
    return convex.first_refresh(experiment.on_bank(), network, folder, source)


@dataclass(frozen=True)
class Frozen:
    """The main stage of the frozen backbone.

    Attributes:
        refresh: its pseudo-labels.
        before: what its heads say out of fold, and its student of the unlabelled images.
        l2, choice: its penalty, and how much of the unlabelled images it used where that was chosen.
        pseudo_weight: what a pseudo-labelled image counted for in it beside a labelled one.
    """

    refresh: Refresh
    before: CurveSource
    l2: float
    choice: Choice | None
    pseudo_weight: float


def solve_frozen(experiment: Experiment, network: nn.Module, phase: Phase, source: Path | None) -> Frozen:
    """Solve the main stage on the features of the backbone; the network's head is then its student's, in place."""
    on_bank = experiment.on_bank()
    problem = Problem.of(on_bank, network.to(experiment.runtime.device), phase)
    students, l2 = Students(network), convex.penalty(source)
    refresh, solution, choice = problem.crossfit(l2, lambda teacher: experiment.method.refresh(teacher, experiment.roles))
    students.set_solution(solution)
    curve = students.curve_out_of_fold(problem)
    assert curve is not None, "only with cross-fitting"
    rows = phase.unlabelled
    if len(rows) > MOST_CARRIED:
        rows = np.sort(rows[permutation(experiment.settings.seed, "train", 0, len(rows), "carried")[:MOST_CARRIED]])
    scores = on_bank.predict(on_bank.place(network), rows).cpu()
    attach_backbone(network)
    network.grid = None  # type: ignore[assignment]  # the whole network learns from whole maps
    given = experiment.settings.linear.pseudo_weight
    weight = given if given != "auto" else PART * choice.share if choice else PART
    return Frozen(refresh, curve.carried_over(rows, scores, "on the frozen backbone"), l2, choice, weight)
