"""Stage 1: warm-up (docs/methods.md 2.8, 3.3)."""

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
    solved = experiment.settings.solves("warmup")
    network = experiment.method.build_network(stored=experiment.stored_backbone if solved else None)
    if experiment.frozen:  # the backbone whose features the bank holds, also where its weights are random
        backbone = experiment.stored_backbone
        assert backbone is not None
        network.backbone = backbone
        if not solved:  # the solution chooses how to scale
            fit_scaling(network, experiment.training_features())
    return network


def warm_up(run: Trainer, network: nn.Module) -> None:
    """L = L_sup + lambda L_con on the labelled images, and unlabelled ones for WCL."""
    method, s = run.method, run.settings.warmup
    phase = method.warmup(run.experiment.roles)
    counts = len(phase.labelled), len(phase.unlabelled), phase.batch_labelled, phase.batch_unlabelled

    steps = len(warmup_plan(*counts, over=s.over, seed=run.settings.seed, epoch=0))
    run.begin(network, phase, steps=steps, eval_every=s.eval_every)

    for epoch in run.epochs:
        plan = warmup_plan(*counts, over=s.over, seed=run.settings.seed, epoch=epoch)
        for batch in run.batches(Batches(run.experiment, phase, plan, epoch)):
            with run.autocast():
                losses = method.warmup_losses(network, batch)
            run.update(losses)  # L = L_sup + lambda L_con
            run.end_step()

        run.end_epoch()
    run.publish()
