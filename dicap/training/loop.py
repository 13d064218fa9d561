"""Algorithm 1 of the paper, top to bottom: warm-up, main stage, fine-tuning.

Each function trains one network for one stage and returns when its last epoch is recorded in the state folder. What is
particular to a method is asked from `experiment.method`; how a step is taken lies in `dicap.training.steps`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dicap.artifacts import COST, write_history
from dicap.calibration import PseudoLabels, Rates, Thresholds
from dicap.data.loader import Request
from dicap.methods.base import Batch, Method, Refresh, Update
from dicap.metrics import mean_average_precision
from dicap.randomness import generator, torch_seed
from dicap.training.decisions import Before, before_finetuning, decisions_of
from dicap.training.diagnostics import Diagnostics
from dicap.training.experiment import Experiment
from dicap.training.models import save_model
from dicap.training.optimisation import Optimisation
from dicap.training.plan import Step, finetune_plan, main_plan, pool_plan, warmup_plan
from dicap.training.records import record
from dicap.training.selection import Selection
from dicap.training.state import RunState, StopSignal
from dicap.training.steps import Progress

Tell = Callable[[list[str]], None]


def initial_network(experiment: Experiment) -> nn.Module:
    """A new network; its random parts depend on the seed alone."""
    torch.manual_seed(torch_seed(experiment.settings.seed, "network", 0))
    return experiment.method.build_network()


def warm_up(experiment: Experiment, network: nn.Module, state: RunState, stop: StopSignal, tell: Tell) -> None:
    """Stage 1: L = L_sup + lambda L_con on the labelled images (and as many unlabelled ones for WCL) (methods.md 3.3)."""
    s, method, roles = experiment.settings, experiment.method, experiment.roles
    labelled, unlabelled = method.warmup_labelled(roles), method.unlabelled(roles)
    count = len(unlabelled) if method.warmup_unlabelled else 0
    epochs = method.warmup_epochs

    def plan(epoch: int) -> list[Step]:
        if method.warmup_over_unlabelled is not None:
            return main_plan(
                len(labelled), len(unlabelled), *method.warmup_over_unlabelled, seed=s.seed, epoch=epoch, stage="warmup"
            )
        return warmup_plan(len(labelled), count, method.warmup_batch, seed=s.seed, epoch=epoch)

    torch.manual_seed(torch_seed(s.seed, "companions", 0))
    companions = method.companions()
    optimisation = _optimisation(experiment, network, cycle_steps=epochs * len(plan(0)), stage="warmup", companions=companions)
    progress = Progress(state, stop, optimisation)
    first, second = ("ema", "raw") if s.warmup.passes_on == "ema" else ("raw", "ema")
    selection = Selection(experiment, optimisation, progress, first, s.warmup.patience)
    tell(progress.resume())

    while progress.epoch < epochs and not selection.over():
        epoch, steps = progress.epoch, plan(progress.epoch)
        requests = [method.warmup_requests(labelled[step.labelled], unlabelled[step.unlabelled]) for step in steps]

        def updates(i: int, views: dict[str, Tensor], steps=steps, epoch=epoch) -> Iterable[Update]:
            images = len(steps[i].labelled) + len(steps[i].unlabelled)
            pairs = method.warmup_pairs(images, generator(s.seed, "warmup", epoch, i, "pairs"))
            y = experiment.labels.of(labelled[steps[i].labelled])
            return method.warmup_updates(network, _batch(experiment, views, y, pairs=pairs, images=images), companions)

        means = progress.run_epoch(experiment, "warmup", requests, updates, epochs=epochs)
        scores = _evaluate(experiment, progress, epochs, s.warmup.eval_every)
        progress.end_epoch(_row(epoch, means, scores, selection.look(epoch)))

    tell(selection.restore())
    _publish(experiment, optimisation, progress, "warmup", first, second)


def train(experiment: Experiment, network: nn.Module, state: RunState, stop: StopSignal, tell: Tell) -> None:
    """Stage 2, the main loop of Algorithm 1 (methods.md 3.8, 3.12)."""
    s, method, roles = experiment.settings, experiment.method, experiment.roles
    labelled, unlabelled = method.labelled(roles), method.unlabelled(roles)
    ids, classes, bins = experiment.store.ids[unlabelled], experiment.store.classes, s.calibration.bins
    diagnostics = Diagnostics(experiment, unlabelled, roles)
    epochs = method.main_epochs

    def plan(epoch: int, label: np.ndarray) -> list[Step]:
        if method.iterations is not None:
            adopted = np.any(label >= 0, axis=1)
            return pool_plan(len(labelled), adopted, method.labelled_batch, method.iterations, seed=s.seed, epoch=epoch)
        return main_plan(
            len(labelled),
            len(unlabelled),
            method.labelled_batch,
            s.train.batch_size - method.labelled_batch,
            seed=s.seed,
            epoch=epoch,
            shuffle=s.train.shuffle,
        )

    # A new optimiser, a new cycle, and an EMA that starts from the loaded weights (methods.md 2.6, 2.7).
    network.to(experiment.runtime.device)
    method.begin_main(network)
    experiment.fix_features(network)
    in_epoch = len(plan(0, np.full((len(unlabelled), 1), -1)))
    optimisation = _optimisation(experiment, network, cycle_steps=(s.train.cycle_epochs or epochs) * in_epoch, stage="train")
    progress = Progress(state, stop, optimisation)
    first, second = _order(method)
    selection = Selection(experiment, optimisation, progress, first, s.train.patience)
    tell(progress.resume())

    while progress.epoch < epochs and not selection.over():
        epoch = progress.epoch
        # (1) - (3) rates on D_est, thresholds on D_sup, pseudo-labels and weights on D_unsup
        if "refresh" not in progress.memory:
            teacher = EpochTeacher(experiment, _teacher_network(experiment, optimisation), network, epoch, progress.carry)
            with progress.meter.timing("refresh"):
                refresh = method.refresh(teacher, roles)
                if method.recorded(epoch):
                    record(refresh, state.products, epoch, ids=ids, classes=classes, bins=bins, diagnostics=diagnostics)
            if refresh.guarded != (progress.history[-1]["n_guarded"] if progress.history else 0):
                count = f"{refresh.guarded} of {len(classes)} classes"
                tell([f"train: from epoch {epoch} on {count} are guarded (n_guarded in history.csv)"])
            progress.memory = {"refresh": _pack(refresh)}
            progress.carry = dict(refresh.carry)
            for module in (network, optimisation.ema.module):
                method.install(module, refresh)
        refresh = _unpack(progress.memory["refresh"], experiment.runtime.device)
        pseudo_label = refresh.pseudo.label.cpu().numpy()  # (N_u, C), on the host to plan the steps

        # (4) one pass over D_unsup minimising L = L_sup + L_pseudo + lambda L_uncer
        steps = plan(epoch, pseudo_label)
        uncertain = (pseudo_label == -1).any(1)
        requests = [
            method.main_requests(labelled[step.labelled], unlabelled[step.unlabelled], uncertain[step.unlabelled])
            for step in steps
        ]

        def updates(
            i: int, views: dict[str, Tensor], steps=steps, refresh=refresh, label=pseudo_label, epoch=epoch
        ) -> Iterable[Update]:
            step = steps[i]
            if experiment.features is not None:
                rows = np.concatenate([labelled[step.labelled], unlabelled[step.unlabelled]])
                views = {"features": experiment.features_of(rows)}
            y = experiment.labels.of(labelled[step.labelled])
            rng = generator(s.seed, "train", epoch, i, "pairs")
            if method.relabels:
                teacher = _teacher_network(experiment, optimisation)
                with looking(teacher):
                    pseudo = method.relabel(teacher, views, refresh)
                seen = (
                    pseudo.label.cpu().numpy() if method.contrasts else label[step.unlabelled]
                )  # the first waits for the device
                pairs = method.main_pairs(seen, rng)
            else:
                place = torch.from_numpy(step.unlabelled).to(refresh.pseudo.label.device)
                pseudo = PseudoLabels(*(tensor[place] for tensor in refresh.pseudo[:3]), soft=refresh.pseudo.soft)
                pairs = method.main_pairs(label[step.unlabelled], rng)
            images = len(step.labelled) + len(step.unlabelled)
            batch = _batch(experiment, views, y, pseudo=pseudo, pairs=pairs, images=images)
            if refresh.labelled_weight is not None:
                place = torch.from_numpy(step.labelled).to(refresh.labelled_weight.device)
                batch = batch._replace(y_weight=refresh.labelled_weight[place])
            return method.main_updates(network, batch)

        means = progress.run_epoch(experiment, "train", requests, updates, epochs=epochs)
        scores = _evaluate(experiment, progress, epochs, s.train.eval_every)
        progress.end_epoch(_row(epoch, means, diagnostics.summary(refresh, bins), scores, selection.look(epoch)))

    tell(selection.restore())
    _publish(experiment, optimisation, progress, "train", first, second)


def first_refresh(experiment: Experiment, network: nn.Module, folder: Path) -> dict[str, float]:
    """What `train` would make of its first epoch, recorded under `folder`; returns the shares of the labels.

    The main stage's EMA starts from the loaded weights, so both teachers are this network.
    """
    method, roles = experiment.method, experiment.roles
    rows, bins = method.unlabelled(roles), experiment.settings.calibration.bins
    diagnostics = Diagnostics(experiment, rows, roles)
    network.to(experiment.runtime.device)
    method.begin_main(network)
    experiment.fix_features(network)
    refresh = method.refresh(EpochTeacher(experiment, network, network, 0, {}), roles)
    record(
        refresh, folder, 0, ids=experiment.store.ids[rows], classes=experiment.store.classes, bins=bins, diagnostics=diagnostics
    )
    return diagnostics.summary(refresh, bins)


def finetune(experiment: Experiment, network: nn.Module, state: RunState, stop: StopSignal, tell: Tell) -> None:
    """Stage 3: the backbone frozen, the head trained on D_est with its true labels (methods.md 3.9)."""
    s, rows = experiment.settings, experiment.roles.est
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name.startswith("head."))

    def plan(epoch: int) -> list[Step]:
        return finetune_plan(len(rows), s.finetune.batch_size, seed=s.seed, epoch=epoch)

    before = before_finetuning(experiment, network.to(experiment.runtime.device))
    optimisation = _optimisation(
        experiment, network, cycle_steps=s.finetune.epochs * len(plan(0)), lr=s.finetune.lr, ema_decay=s.finetune.ema_decay
    )
    progress = Progress(state, stop, optimisation)
    tell(progress.resume())

    while progress.epoch < s.finetune.epochs:
        epoch, steps = progress.epoch, plan(progress.epoch)
        requests = [[Request("strong", rows[step.labelled], experiment.method.strong)] for step in steps]

        def updates(i: int, views: dict[str, Tensor], steps=steps) -> Iterable[Update]:
            network.backbone.eval()  # type: ignore[union-attr]  # BatchNorm of the frozen part stays as it is
            y = experiment.labels.of(rows[steps[i].labelled]).to(experiment.runtime.device)
            logits, _ = network(views["strong"])
            elements = experiment.method.supervised(logits, y)  # (B, C)
            yield Update({"loss_sup": elements.sum(1).mean()})

        means = progress.run_epoch(experiment, "finetune", requests, updates, epochs=s.finetune.epochs)
        scores = _evaluate(experiment, progress, s.finetune.epochs, s.finetune.epochs)
        progress.end_epoch(_row(epoch, means, scores))

    _publish(experiment, optimisation, progress, "finetune", "raw", "ema", before)


@dataclass
class EpochTeacher:
    """The teacher of an epoch: the EMA network (or the online one) in eval mode, looking at weak views."""

    experiment: Experiment
    network: nn.Module
    online: nn.Module
    epoch: int
    carry: dict[str, Tensor]

    def __post_init__(self) -> None:
        self.carry = {name: tensor.to(self.experiment.runtime.device) for name, tensor in self.carry.items()}

    def scores(self, rows: np.ndarray) -> Tensor:
        """(n, C) float32 scores."""
        return self.outputs(rows, self.experiment.method.scores)

    def outputs(self, rows: np.ndarray, function: Callable[[nn.Module, Tensor], Tensor], *, online: bool = False) -> Tensor:
        """(n, ...) float32 of the teacher, or of the network in training."""
        s = self.experiment.settings
        flip = (s.seed, "refresh", self.epoch) if s.calibration.view == "weak" else None
        return self.experiment.predict(self.online if online else self.network, rows, function=function, flip=flip)

    def labels(self, rows: np.ndarray) -> Tensor:
        """(n, C) uint8 labels of D_l."""
        return self.experiment.labels.of(rows).to(self.experiment.runtime.device)

    def hidden_labels(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        """(n, C) uint8 and (n,) bool: the labels, and whether a row has any; zero where it has none."""
        device = self.experiment.runtime.device
        labels, known = (torch.from_numpy(array).to(device) for array in self.experiment.hidden(rows))
        return labels, known


@contextmanager
def looking(network: nn.Module) -> Iterator[None]:
    """The network in eval mode and without gradient, as for a whole epoch's scores: pseudo-labels are constants."""
    was_training = network.training
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        network.train(was_training)


def _teacher_network(experiment: Experiment, optimisation: Optimisation) -> nn.Module:
    return optimisation.ema.module if experiment.settings.calibration.teacher == "ema" else optimisation.network


def _optimisation(
    experiment: Experiment,
    network: nn.Module,
    *,
    cycle_steps: int,
    lr: float | None = None,
    ema_decay: float | None = None,
    stage: str | None = None,
    companions: nn.ModuleDict | None = None,
) -> Optimisation:
    o = experiment.settings.optimiser
    network.to(experiment.runtime.device)
    companions = nn.ModuleDict() if companions is None else companions.to(experiment.runtime.device)
    return Optimisation(
        network,
        experiment.runtime,
        lr=o.lr if lr is None else lr,
        weight_decay=o.weight_decay,
        pct_start=o.pct_start,
        ema_decay=o.ema_decay if ema_decay is None else ema_decay,
        cycle_steps=cycle_steps,
        companions=companions,
        players=experiment.method.players(network, companions, stage) if stage else (),
    )


def _order(method: Method) -> tuple[str, str]:
    return ("raw", "ema") if method.publishes == "raw" else ("ema", "raw")


def _batch(
    experiment: Experiment,
    views: dict[str, Tensor],
    y: Tensor,
    *,
    images: int,
    pairs: np.ndarray,
    pseudo: PseudoLabels | None = None,
) -> Batch:
    device = experiment.runtime.device
    none = torch.empty(0, experiment.method.classes, device=device)
    return Batch(
        views=views,
        y=y.to(device, non_blocking=True),
        label=none.to(torch.int8) if pseudo is None else pseudo.label,
        weight=none if pseudo is None else pseudo.weight,
        soft=pseudo is not None and pseudo.soft,
        pairs=torch.from_numpy(pairs).to(device, non_blocking=True),
        images=images,
    )


def _evaluate(experiment: Experiment, progress: Progress, epochs: int, every: int) -> dict[str, float]:
    """mAP on the test images of the raw and the EMA network, every so many epochs and after the last."""
    if (progress.epoch + 1) % every and progress.epoch + 1 != epochs:
        return {}
    rows = experiment.roles.test
    networks = {"map_raw": progress.optimisation.network, "map_ema": progress.optimisation.ema.module}
    with progress.meter.timing("evaluation"):
        y, _ = experiment.hidden(rows)
        return {name: mean_average_precision(experiment.predict(n, rows).cpu().numpy(), y) for name, n in networks.items()}


def _row(epoch: int, *parts: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"epoch": epoch}
    for name in ("loss", "loss_sup", "loss_pseudo", "loss_con", "lr", "map_raw", "map_ema"):
        row[name] = None
    for part in parts:
        row |= part
    return row


def _publish(
    experiment: Experiment,
    optimisation: Optimisation,
    progress: Progress,
    stage: str,
    first: str,
    second: str,
    before: Before | None = None,
) -> None:
    """model.safetensors is what the next stage starts from; its counterpart stands beside it under its own name."""
    networks = {"raw": optimisation.network, "ema": optimisation.ema.module}
    folder = progress.state.products
    common = {"settings": experiment.settings, "classes": experiment.store.classes, "stage": stage}
    for which, name in ((first, "model"), (second, f"model_{second}")):
        decisions = decisions_of(experiment, networks[which], stage, before)
        save_model(networks[which], folder / f"{name}.safetensors", which=which, decisions=decisions, **common)
    write_history(progress.history, folder / "history.csv", list(_row(0)))
    write_history(progress.costs, progress.state.cost, COST)


def _pack(refresh: Refresh) -> dict[str, Any]:
    """Plain containers of tensors, which a `weights_only` load accepts."""
    return {
        "pseudo": dict(refresh.pseudo._asdict()),
        "rates": dict(refresh.rates._asdict()) if refresh.rates is not None else None,
        "thresholds": dict(refresh.thresholds._asdict()) if refresh.thresholds is not None else None,
        "crossed": refresh.crossed,
        "guarded": refresh.guarded,
        "labelled_weight": refresh.labelled_weight,
        "carry": dict(refresh.carry),
    }


def _unpack(packed: dict[str, Any], device: torch.device) -> Refresh:
    def on_device(values: dict[str, Any]) -> dict[str, Any]:
        return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in values.items()}

    return Refresh(
        PseudoLabels(**on_device(packed["pseudo"])),
        Rates(**on_device(packed["rates"])) if packed["rates"] is not None else None,
        Thresholds(**on_device(packed["thresholds"])) if packed["thresholds"] is not None else None,
        packed["crossed"],
        packed["guarded"],
        packed["labelled_weight"].to(device) if packed["labelled_weight"] is not None else None,
        on_device(packed["carry"]),
    )
