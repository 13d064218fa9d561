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
    # A backbone is built where the head's first weights count: they are drawn after it.
    solved, backbone = experiment.settings.solves("warmup"), experiment.stored_backbone
    network = experiment.method.build_network(stored=backbone if solved else None)
    if backbone is not None:  # whose features the bank holds, also where its weights are random
        network.backbone = backbone
        if not solved:  # the solution chooses how to scale
            fit_scaling(network, experiment.training_features())
    return network


def warm_up(run: Trainer, network: nn.Module) -> None:
    """L = L_sup + lambda L_con on the labelled images, and unlabelled ones for WCL."""
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
