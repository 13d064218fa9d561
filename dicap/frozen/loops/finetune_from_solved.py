"""Main stage from a solved head to the whole network: linear probing, then fine-tuning (Kumar et al., ICLR 2022).

K networks for cross-fitting are too dear, K heads on the frozen backbone are not. So the main stage of the frozen backbone is
solved first: correctness is counted out of fold on its features, and no label is withheld. Its labels, weights and head are
what the whole network goes on from, by gradient steps on views of the images. The curve that a published model carries was
counted out of fold on the frozen features and is carried over on the unlabelled images.
"""

from torch import nn

from dicap.frozen.choice import PART
from dicap.frozen.loops import solved as convex
from dicap.frozen.loops.solved import Problem, Students
from dicap.methods.base import Phase, Refresh
from dicap.network import attach_backbone
from dicap.training.decisions import CurveSource, some_of
from dicap.training.loops.main import learn
from dicap.training.trainer import Trainer

MOST_CARRIED = 512  # images on which the curve is carried over: each is scored by the whole network


def train(run: Trainer, network: nn.Module) -> None:
    """Steps 1 to 3 of Algorithm 1 once, on features and out of fold; its fourth step for the whole network."""
    phase = run.method.main(run.experiment.roles)
    refresh, before, pseudo_weight = solve_frozen(run, network, phase)
    learn(run, network, phase, lambda _: refresh, pseudo_weight=pseudo_weight)
    run.publish(before)


def solve_frozen(run: Trainer, network: nn.Module, phase: Phase) -> tuple[Refresh, CurveSource, float]:
    """Solve the main stage on the features of the backbone; the network's head is then its student's, in place.

    Returns:
        its pseudo-labels; what its heads say out of fold, and its student of the unlabelled images; what a pseudo-labelled image
        counted for beside a labelled one.
    """
    experiment, on_bank, loss_weight = run.experiment, run.experiment.on_bank(), convex.chosen_loss_weight(run.source)
    problem = Problem.of(on_bank, network.to(experiment.runtime.device), phase)
    students = Students(network)
    refresh, found = problem.crossfit(loss_weight, lambda teacher: experiment.method.refresh(teacher, experiment.roles))
    convex.record_choice(run, loss_weight, found.choice)
    students.set_fit(found)
    curve = students.curve_out_of_fold(problem)
    assert curve is not None, "only with cross-fitting"
    rows = some_of(phase.unlabelled, MOST_CARRIED, experiment.settings.seed, "train")
    scores = on_bank.predict(on_bank.place(network), rows).cpu()
    attach_backbone(network)
    network.grid = None  # type: ignore[assignment]  # the whole network learns from whole maps
    given = experiment.settings.linear.pseudo_weight
    weight = given if given != "auto" else PART * found.choice.share if found.choice else PART
    return refresh, curve.carried_over(rows, scores, "on the frozen backbone"), weight
