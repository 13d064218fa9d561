"""Stage 1: warm-up (docs/methods.md 2.8, 3.3)."""

from functools import partial

import torch
from torch import nn

from dicap.network.linear import fit_scaling
from dicap.randomness import torch_seed
from dicap.training.batches import Batches
from dicap.training.experiment import Experiment
from dicap.training.plan import warmup_plan
from dicap.training.trainer import Trainer


def initial_network(experiment: Experiment) -> nn.Module:
    """A new network; its random parts depend on the seed alone."""
    torch.manual_seed(torch_seed(experiment.settings.seed, "network", 0))
    # Without a solver the backbone is built even if it is frozen: the head's initial weights are drawn after the backbone's.
    solved, backbone = experiment.settings.solves("warmup"), experiment.stored_backbone
    network = experiment.method.build_network(stored=backbone if solved else None)
    if backbone is not None:  # the bank's own backbone: with random weights a second one would differ
        network.backbone = backbone
        if not solved:  # the solver fits the scaling itself
            fit_scaling(network, experiment.training_features())
    return network


def warm_up(run: Trainer, network: nn.Module) -> None:
    """L = L_sup + lambda L_con on the labelled images, and with WCL also on unlabelled images."""
    method, s = run.method, run.settings.warmup
    phase = method.warmup(run.experiment.roles)
    plan = partial(warmup_plan, phase, over=s.over, seed=run.settings.seed)
    run.begin(network, phase, steps=len(plan(epoch=0)), eval_every=s.eval_every)

    for epoch in run.epochs:
        for batch in run.batches(Batches(run.experiment, phase, plan(epoch=epoch), epoch)):
            with run.autocast():
                losses = method.warmup_losses(network, batch)
            run.update(losses)  # L = L_sup + lambda L_con
            run.end_step()

        run.end_epoch()
    run.publish()
