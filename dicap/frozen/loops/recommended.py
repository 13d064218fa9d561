"""Main stage of `protocol: recommended`: the rule on features of a frozen backbone, and then optionally the whole network.

The whole network follows linear probing, then fine-tuning (Kumar et al., ICLR 2022). Cross-fitting with K heads on a frozen
backbone is cheap, cross-fitting with K networks is not. So the main stage is solved on the frozen backbone first, on all labels.
The whole network starts from the solved head, and trains on the pseudo-labels and weights by gradient steps on views of the
images. Its evidence is the out-of-fold scores on the frozen features, carried over on unlabelled images.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from dicap.calibration.evidence import Evidence, labels_of
from dicap.calibration.quota import quota_of
from dicap.calibration.ranks import Curve
from dicap.calibration.rates import Rates, bin_index, count_bins, estimate_rates
from dicap.calibration.thresholds import PseudoLabels
from dicap.frozen import recommended
from dicap.frozen.crossfit import scores_out_of_fold
from dicap.frozen.loops.solved import Problem, Students, chosen_loss_weight, record_choice
from dicap.frozen.recommended import PART, Fit, Labels
from dicap.frozen.solver import Solution
from dicap.methods.base import Method, Refresh
from dicap.methods.rules import thresholds_of
from dicap.network import attach_backbone
from dicap.training.evidence import carried_over, prior_of, published_thresholds
from dicap.training.loops.main import learn
from dicap.training.trainer import Trainer

MOST_CARRIED = 512  # images whose ranks map the scores; the whole network scores each of them


class Recommended(Method):
    """The recommended rule as a method: it trains on all labels, and the loops of this module make its pseudo-labels."""


def train(run: Trainer, network: nn.Module) -> None:
    """The main stage on the frozen backbone: the rule, as one epoch."""
    phase = replace(run.method.main(run.experiment.roles), epochs=1)
    problem, loss_weight = Problem.of(run.experiment, network, phase), chosen_loss_weight(run.source)
    students = Students(network)
    run.begin_with(students, {"raw": network}, phase, eval_every=1)
    for _ in run.epochs:
        fit = fit_problem(problem, loss_weight)
        with run.meter.timing("refresh"):
            run.record_refresh(refresh_of(problem, fit.labels))
        record_choice(run, loss_weight, fit.choice)
        run.checkpoint.row["loss"] = students.set_heads(fit.heads)
        run.end_epoch()
    assert students.heads is not None
    evidence = evidence_out_of_fold(problem, students.heads)
    run.publish(lambda _: evidence)


def train_whole(run: Trainer, network: nn.Module) -> None:
    """The rule on the frozen features, then gradient steps of the whole network on its pseudo-labels and weights."""
    experiment, phase, loss_weight = run.experiment, run.method.main(run.experiment.roles), chosen_loss_weight(run.source)
    on_bank = experiment.on_bank()
    problem = Problem.of(on_bank, network.to(experiment.runtime.device), phase)
    fit = fit_problem(problem, loss_weight)
    record_choice(run, loss_weight, fit.choice)
    Students(network).set_heads(fit.heads)
    evidence, head = evidence_out_of_fold(problem, fit.heads), on_bank.place(network)
    onto = carried_over(evidence, on_bank, head, stage="train", where="on the frozen backbone", most=MOST_CARRIED)
    attach_backbone(network)
    network.grid = None  # type: ignore[assignment]  # the whole network learns from whole maps

    setting, refresh = run.settings.linear.pseudo_weight, refresh_of(problem, fit.labels)
    weight = setting if setting != "auto" else PART * fit.choice.share if fit.choice else PART
    learn(run, network, phase, lambda _: refresh, pseudo_weight=weight)
    run.publish(lambda whole: onto(experiment, whole))


def fit_problem(problem: Problem, loss_weight: float) -> Fit:
    """`dicap.frozen.recommended.fit` on a stage's rows, with its settings."""
    s = problem.experiment.settings.linear
    options = {"neighbours": s.neighbours, "pseudo_weight": s.pseudo_weight}
    return recommended.fit(problem.all_rows, problem.y, problem.fold, loss_weight=loss_weight, **options)


def refresh_of(problem: Problem, labels: Labels) -> Refresh:
    """The pseudo-labels of the unlabelled images in the form that stages record."""
    n, y = len(problem.y), torch.from_numpy(problem.y)
    p, label, weight = (torch.from_numpy(part[n:]) for part in (labels.scores, labels.label, labels.weight))
    rates = None
    if labels.curve is not None:
        p_labelled, bins = torch.from_numpy(labels.scores[:n]), problem.experiment.settings.calibration.bins
        rates = recorded_rates(labels.curve, p_labelled, y, p, bins=bins)
    thresholds = thresholds_of(labels.quota)
    guarded = ((thresholds.n_pos == 0) | (thresholds.n_neg == 0)).sum()
    return Refresh(PseudoLabels(p, label, weight), rates, thresholds, guarded)


def recorded_rates(curve: Curve, p: Tensor, y: Tensor, p_unlabelled: Tensor, *, bins: int = 20) -> Rates:
    """The curve as a table of bins, for the record: counts of labelled entries, and mean rates over unlabelled entries.

    Args:
        p, y: (N, C) confidences and labels that the curve was fitted on; y is below 0 if unknown.
        p_unlabelled: (N_u, C) confidences of the unlabelled images.
    """
    index = bin_index(p_unlabelled, bins).reshape(-1)
    total = torch.bincount(index, torch.from_numpy(curve.at(p_unlabelled.numpy())).reshape(-1), bins)
    entries = torch.bincount(index, minlength=bins)
    n_pos, n_neg = count_bins(p, y, bins)
    return estimate_rates(total, entries - total, anchor="centre")._replace(n_pos=n_pos, n_neg=n_neg)


def evidence_out_of_fold(problem: Problem, heads: Solution) -> Evidence:
    """Evidence from all labelled images, each scored by the student of its fold; the quota of the scores gives thresholds."""
    p, at_rank = scores_out_of_fold(heads, problem.all_rows, problem.fold)
    y = labels_of(problem.y)
    tau_pos, tau_neg = published_thresholds(thresholds_of(quota_of(p, y)))
    note = f"counted on {len(y)} labelled images, each scored by a head that never saw it"
    return Evidence(tau_pos, tau_neg, prior_of(y), note, p.astype(np.float32), y, at_rank.astype(np.float32))
