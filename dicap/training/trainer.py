"""A stage in progress: what the loops of warm-up, main stage and fine-tuning share, so that they hold the algorithm alone."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dicap.errors import DataError, Stopped
from dicap.files.artifacts import COST, HISTORY, replacing, write_history
from dicap.machine.cost import Meter
from dicap.machine.progress import progress, time_left
from dicap.methods.base import Batch, ParamGroup, Phase, Refresh, Teacher
from dicap.models import save_model
from dicap.network import restore_backbone
from dicap.randomness import torch_seed
from dicap.training.batches import Batches
from dicap.training.checkpoint.background import BackgroundWriter
from dicap.training.checkpoint.state import RunState, StopSignal
from dicap.training.decisions import CurveSource, decisions_of
from dicap.training.diagnostics import Diagnostics, map_on_test
from dicap.training.experiment import Experiment
from dicap.training.optimisation import Optimisation
from dicap.training.records import record
from dicap.training.selection import Selection
from dicap.training.teacher import EpochTeacher

CHECK_EVERY = 50  # steps between looks at the finite flag on a GPU, where each look waits for the device
SAVE_SECONDS = 300.0  # at most so much of an epoch is lost to a kill

Tell = Callable[[list[str]], None]


class Learner(Protocol):
    """What changes the networks of a stage, and how far it has come."""

    def state_dict(self) -> dict[str, Any]:
        """Plain containers of tensors."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        ...


class Trainer:
    """Saves, resumes, stops, scores and records a stage; a loop asks it for epochs and batches and hands it losses.

    Attributes:
        epoch, step: the next step to take.
        history: one row per finished epoch; costs: as many, of what each took.
        memory: tensors the stage keeps over an epoch (pseudo-labels and their tables).
        carry: tensors the method keeps from epoch to epoch.
        sums: of the loss terms over this process's steps of the epoch.
    """

    def __init__(
        self, experiment: Experiment, stage: str, state: RunState, stop: StopSignal, tell: Tell, source: Path | None = None
    ) -> None:
        """`source`: the folder that the stage before published."""
        self.source = source
        self.experiment, self.stage, self.state, self.stop, self.tell = experiment, stage, state, stop, tell
        self.settings, self.method, self.group = experiment.settings, experiment.method, experiment.group
        self.epoch, self.step = 0, 0
        self.history: list[dict[str, Any]] = []
        self.costs: list[dict[str, Any]] = []
        self.background = BackgroundWriter()
        self.meter = Meter(experiment.runtime.device)
        self.memory: dict[str, Any] = {}
        self.carry: dict[str, Tensor] = {}
        self.sums: dict[str, Tensor] = {}
        self._steps = 0  # of the epoch; none where the stage is solved
        self._weight = 1.0  # of this process's losses in the step
        self._row: dict[str, Any] = {}  # what the loop adds to the epoch's row of the history
        self._saved = time.monotonic()

    # -- the stage

    def begin(
        self,
        network: nn.Module,
        phase: Phase,
        *,
        steps: int,
        eval_every: int,
        patience: int | None = None,
        ema_decay: float | None = None,
        groups: Sequence[ParamGroup] = (),
        companions: nn.ModuleDict | None = None,
    ) -> nn.Module:
        """A new optimiser, cycle and EMA for the network (docs/methods.md 2.6, 2.7), or those of the saved state to resume.

        Args:
            steps: of an epoch.
            eval_every: epochs between scores of the test images; patience: of early stopping, None: none.
            groups: tensors with optimisers of their own; companions: networks trained beside this one and no part of it.

        Returns:
            the network, to be trained.
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
            group=self.group,
            param_groups=groups,
        )
        networks = {"raw": network, "ema": self.optimisation.ema}
        self.begin_with(self.optimisation, networks, phase, eval_every=eval_every, patience=patience)
        return network

    def begin_with(
        self, learner: Learner, networks: dict[str, nn.Module], phase: Phase, *, eval_every: int, patience: int | None = None
    ) -> None:
        """Begin a phase that is not trained by gradient steps, or the common part of one that is.

        Args:
            learner: what changes the networks, saved with the stage's state.
            networks: raw, and ema where there is an average, on the device.
        """
        self.learner, self.networks, self.phase, self._eval_every = learner, networks, phase, eval_every
        self.selection = Selection(self.experiment, self.networks, phase.publishes, patience)
        self._resume()

    def epochs(self) -> Iterator[int]:
        """The epochs still to train; after each, its row of the history, and the state on disk. At the end the best weights."""
        while self.epoch < self.phase.epochs and not self.selection.is_over(self.epoch):
            yield self.epoch
            self._end_epoch()
        self.tell(self.selection.restore(self.stage, self.epoch))

    def publish(self, source: CurveSource | None = None) -> None:
        """model.safetensors is what the next stage starts from; its counterpart is beside it under its own name."""
        first = self.phase.publishes if self.phase.publishes in self.networks else "raw"
        names = {first: "model"} | {which: f"model_{which}" for which in self.networks if which != first}
        # All processes score the images that the decisions are counted on; one writes.
        decisions = {which: decisions_of(self.experiment, self.networks[which], self.stage, source) for which in names}
        for network in self.networks.values():
            restore_backbone(network)
        if not self.group.is_main:
            return
        folder = self.state.products
        common = {"settings": self.settings, "classes": self.experiment.store.classes, "stage": self.stage}
        for which, name in names.items():
            place = folder / f"{name}.safetensors"
            save_model(self.networks[which], place, which=which, decisions=decisions[which], **common)
        write_history(self.history, folder / "history.csv", HISTORY)
        write_history(self.costs, self.state.cost, COST)

    # -- pseudo-labels of an epoch

    @property
    def teacher(self) -> nn.Module:
        """The network whose scores become pseudo-labels."""
        return self.networks.get(self.settings.calibration.teacher, self.networks["raw"])

    def refresh(self, make: Callable[[Teacher], Refresh], *, teacher: Teacher | None = None, recorded: bool = True) -> Refresh:
        """What `make` makes of the epoch's teacher, once per epoch: a resumed epoch goes on with what was saved.

        Args:
            teacher: whose scores become pseudo-labels; None: the network's, or its average's (calibration.teacher).
            recorded: whether the pseudo-labels, weights and thresholds are written as Parquet.

        Returns:
            the refresh without its confidences: only its record and its diagnostics read them.
        """
        device = self.experiment.runtime.device
        if "refresh" not in self.memory:
            if teacher is None:
                teacher = EpochTeacher(self.experiment, self.teacher, self.networks["raw"], self.epoch, self.carry)
            with self.meter.timing("refresh"):
                refresh = make(teacher)
                if recorded and self.group.is_main:
                    on_host = Refresh.from_state_dict(refresh.state_dict(), torch.device("cpu"))
                    self.background.start(partial(self._record, on_host, self.epoch))
            self._tell_guarded(refresh)
            row = self.diagnostics.summary(refresh) if self.group.is_main else {}
            self.memory = {"refresh": refresh.without_confidences().state_dict(), "row": row}
            self.carry = dict(refresh.carry)
            if self.phase.install is not None:
                for network in self.networks.values():
                    self.phase.install(network, refresh)
        self._row = dict(self.memory["row"])
        return Refresh.from_state_dict(self.memory["refresh"], device)

    # -- the steps of an epoch

    def batches(self, source: Batches) -> Iterator[Batch]:
        """The batches of this epoch from `self.step` on; between them: finite check, save, stop.

        Raises:
            Stopped: after SIGINT or SIGTERM, with the state saved.
            DataError: when a loss or gradient was not finite; nothing is saved, the ids of the batch are written.
        """
        first, steps = self.step, len(source.steps)
        self._steps = steps
        if first == 0:
            self.memory["lr"] = self.optimisation.lr  # kept with the state: a resumed epoch reports the same
        experiment = self.experiment
        views = experiment.inputs.views(experiment.runtime, source.requests(), stage=self.stage, epoch=self.epoch, start=first)
        self.networks["raw"].train()
        stream = self.stage if self.group.is_main else f"{self.stage}/{self.group.rank}"  # other images, other dropout
        bar = progress(self.meter.steps(views), desc=self._heading(), total=steps, unit="step", initial=first)
        with self.background, closing(bar):
            for inputs in bar:
                torch.manual_seed(torch_seed(self.settings.seed, stream, self.epoch, self.step))  # dropout
                self._weight = source.weights[self.step]
                with self.autocast():
                    batch = source.make(self.step, inputs)
                yield batch
                self.step += 1
                if self.experiment.runtime.device.type == "cpu" or self.step % CHECK_EVERY == 0:
                    self._check_finite(source)
                stop, save = self.group.agree(bool(self.stop), self._is_save_due())
                if stop and self.step < steps:
                    self._check_finite(source)
                    self._save()
                    raise Stopped(f"{self.stage}: state saved at epoch {self.epoch}, step {self.step}; run again to continue")
                if save:
                    self._check_finite(source)
                    self._save()
        self._check_finite(source)

    def autocast(self) -> AbstractContextManager:
        """Mixed precision, for the forward pass and the losses."""
        return self.experiment.runtime.autocast()

    def update(self, terms: dict[str, Tensor], *groups: str) -> None:
        """Backward pass and AdamW for the sum of the loss terms, of the named parameter groups (all by default)."""
        if self._weight != 1:
            terms = {name: self._weight * value for name, value in terms.items()}
        total = torch.stack(list(terms.values())).sum()
        self.optimisation.update(total, groups)
        for name, value in {"loss": total, **terms}.items():
            value = value.detach().double()
            self.sums[name] = self.sums[name] + value if name in self.sums else value

    def log(self, **values: float) -> None:
        """Values for the epoch's row of the history."""
        self._row |= values

    @property
    def is_evaluated(self) -> bool:
        """Whether the test images are scored at the end of this epoch."""
        return (self.epoch + 1) % self._eval_every == 0 or self.epoch + 1 == self.phase.epochs

    def advance(self) -> None:
        """After the updates of a step: one-cycle and EMA."""
        self.optimisation.advance()

    def _heading(self) -> str:
        """The bar's first words: the epoch, counted from 0 as everywhere, of the last one, and what the stage has left."""
        rest = time_left([60 * row["minutes"] for row in self.costs], self.phase.epochs - self.epoch)
        return f"{self.stage}, epoch {self.epoch} of 0 to {self.phase.epochs - 1}{rest and f', {rest} left'}"

    # -- the end of an epoch

    def _end_epoch(self) -> None:
        means = {name: float(value) / self._steps for name, value in self._total().items()} | {"lr": self.memory.get("lr")}
        self.step, self.sums = 0, {}
        scores: dict[str, float] = {}
        if self.is_evaluated:
            with self.meter.timing("evaluation"):
                scores = map_on_test(self.experiment, self.networks)
        row = dict.fromkeys(HISTORY) | {"epoch": self.epoch, "steps": self._steps or None}
        self.history.append(row | means | scores | self._row | self.selection.judge(self.epoch))
        self.costs.append(self.meter.row(self.epoch))
        self.meter.start({})
        self.epoch += 1
        self.memory, self._row = {}, {}
        self._save()
        if self.group.any(bool(self.stop)):
            raise Stopped(f"{self.stage}: state saved after epoch {self.epoch - 1}; run again to continue")

    def _total(self) -> dict[str, Tensor]:
        """The sums over the processes."""
        sums = {name: value.clone() for name, value in sorted(self.sums.items())}
        self.group.all_reduce_(list(sums.values()))
        return {name: sums[name] for name in self.sums}

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """What hidden labels tell about the pseudo-labels, for the record and the history."""
        return Diagnostics.of(self.experiment, self.phase.unlabelled)

    def _record(self, refresh: Refresh, epoch: int) -> None:
        store, bins = self.experiment.store, self.settings.calibration.bins
        ids, optimal = store.ids[self.phase.unlabelled], self.diagnostics.optimal
        record(refresh, self.state.products, epoch, ids=ids, classes=store.classes, bins=bins, optimal=optimal)

    def _tell_guarded(self, refresh: Refresh) -> None:
        if refresh.guarded != (self.history[-1].get("n_guarded", 0) if self.history else 0):
            count = f"{refresh.guarded} of {len(self.experiment.store.classes)} classes"
            self.tell([f"train: from epoch {self.epoch} on {count} are guarded (n_guarded in history.csv)"])

    # -- state

    def _resume(self) -> None:
        """Continue from the newest whole generation, if there is one."""
        saved, lines = self.group.broadcast(self.state.load)
        if saved is not None:
            self.learner.load_state_dict(saved["learner"])
            self.epoch, self.step, self.history, self.memory = (saved[k] for k in ("epoch", "step", "history", "memory"))
            self.carry, self.selection.best, self.costs = saved["carry"], saved["best"], saved["costs"]
            self.meter.start(saved["spent"])
            device = self.experiment.runtime.device
            self.sums = {name: value.to(device) for name, value in saved["sums"].items()}
            if not self.group.is_main:  # the sum so far is one process's to carry on
                self.sums = {name: torch.zeros_like(value) for name, value in self.sums.items()}
            lines.append(f"resuming {self.stage} at epoch {self.epoch}, step {self.step}")
        self.tell(lines)

    def _save(self) -> None:
        """Write a generation of the state; the main process does, with the sums of all."""
        self.background.wait()  # a state must not know of an epoch's files before they are whole
        sums, self._saved = self._total(), time.monotonic()
        if not self.group.is_main:
            return
        self.state.save(
            {
                "learner": self.learner.state_dict(),
                "epoch": self.epoch,
                "step": self.step,
                "history": self.history,
                "costs": self.costs,
                "spent": self.meter.spent(),
                "memory": self.memory,
                "carry": self.carry,
                "best": self.selection.best,
                "sums": sums,
            }
        )
        self._saved = time.monotonic()

    def _is_save_due(self) -> bool:
        """Whether it is time to save; answered once, the saving may follow a step later."""
        now = time.monotonic()
        if now - self._saved <= SAVE_SECONDS:
            return False
        self._saved = now
        return True

    def _check_finite(self, source: Batches) -> None:
        bad = int(self.optimisation.first_bad_step)  # waits for the device
        if bad < 0:
            return
        step = max(self.step - (self.optimisation.steps - bad), 0)
        place = self.state.folder / "not_finite.txt"
        if self.group.is_main:
            ids = self.experiment.store.ids[np.unique(np.concatenate(source.rows(source.steps[step])))]
            with replacing(place) as temporary:
                temporary.write_text("\n".join(ids) + "\n", encoding="utf-8")
        raise DataError(
            f"{self.stage}: the loss is not finite at epoch {self.epoch}, step {step}; the ids of its images are in {place}. "
            "No weights were updated with it. Lower optimiser.lr, or look at these images"
        )
