"""The trainer of a stage. A loop calls its methods begin, batches, update, end_step, end_epoch and publish."""

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

CHECK_EVERY = 50  # steps between checks of the finite flag on a GPU, because each check waits for the device
SAVE_SECONDS = 300.0  # between checkpoints within an epoch: a kill loses at most this much work

Log = Callable[[list[str]], object]  # takes lines for the user


@dataclass
class Checkpoint:
    """The saved state of a stage, apart from the learner's networks and optimisers.

    Attributes:
        epoch, step: the next step to run.
        history, costs: one row per finished epoch; spent: seconds spent in this epoch, by part.
        row: values of this epoch's history row so far.
        sums: sums of the loss terms over this epoch's steps.
        refresh: this epoch's pseudo-labels and their tables, without confidences; None before they are made. With
            `Phase.relabel` it has confidences, and finished steps hold the labels that their batches got.
        carry: `Refresh.carry`, the tensors that the method keeps from epoch to epoch.
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
        checkpoint: progress of the stage.
        networks: {"raw": network, "ema": its average, if any}, on the device; set by `begin`.
    """

    def __init__(
        self, experiment: Experiment, stage: str, state: RunState, stop: StopSignal, log: Log, source: Path | None = None
    ) -> None:
        """`source`: the published folder of the previous stage."""
        self.experiment, self.stage, self.state, self.stop, self.log, self.source = experiment, stage, state, stop, log, source
        self.settings, self.method = experiment.settings, experiment.method
        self.checkpoint = Checkpoint()
        self.meter = Meter(experiment.runtime.device)
        self.autocast = experiment.runtime.autocast  # mixed precision, for the forward pass and the losses
        self._steps = 0  # per epoch; 0 for a stage that is solved instead of trained by steps
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
        """Begin a phase with a new optimiser, one-cycle and EMA (docs/methods.md 2.6, 2.7), or resume it from its checkpoint.

        Args:
            steps: per epoch.
            eval_every: epochs between evaluations on the test images.
            groups: parameter groups with their own optimisers; companions: networks trained together with this network.
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
        """Begin a phase, or resume it from its newest undamaged checkpoint.

        `learner` updates the networks and has `state_dict` and `load_state_dict`: an `Optimisation`, or a convex solution.
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
        """The remaining epochs."""
        return range(self.checkpoint.epoch, self.phase.epochs)

    def publish(self, evidence: Callable[[nn.Module], Evidence] | None = None) -> None:
        """Write models and history. The next stage starts from model.safetensors; model_raw or model_ema is its counterpart.

        `evidence`: computes a network's evidence; None: `dicap.training.evidence.evidence_of`.
        """
        at, e, folder = self.checkpoint, self.experiment, self.state.products
        published = self.phase.publishes if self.phase.publishes in self.networks else "raw"
        facts = {"settings": self.settings, "classes": e.store.classes, "stage": self.stage, "split": e.split_mark}
        for which, network in self.networks.items():
            own_evidence = evidence_of(e, network, self.stage) if evidence is None else evidence(network)
            attach_backbone(network)
            name = "model" if which == published else f"model_{which}"
            save_model(network, folder / f"{name}.safetensors", which=which, evidence=own_evidence, **facts)
        write_history(at.history, folder / "history.csv", HISTORY)
        write_history(at.costs, self.state.cost, COST)

    # -- pseudo-labels of an epoch

    @property
    def teacher(self) -> nn.Module:
        """The network whose scores become pseudo-labels: the EMA network if there is one."""
        return self.networks.get("ema", self.networks["raw"])

    def refresh(self, make: Callable[[Teacher], Refresh], *, recorded: bool = True, parquet: bool = True) -> Refresh:
        """The epoch's pseudo-labels: made by `make` from its teacher, or taken from the checkpoint.

        `recorded`: `record_refresh` records them, with or without `parquet`; else they are only kept in the checkpoint.
        """
        at, experiment = self.checkpoint, self.experiment
        if at.refresh is not None:
            return at.refresh
        with self.meter.timing("refresh"):
            refresh = make(EpochTeacher(experiment, self.teacher, self.networks["raw"], at.epoch, at.carry))
            return self.record_refresh(refresh, parquet=parquet) if recorded else self.keep_refresh(refresh)

    def record_refresh(self, refresh: Refresh, *, parquet: bool = True) -> Refresh:
        """Keep the epoch's pseudo-labels in the checkpoint and their summary in the history; with `parquet` write Parquet files.

        Returns:
            the refresh without confidences, which only the record and the diagnostics read.
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
        """Keep the epoch's pseudo-labels in the checkpoint."""
        at = self.checkpoint
        at.refresh = refresh = moved(refresh, self.experiment.runtime.device)
        at.carry = dict(refresh.carry)
        return refresh

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """Quality of the pseudo-labels by hidden labels, for the record and the history."""
        return Diagnostics(self.experiment, self.phase.unlabelled)

    # -- the steps of an epoch

    def batches(self, source: Batches) -> Iterator[Batch]:
        """The batches of the epoch, starting at the checkpoint's step."""
        at, experiment = self.checkpoint, self.experiment
        self._source, self._steps = source, len(source.steps)
        at.row.setdefault("lr", self.optimisation.lr)  # of the epoch's first step, also in a resumed epoch
        requests = source.requests()
        views = experiment.inputs.views(experiment.runtime, requests, stage=self.stage, epoch=at.epoch, start=at.step)
        self.networks["raw"].train()
        images = [step.images for step in source.steps]
        done, remaining = sum(images[: at.step]), iter(images[at.step :])
        duration = time_left([60 * row["minutes"] for row in at.costs], len(self.epochs))
        heading = f"{self.stage}, epoch {at.epoch + 1} of {self.phase.epochs}{duration and f', {duration} left'}"
        bar = progress(
            self.meter.steps(views),
            desc=heading,
            total=sum(images),
            unit="image",
            initial=done,
            count=lambda _: next(remaining),
        )
        with closing(bar):
            for inputs in bar:
                torch.manual_seed(torch_seed(self.settings.seed, self.stage, at.epoch, at.step))  # dropout
                with self.autocast():
                    batch = source.make(at.step, inputs)
                yield batch
        self._check_finite()

    def update(self, terms: dict[str, Tensor], *groups: str) -> None:
        """Backward pass and AdamW step on the sum of the loss terms, for the named parameter groups (default: all)."""
        at = self.checkpoint
        # The norms take one backward pass per term. The warm-up measures them only in evaluated epochs: its epochs are short.
        if at.step == 0 and len(terms) > 1 and not groups and (self.stage == "train" or self.is_evaluated):
            norms = self.optimisation.norms(list(terms.values()))  # they stay on the device: no step waits for them
            at.row |= {name.replace("loss_", "grad_"): norm for name, norm in zip(terms, norms, strict=True)}
        total = torch.stack(list(terms.values())).sum()
        self.optimisation.update(total, groups)
        for name, value in {"loss": total, **terms}.items():
            at.sums[name] = at.sums.get(name, 0) + value.detach().double()

    def end_step(self) -> None:
        """Advance one-cycle and EMA after the updates of a step. Save a checkpoint every SAVE_SECONDS and after a signal.

        Raises:
            Stopped: SIGINT or SIGTERM arrived; the checkpoint is saved.
            DataError: a loss or gradient was not finite; no checkpoint is saved, and a file lists the ids of the batch.
        """
        at = self.checkpoint
        self.optimisation.advance()
        at.step += 1
        if self.experiment.runtime.device.type == "cpu" or at.step % CHECK_EVERY == 0:
            self._check_finite()
        stop = bool(self.stop) and at.step < self._steps  # after the last step `end_epoch` stops
        if stop or time.monotonic() - self._saved > SAVE_SECONDS:
            self._check_finite()
            self._write(stop)

    @property
    def _progress(self) -> str:
        """Finished epochs and steps in words."""
        at = self.checkpoint
        return f"{at.epoch} of {self.phase.epochs} epochs{(at.step and f' and step {at.step}') or ''}"

    def _check_finite(self) -> None:
        bad = int(self.optimisation.first_bad_step)  # waits for the device
        if bad < 0:
            return
        step = max(self.checkpoint.step - (self.optimisation.steps - bad), 0)
        path = self.state.folder / "not_finite.txt"
        rows = np.unique(np.concatenate(self._source.rows(self._source.steps[step])))
        with replacing(path) as temporary:
            temporary.write_text("\n".join(self.experiment.store.ids[rows]) + "\n", encoding="utf-8")
        raise DataError(
            f"{self.stage}: the loss is not finite in step {step + 1} of epoch {self.checkpoint.epoch + 1}; the ids of its "
            f"images are in {path}. No weights were updated with it. Lower optimiser.lr, or look at these images"
        )

    # -- the end of an epoch

    @property
    def is_evaluated(self) -> bool:
        """Whether this epoch ends with an evaluation on the test images."""
        return (self.checkpoint.epoch + 1) % self._eval_every == 0 or self.checkpoint.epoch + 1 == self.phase.epochs

    def end_epoch(self) -> None:
        """Evaluate on the test images if `is_evaluated`, add the epoch's rows to history and costs, and save a checkpoint.

        Raises Stopped after SIGINT or SIGTERM.
        """
        at = self.checkpoint
        if self.is_evaluated:
            with self.meter.timing("evaluation"):
                scores = {name: self.experiment.predict(net, self.experiment.roles.test) for name, net in self.networks.items()}
                at.row |= map_of_scores(self.experiment, scores)
        at.row = {name: float(value) if isinstance(value, Tensor) else value for name, value in at.row.items()}
        heading, reported = f"{self.stage}, epoch {at.epoch + 1}", {term for row in at.history for term in ledger.idle(row)}
        self.log([f"{heading}: {ledger.in_words(*term)}" for term in ledger.idle(at.row).items() if term[0] not in reported])
        means = {name: float(value) / self._steps for name, value in at.sums.items()}
        row = dict.fromkeys(HISTORY) | {"epoch": at.epoch, "steps": self._steps or None}
        at.history.append(row | means | at.row)
        at.costs.append(self.meter.row(at.epoch))
        self.meter.start({})
        at.epoch, at.step, at.row, at.sums, at.refresh = at.epoch + 1, 0, {}, {}, None
        self._write(bool(self.stop))

    def _write(self, stop: bool) -> None:
        """Save a checkpoint; with `stop` raise Stopped afterwards."""
        saved = vars(self.checkpoint) | {"spent": self.meter.spent()}
        self.state.save({"learner": self.learner.state_dict(), "checkpoint": saved})
        self._saved = time.monotonic()
        if stop:
            raise Stopped(f"{self.stage}: checkpoint saved after {self._progress}; run again to continue")


def moved(value: Any, device: torch.device) -> Any:
    """A copy of nested containers with all tensors on a device; other values stay."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {name: moved(part, device) for name, part in value.items()}
    if isinstance(value, tuple):  # a named one
        return type(value)(*(moved(part, device) for part in value))
    return value
