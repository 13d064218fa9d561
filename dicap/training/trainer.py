"""A stage in progress. The loops call it by name: begin, batches, update, end_step, end_epoch, publish."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dicap.calibration.evidence import Evidence
from dicap.calibration.rates import Rates
from dicap.calibration.thresholds import PseudoLabels, Thresholds
from dicap.errors import DataError, Stopped
from dicap.files.artifacts import COST, HISTORY, write_history
from dicap.files.atomic import replacing
from dicap.machine.cost import Meter
from dicap.machine.progress import progress, time_left
from dicap.methods.base import Batch, ParamGroup, Phase, Refresh, Teacher
from dicap.metrics import ledger
from dicap.models import save_model
from dicap.network import attach_backbone
from dicap.randomness import torch_seed
from dicap.training.batches import Batches
from dicap.training.checkpoint.state import RunState, StopSignal
from dicap.training.diagnostics import Diagnostics, map_of_scores
from dicap.training.evidence import evidence_of
from dicap.training.experiment import Experiment
from dicap.training.optimisation import Optimisation
from dicap.training.records import record
from dicap.training.teacher import EpochTeacher

CHECK_EVERY = 50  # steps between looks at the finite flag on a GPU, where each look waits for the device
SAVE_SECONDS = 300.0  # of steps at most so much is lost to a kill

Log = Callable[[list[str]], object]  # takes lines worth knowing


@dataclass
class Checkpoint:
    """What survives a kill, beside the learner's networks and optimisers.

    Attributes:
        epoch, step: the next step to take.
        history: one row per finished epoch; costs: as many, of what each took; spent: seconds of this epoch by part.
        row: what is known of this epoch for the history.
        sums: of the loss terms over this epoch's steps.
        refresh: the pseudo-labels of this epoch and their tables, without confidences; None before they are made.
            Where each batch is labelled anew, with confidences, and of the steps that are done those of the batches.
        carry: tensors that the method keeps from epoch to epoch.
    """

    epoch: int = 0
    step: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    costs: list[dict[str, Any]] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)
    row: dict[str, Any] = field(default_factory=dict)
    sums: dict[str, Tensor] = field(default_factory=dict)
    refresh: Refresh | None = None
    carry: dict[str, Tensor] = field(default_factory=dict)


class Trainer:
    """Saves, resumes, stops, scores and records a stage.

    Attributes:
        checkpoint: how far the stage is.
        networks: raw, and ema where there is an average, on the device; by `begin`.
    """

    def __init__(
        self, experiment: Experiment, stage: str, state: RunState, stop: StopSignal, log: Log, source: Path | None = None
    ) -> None:
        """`source`: the folder that the stage before published."""
        self.experiment, self.stage, self.state, self.stop, self.log, self.source = experiment, stage, state, stop, log, source
        self.settings, self.method = experiment.settings, experiment.method
        self.checkpoint = Checkpoint()
        self.meter = Meter(experiment.runtime.device)
        self.autocast = experiment.runtime.autocast  # mixed precision, for the forward pass and the losses
        self._steps = 0  # of the epoch; none where the stage is solved
        self._saved = time.monotonic()

    # -- the stage

    def begin(
        self,
        network: nn.Module,
        phase: Phase,
        *,
        steps: int,
        eval_every: int,
        ema_decay: float | None = None,
        groups: Sequence[ParamGroup] = (),
        companions: nn.ModuleDict | None = None,
    ) -> None:
        """A new optimiser, cycle and EMA for the network (docs/methods.md 2.6, 2.7), or the ones in the saved state to resume.

        Args:
            steps: of an epoch.
            eval_every: epochs between scores of the test images.
            groups: tensors with optimisers of their own; companions: networks trained beside this one and no part of it.
        """
        o = self.settings.optimiser
        network.to(self.experiment.runtime.device)
        self.optimisation = Optimisation(
            network,
            self.experiment.runtime,
            lr=o.lr if phase.lr is None else phase.lr,
            weight_decay=o.weight_decay,
            pct_start=o.pct_start,
            ema_decay=o.ema_decay if ema_decay is None else ema_decay,
            cycle_steps=(phase.cycle_epochs or phase.epochs) * steps,
            companions=companions,
            param_groups=groups,
        )
        networks = {"raw": network, "ema": self.optimisation.ema}
        self.begin_with(self.optimisation, networks, phase, eval_every=eval_every)

    def begin_with(self, learner: Any, networks: dict[str, nn.Module], phase: Phase, *, eval_every: int) -> None:
        """Begin a phase with what changes its networks, or resume it from the newest whole state, if there is one.

        `learner`: has `state_dict` and `load_state_dict`: an `Optimisation`, or the solution of a convex problem.
        """
        self.learner, self.networks, self.phase, self._eval_every = learner, networks, phase, eval_every
        with torch.serialization.safe_globals([Refresh, PseudoLabels, Rates, Thresholds]):  # tuples of tensors
            saved, lines = self.state.load()
        if saved is not None:
            learner.load_state_dict(saved["learner"])
            self.checkpoint = Checkpoint(**moved(saved["checkpoint"], self.experiment.runtime.device))
            self.meter.start(self.checkpoint.spent)
            lines.append(f"resuming {self.stage} after {self._progress}")
        self.log(lines)

    @property
    def epochs(self) -> range:
        """The epochs that are left."""
        return range(self.checkpoint.epoch, self.phase.epochs)

    def publish(self, evidence: Callable[[nn.Module], Evidence] | None = None) -> None:
        """model.safetensors is what the next stage starts from; its counterpart is beside it under its own name.

        `evidence`: of each network; None: `dicap.training.evidence.evidence_of`.
        """
        at, e, folder = self.checkpoint, self.experiment, self.state.products
        first = self.phase.publishes if self.phase.publishes in self.networks else "raw"
        facts = {"settings": self.settings, "classes": e.store.classes, "stage": self.stage, "split": e.split_mark}
        for which, network in self.networks.items():
            its = evidence_of(e, network, self.stage) if evidence is None else evidence(network)
            attach_backbone(network)
            name = "model" if which == first else f"model_{which}"
            save_model(network, folder / f"{name}.safetensors", which=which, evidence=its, **facts)
        write_history(at.history, folder / "history.csv", HISTORY)
        write_history(at.costs, self.state.cost, COST)

    # -- pseudo-labels of an epoch

    @property
    def teacher(self) -> nn.Module:
        """The network whose scores become pseudo-labels: the average, where there is one."""
        return self.networks.get("ema", self.networks["raw"])

    def refresh(self, make: Callable[[Teacher], Refresh], *, recorded: bool = True, parquet: bool = True) -> Refresh:
        """What this epoch trains on: what `make` makes of its teacher, or made of it before a stop or a kill.

        `recorded`: by `record_refresh`, with or without `parquet`; else it is only kept in the checkpoint.
        """
        at, experiment = self.checkpoint, self.experiment
        if at.refresh is not None:
            return at.refresh
        with self.meter.timing("refresh"):
            made = make(EpochTeacher(experiment, self.teacher, self.networks["raw"], at.epoch, at.carry))
            return self.record_refresh(made, parquet=parquet) if recorded else self.keep_refresh(made)

    def record_refresh(self, refresh: Refresh, *, parquet: bool = True) -> Refresh:
        """Keep what the epoch trains on in the checkpoint, its summary in the history and, unless told otherwise, all as Parquet.

        Returns:
            the refresh without its confidences: only its record and its diagnostics read them.
        """
        at, classes = self.checkpoint, self.experiment.store.classes
        if parquet:
            ids, optimal = self.experiment.store.ids[self.phase.unlabelled], self.diagnostics.optimal
            record(refresh, self.state.products, at.epoch, ids=ids, classes=classes, optimal=optimal)
        at.row |= self.diagnostics.summary(refresh)
        if (guarded := at.row["n_guarded"]) != (at.history[-1]["n_guarded"] if at.history else 0):
            count = f"{guarded} of {len(classes)} classes"
            self.log([f"train: from epoch {at.epoch + 1} on {count} are guarded (n_guarded in history.csv)"])
        return self.keep_refresh(refresh.without_confidences())

    def keep_refresh(self, refresh: Refresh) -> Refresh:
        """Keep what the epoch trains on in the checkpoint."""
        at = self.checkpoint
        at.refresh = refresh = moved(refresh, self.experiment.runtime.device)
        at.carry = dict(refresh.carry)
        return refresh

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """What hidden labels tell about the pseudo-labels, for the record and the history."""
        return Diagnostics(self.experiment, self.phase.unlabelled)

    # -- the steps of an epoch

    def batches(self, source: Batches) -> Iterator[Batch]:
        """The batches of the epoch from the checkpoint's step on."""
        at, experiment = self.checkpoint, self.experiment
        self._source, self._steps = source, len(source.steps)
        at.row.setdefault("lr", self.optimisation.lr)  # of the epoch's first step; a resumed epoch reports the same
        requests = source.requests()
        views = experiment.inputs.views(experiment.runtime, requests, stage=self.stage, epoch=at.epoch, start=at.step)
        self.networks["raw"].train()
        images = [step.images for step in source.steps]
        done, coming = sum(images[: at.step]), iter(images[at.step :])
        rest = time_left([60 * row["minutes"] for row in at.costs], len(self.epochs))
        heading = f"{self.stage}, epoch {at.epoch + 1} of {self.phase.epochs}{rest and f', {rest} left'}"
        bar = progress(
            self.meter.steps(views),
            desc=heading,
            total=sum(images),
            unit="image",
            initial=done,
            count=lambda _: next(coming),
        )
        with closing(bar):
            for inputs in bar:
                torch.manual_seed(torch_seed(self.settings.seed, self.stage, at.epoch, at.step))  # dropout
                with self.autocast():
                    batch = source.make(at.step, inputs)
                yield batch
        self._check_finite()

    def update(self, terms: dict[str, Tensor], *groups: str) -> None:
        """Backward pass and AdamW for the sum of the loss terms, of the named parameter groups (all by default)."""
        at = self.checkpoint
        # A backward pass a term. In the warm-up of scored epochs alone: in an epoch of ten steps two passes cost a tenth.
        if at.step == 0 and len(terms) > 1 and not groups and (self.stage == "train" or self.is_evaluated):
            norms = self.optimisation.norms(list(terms.values()))  # on the device: no step waits for them
            at.row |= {name.replace("loss_", "grad_"): norm for name, norm in zip(terms, norms, strict=True)}
        total = torch.stack(list(terms.values())).sum()
        self.optimisation.update(total, groups)
        for name, value in {"loss": total, **terms}.items():
            at.sums[name] = at.sums.get(name, 0) + value.detach().double()

    def end_step(self) -> None:
        """One-cycle and EMA after the updates of a step. Every SAVE_SECONDS the state is saved, and where a signal asks for it.

        Raises:
            Stopped: after SIGINT or SIGTERM, with the state saved.
            DataError: when a loss or gradient was not finite; nothing is saved, the ids of the batch are written.
        """
        at = self.checkpoint
        self.optimisation.advance()
        at.step += 1
        if self.experiment.runtime.device.type == "cpu" or at.step % CHECK_EVERY == 0:
            self._check_finite()
        stop = bool(self.stop) and at.step < self._steps  # else the epoch is ended first
        if stop or time.monotonic() - self._saved > SAVE_SECONDS:
            self._check_finite()
            self._write(stop)

    @property
    def _progress(self) -> str:
        """What is done of the stage."""
        at = self.checkpoint
        return f"{at.epoch} of {self.phase.epochs} epochs{(at.step and f' and step {at.step}') or ''}"

    def _check_finite(self) -> None:
        bad = int(self.optimisation.first_bad_step)  # waits for the device
        if bad < 0:
            return
        step = max(self.checkpoint.step - (self.optimisation.steps - bad), 0)
        place = self.state.folder / "not_finite.txt"
        rows = np.unique(np.concatenate(self._source.rows(self._source.steps[step])))
        with replacing(place) as temporary:
            temporary.write_text("\n".join(self.experiment.store.ids[rows]) + "\n", encoding="utf-8")
        raise DataError(
            f"{self.stage}: the loss is not finite in step {step + 1} of epoch {self.checkpoint.epoch + 1}; the ids of its "
            f"images are in {place}. No weights were updated with it. Lower optimiser.lr, or look at these images"
        )

    # -- the end of an epoch

    @property
    def is_evaluated(self) -> bool:
        """Whether the test images are scored at the end of this epoch."""
        return (self.checkpoint.epoch + 1) % self._eval_every == 0 or self.checkpoint.epoch + 1 == self.phase.epochs

    def end_epoch(self) -> None:
        """Score the test images where it is due, add the epoch's rows to history and costs, and save the state.

        Raises Stopped after SIGINT or SIGTERM.
        """
        at = self.checkpoint
        if self.is_evaluated:
            with self.meter.timing("evaluation"):
                scores = {name: self.experiment.predict(net, self.experiment.roles.test) for name, net in self.networks.items()}
                at.row |= map_of_scores(self.experiment, scores)
        at.row = {name: float(value) if isinstance(value, Tensor) else value for name, value in at.row.items()}
        heading, told = f"{self.stage}, epoch {at.epoch + 1}", {term for row in at.history for term in ledger.idle(row)}
        self.log([f"{heading}: {ledger.in_words(*term)}" for term in ledger.idle(at.row).items() if term[0] not in told])
        means = {name: float(value) / self._steps for name, value in at.sums.items()}
        row = dict.fromkeys(HISTORY) | {"epoch": at.epoch, "steps": self._steps or None}
        at.history.append(row | means | at.row)
        at.costs.append(self.meter.row(at.epoch))
        self.meter.start({})
        at.epoch, at.step, at.row, at.sums, at.refresh = at.epoch + 1, 0, {}, {}, None
        self._write(bool(self.stop))

    def _write(self, stop: bool) -> None:
        """Write a generation of the state. Raises Stopped where that was asked for."""
        saved = vars(self.checkpoint) | {"spent": self.meter.spent()}
        self.state.save({"learner": self.learner.state_dict(), "checkpoint": saved})
        self._saved = time.monotonic()
        if stop:
            raise Stopped(f"{self.stage}: state saved after {self._progress}; run again to continue")


def moved(value: Any, device: torch.device) -> Any:
    """The tensors of nested containers on a device; all else as it is."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: moved(part, device) for name, part in value.items()}
    if isinstance(value, tuple):  # a named one
        return type(value)(*(moved(part, device) for part in value))
    return value
