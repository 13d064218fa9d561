"""Algorithm 1 of the paper, top to bottom: warm-up, main stage, fine-tuning.

Each function trains one network for one stage and returns when its last epoch is recorded in the state folder. What is
particular to a method is asked from `experiment.method`; how a step is taken lies in `dicap.training.steps`.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dicap.artifacts import COST, write_history
from dicap.calibration import PseudoLabels, Rates, Thresholds
from dicap.data.loader import Request
from dicap.methods.base import Batch, Method, Others, Refresh, Update
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
from dicap.training.world import Alone, own_pairs, parts, places

Tell = Callable[[list[str]], None]
CPU = torch.device("cpu")


def initial_network(experiment: Experiment) -> nn.Module:
    """A new network; its random parts depend on the seed alone."""
    torch.manual_seed(torch_seed(experiment.settings.seed, "network", 0))
    return experiment.method.build_network()


def warm_up(experiment: Experiment, network: nn.Module, state: RunState, stop: StopSignal, tell: Tell) -> None:
    """Stage 1: L = L_sup + lambda L_con on the labelled images (and as many unlabelled ones for WCL) (docs/methods.md 3.3)."""
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
    progress = Progress(state, stop, optimisation, experiment.world)
    first, second = ("ema", "raw") if s.warmup.passes_on == "ema" else ("raw", "ema")
    selection = Selection(experiment, optimisation, progress, first, s.warmup.patience)
    tell(progress.resume())

    while progress.epoch < epochs and not selection.over():
        epoch, steps = progress.epoch, plan(progress.epoch)
        mine = [experiment.world.part(step).of(step) for step in steps]
        requests = [method.warmup_requests(labelled[step.labelled], unlabelled[step.unlabelled]) for step in mine]

        def updates(i: int, views: dict[str, Tensor], steps=steps, mine=mine, epoch=epoch) -> Iterable[Update]:
            pairs = method.warmup_pairs(steps[i].images, generator(s.seed, "warmup", epoch, i, "pairs"))
            pairs, others = _own_warmup_pairs(experiment.world, steps[i], pairs)
            y = experiment.labels.of(labelled[mine[i].labelled])
            batch = _batch(experiment, views, y, pairs=pairs, others=others, images=steps[i].images)
            return _weighted(experiment.world, steps[i], method.warmup_updates(network, batch, companions))

        rows = [np.concatenate([labelled[step.labelled], unlabelled[step.unlabelled]]) for step in steps]
        means = progress.run_epoch(experiment, "warmup", rows, requests, updates, epochs=epochs)
        scores = _evaluate(experiment, progress, epochs, s.warmup.eval_every)
        progress.end_epoch(_row(epoch, means, scores, selection.look(epoch)))

    tell(selection.restore())
    _publish(experiment, optimisation, progress, "warmup", first, second)


def train(experiment: Experiment, network: nn.Module, state: RunState, stop: StopSignal, tell: Tell) -> None:
    """Stage 2, the main loop of Algorithm 1 (docs/methods.md 3.8, 3.12)."""
    s, method, roles = experiment.settings, experiment.method, experiment.roles
    labelled, unlabelled = method.labelled(roles), method.unlabelled(roles)
    ids, classes, bins = experiment.store.ids[unlabelled], experiment.store.classes, s.calibration.bins
    diagnostics = Diagnostics(experiment, unlabelled, roles)
    epochs, world = method.main_epochs, experiment.world

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

    # A new optimiser, a new cycle, and an EMA that starts from the loaded weights (docs/methods.md 2.6, 2.7).
    network.to(experiment.runtime.device)
    method.begin_main(network)
    experiment.fix_features(network)
    in_epoch = len(plan(0, np.full((len(unlabelled), 1), -1)))
    optimisation = _optimisation(experiment, network, cycle_steps=(s.train.cycle_epochs or epochs) * in_epoch, stage="train")
    progress = Progress(state, stop, optimisation, experiment.world)
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
                packed = _pack(refresh)
                if method.recorded(epoch) and world.first:
                    write = partial(record, _unpack(packed, CPU), state.products, epoch, ids=ids, classes=classes, bins=bins)
                    progress.aside.start(partial(write, optimal=diagnostics.optimal))
            if refresh.guarded != (progress.history[-1].get("n_guarded", 0) if progress.history else 0):
                count = f"{refresh.guarded} of {len(classes)} classes"
                tell([f"train: from epoch {epoch} on {count} are guarded (n_guarded in history.csv)"])
            progress.memory = {"refresh": packed}
            progress.carry = dict(refresh.carry)
            for module in (network, optimisation.ema.module):
                method.install(module, refresh)
        refresh = _unpack(progress.memory["refresh"], experiment.runtime.device)
        pseudo_label = refresh.pseudo.label.cpu().numpy()  # (N_u, C), on the host to plan the steps

        # (4) one pass over D_unsup minimising L = L_sup + L_pseudo + lambda L_uncer
        steps = plan(epoch, pseudo_label)
        mine = [world.part(step).of(step) for step in steps]
        uncertain = (pseudo_label == -1).any(1)
        requests = [
            method.main_requests(labelled[step.labelled], unlabelled[step.unlabelled], uncertain[step.unlabelled])
            for step in mine
        ]

        def updates(
            i: int, views: dict[str, Tensor], steps=steps, mine=mine, refresh=refresh, label=pseudo_label, epoch=epoch
        ) -> Iterable[Update]:
            step = mine[i]
            if experiment.features is not None:
                rows = np.concatenate([labelled[step.labelled], unlabelled[step.unlabelled]])
                views = {"features": experiment.features_of(rows)}
            y = experiment.labels.of(labelled[step.labelled])
            rng = generator(s.seed, "train", epoch, i, "pairs")
            if method.relabels:
                teacher = _teacher_network(experiment, optimisation)
                with looking(teacher):
                    pseudo = method.relabel(teacher, views, refresh)
                seen = label[steps[i].unlabelled]
                if method.contrasts:  # this waits for the device
                    seen = world.whole(pseudo.label, world.part(steps[i]).unlabelled, len(seen)).cpu().numpy()
            else:
                place = experiment.runtime.put(step.unlabelled)
                pseudo = PseudoLabels(*(tensor[place] for tensor in refresh.pseudo[:3]), soft=refresh.pseudo.soft)
                seen = label[steps[i].unlabelled]
            looked_at = np.ones(len(seen), bool) if method.relabels else (seen == -1).any(1)
            pairs, others = _own_main_pairs(world, steps[i], looked_at, method.main_pairs(seen, rng))
            batch = _batch(experiment, views, y, pseudo=pseudo, pairs=pairs, others=others, images=steps[i].images)
            if refresh.labelled_weight is not None:
                batch = batch._replace(y_weight=refresh.labelled_weight[experiment.runtime.put(step.labelled)])
            return _weighted(world, steps[i], method.main_updates(network, batch))

        rows = [np.concatenate([labelled[step.labelled], unlabelled[step.unlabelled]]) for step in steps]
        means = progress.run_epoch(experiment, "train", rows, requests, updates, epochs=epochs)
        scores = _evaluate(experiment, progress, epochs, s.train.eval_every)
        summary = diagnostics.summary(refresh, bins) if world.first else {}
        progress.end_epoch(_row(epoch, means, summary, scores, selection.look(epoch)))

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
    if not experiment.world.first:
        return {}
    ids, classes = experiment.store.ids[rows], experiment.store.classes
    record(refresh, folder, 0, ids=ids, classes=classes, bins=bins, optimal=diagnostics.optimal)
    return diagnostics.summary(refresh, bins)


def finetune(experiment: Experiment, network: nn.Module, state: RunState, stop: StopSignal, tell: Tell) -> None:
    """Stage 3: the backbone frozen, the head trained on D_est with its true labels (docs/methods.md 3.9)."""
    s, rows = experiment.settings, experiment.roles.est
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(name.startswith("head."))

    def plan(epoch: int) -> list[Step]:
        return finetune_plan(len(rows), s.finetune.batch_size, seed=s.seed, epoch=epoch)

    before = before_finetuning(experiment, network.to(experiment.runtime.device))
    optimisation = _optimisation(
        experiment, network, cycle_steps=s.finetune.epochs * len(plan(0)), lr=s.finetune.lr, ema_decay=s.finetune.ema_decay
    )
    progress = Progress(state, stop, optimisation, experiment.world)
    tell(progress.resume())

    while progress.epoch < s.finetune.epochs:
        epoch, steps = progress.epoch, plan(progress.epoch)
        mine = [experiment.world.part(step).of(step) for step in steps]
        requests = [[Request("strong", rows[step.labelled], experiment.method.strong)] for step in mine]

        def updates(i: int, views: dict[str, Tensor], steps=steps, mine=mine) -> Iterable[Update]:
            network.backbone.eval()  # type: ignore[union-attr]  # BatchNorm of the frozen part stays as it is
            y = experiment.runtime.put(experiment.labels.of(rows[mine[i].labelled]))
            logits, _ = network(views["strong"])
            elements = experiment.method.supervised(logits, y)  # (B, C)
            yield from _weighted(experiment.world, steps[i], [Update({"loss_sup": elements.sum() / steps[i].images})])

        listed = [rows[step.labelled] for step in steps]
        means = progress.run_epoch(experiment, "finetune", listed, requests, updates, epochs=s.finetune.epochs)
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
        world=experiment.world,
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
    others: Others | None = None,
    pseudo: PseudoLabels | None = None,
) -> Batch:
    device = experiment.runtime.device
    none = torch.empty(0, experiment.method.classes, device=device)
    return Batch(
        views=views,
        y=experiment.runtime.put(y),
        label=none.to(torch.int8) if pseudo is None else pseudo.label,
        weight=none if pseudo is None else pseudo.weight,
        soft=pseudo is not None and pseudo.soft,
        pairs=experiment.runtime.put(pairs),
        images=images,
        others=others,
    )


def _weighted(world: Alone, step: Step, updates: Iterable[Update]) -> Iterator[Update]:
    """The updates, their terms weighted as this process's part of the step wants it."""
    weight = world.part(step).weight
    for update in updates:
        terms = update.terms if weight == 1 else {name: weight * value for name, value in update.terms.items()}
        yield update._replace(terms=terms)


def _own_warmup_pairs(world: Alone, step: Step, pairs: np.ndarray) -> tuple[np.ndarray, Others | None]:
    """Of the step's entries to contrast those of this process; the views are of labelled, then unlabelled images."""
    if world.size == 1 or world.part(step).weight != 1:
        return pairs, None
    at = []
    for part in parts(step, world.size):
        labelled = places(len(step.labelled), part.labelled)
        unlabelled = places(len(step.unlabelled), part.unlabelled, base=part.labelled.stop - part.labelled.start)
        at.append(np.concatenate([labelled, unlabelled]))
    mine, own = own_pairs(pairs, at, at, world.rank)
    return mine, world.others(len(pairs), own)


def _own_main_pairs(world: Alone, step: Step, seen: np.ndarray, pairs: np.ndarray) -> tuple[np.ndarray, Others | None]:
    """Of the step's entries to contrast those of this process; weak views are of the images `seen` (b_u,) bool."""
    if world.size == 1 or world.part(step).weight != 1:
        return pairs, None
    shares = parts(step, world.size)
    strong = [places(len(step.unlabelled), part.unlabelled) for part in shares]
    order = np.concatenate([[0], seen.cumsum()])  # weak views before each image
    weak = [places(int(order[-1]), slice(order[p.unlabelled.start], order[p.unlabelled.stop])) for p in shares]
    mine, own = own_pairs(pairs, strong, weak, world.rank)
    return mine, world.others(len(pairs), own)


def _evaluate(experiment: Experiment, progress: Progress, epochs: int, every: int) -> dict[str, float]:
    """mAP on the test images of the raw and the EMA network, every so many epochs and after the last."""
    if (progress.epoch + 1) % every and progress.epoch + 1 != epochs:
        return {}
    rows, first = experiment.roles.test, experiment.world.first
    networks = {"map_raw": progress.optimisation.network, "map_ema": progress.optimisation.ema.module}
    with progress.meter.timing("evaluation"):
        scores = {name: experiment.predict(network, rows) for name, network in networks.items()}
        y, _ = experiment.hidden(rows) if first else (None, None)
        return {name: mean_average_precision(p.cpu().numpy(), y) for name, p in scores.items() if y is not None}


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
    # All processes score the images that the decisions are counted on; one writes.
    decisions = {which: decisions_of(experiment, networks[which], stage, before) for which in (first, second)}
    if not experiment.world.first:
        return
    folder = progress.state.products
    common = {"settings": experiment.settings, "classes": experiment.store.classes, "stage": stage}
    for which, name in ((first, "model"), (second, f"model_{second}")):
        save_model(networks[which], folder / f"{name}.safetensors", which=which, decisions=decisions[which], **common)
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
