"""Stage 2: the main loop, Algorithm 1 of the paper (docs/methods.md 3.8, 3.12)."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from torch import nn

from dicap.methods.base import ParamGroup, Phase, Refresh, Teacher
from dicap.network import hold_statistics
from dicap.settings import Settings
from dicap.training.batches import MainBatches
from dicap.training.diagnostics import Diagnostics
from dicap.training.experiment import Experiment
from dicap.training.plan import main_plan
from dicap.training.records import record
from dicap.training.teacher import EpochTeacher
from dicap.training.trainer import Trainer


def train(run: Trainer, network: nn.Module) -> None:
    """Algorithm 1: every epoch counts correctness on D_est, pseudo-labels D_unsup, and passes over D_unsup once."""
    method, roles = run.method, run.experiment.roles
    learn(run, network, method.main(roles), lambda teacher: method.refresh(teacher, roles))
    run.publish()


def learn(
    run: Trainer, network: nn.Module, phase: Phase, make_labels: Callable[[Teacher], Refresh], *, pseudo_weight: float = 1.0
) -> None:
    """The epochs of a main stage by gradient steps. A stage that was stopped or killed resumes from its checkpoint.

    Args:
        make_labels: makes an epoch's pseudo-labels with its teacher.
        pseudo_weight: weight of a pseudo-labelled image relative to a labelled image.
    """
    method, s = run.method, run.settings
    if phase.begin is not None:
        phase.begin(network)
    groups = own_rates(network, phase, s) if phase.groups is None else phase.groups(network)
    plan = partial(main_plan, phase, seed=s.seed, stage=run.stage)
    run.begin(network, phase, steps=len(plan(epoch=0)), eval_every=s.train.eval_every, groups=groups)

    for epoch in run.epochs:
        # (1) r_pos and r_neg on D_est, (2) tau_pos and tau_neg on D_sup, (3) pseudo-labels and w(p, label) on D_unsup
        refresh = run.refresh(make_labels, recorded=phase.relabel is None)  # labels made per batch are recorded after the epoch
        if phase.install is not None:
            for copy in run.networks.values():
                phase.install(copy, refresh)

        # (4) one pass over D_unsup, on L = L_sup + L_pseudo + lambda L_uncer
        for batch in run.batches(MainBatches(run.experiment, phase, plan(epoch=epoch), epoch, refresh, run.teacher)):
            if s.train.batch_norm == "eval":
                hold_statistics(network)
            with run.autocast():
                losses = method.main_losses(network, batch)
            if pseudo_weight != 1:
                losses["loss_pseudo"] = pseudo_weight * losses["loss_pseudo"]
            run.update(losses)
            run.end_step()

        if phase.relabel is not None:
            with run.meter.timing("refresh"):
                run.record_refresh(refresh)
        run.end_epoch()


def own_rates(network: nn.Module, phase: Phase, s: Settings) -> list[ParamGroup]:
    """Parameter groups of backbone and head, if both are trained and train.head_lr or train.backbone_lr is set; else [].

    A head alone is trained at optimiser.lr. A method's own rate (`Phase.lr`) takes precedence over both settings.
    """
    parts: dict[str, list[nn.Parameter]] = {"head": [], "backbone": []}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            parts["backbone" if name.startswith("backbone.") else "head"].append(parameter)
    rates = {"head": s.train.head_lr, "backbone": s.train.backbone_lr}
    if phase.lr is not None or not parts["backbone"] or set(rates.values()) == {"auto"}:
        return []
    return [
        ParamGroup(name, parameters, s.optimiser.lr if rates[name] == "auto" else float(rates[name]), s.optimiser.weight_decay)
        for name, parameters in parts.items()
    ]


def first_refresh(experiment: Experiment, network: nn.Module, folder: Path) -> dict[str, float]:
    """Record under `folder` the pseudo-labels that `train` would use in its first epoch; return their summary.

    The EMA of the main stage starts from the loaded weights, so this network is both the EMA and the online network.
    """
    phase = experiment.method.main(experiment.roles)
    network = experiment.place(network)
    if phase.begin is not None:
        phase.begin(network)
    experiment = experiment.on_features(phase, network)
    refresh = experiment.method.refresh(EpochTeacher(experiment, network, network, 0, {}), experiment.roles)
    diagnostics, store = Diagnostics(experiment, phase.unlabelled), experiment.store
    record(refresh, folder, 0, ids=store.ids[phase.unlabelled], classes=store.classes, optimal=diagnostics.optimal)
    return diagnostics.summary(refresh)
