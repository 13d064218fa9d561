"""The step loop all training stages share: views, losses, optimiser, finite check, stop and resume."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dicap.artifacts import replacing
from dicap.data.loader import Request, load
from dicap.errors import DataError, Stopped
from dicap.methods.base import Update
from dicap.progress import progress
from dicap.randomness import torch_seed
from dicap.runtime import Runtime
from dicap.training.aside import Aside
from dicap.training.cost import Meter
from dicap.training.experiment import Experiment
from dicap.training.optimisation import Optimisation
from dicap.training.state import RunState, StopSignal
from dicap.training.world import Alone

CHECK_EVERY = 50  # steps between looks at the finite flag on a GPU, where each look waits for the device
SAVE_SECONDS = 300.0  # at most so much of an epoch is lost to a kill

# The updates of a step, made one after the other: an update may be computed after the one before was applied.
StepLoss = Callable[[int, dict[str, Tensor]], Iterable[Update]]


class Progress:
    """Where a stage stands, and how it continues from a saved state.

    Attributes:
        epoch, step: the next step to take.
        history: a row per finished epoch; costs: as many, of what each took.
        memory: tensors the stage keeps over an epoch (pseudo-labels and their tables).
        carry: tensors the method keeps from epoch to epoch.
        best: the best epoch by validation mAP (`dicap.training.selection`).
    """

    def __init__(self, state: RunState, stop: StopSignal, optimisation: Optimisation, world: Alone) -> None:
        self.state, self.stop, self.optimisation, self.world = state, stop, optimisation, world
        self.epoch, self.step = 0, 0
        self.history: list[dict[str, Any]] = []
        self.costs: list[dict[str, Any]] = []
        self.aside = Aside()
        self.meter = Meter(optimisation.first_bad_step.device)
        self.memory: dict[str, Any] = {}
        self.carry: dict[str, Tensor] = {}
        self.best: dict[str, Any] = {}
        self.sums: dict[str, Tensor] = {}
        self._saved = time.monotonic()

    def resume(self) -> list[str]:
        """Continue from the newest whole generation, if there is one; returns lines worth telling."""
        saved, lines = self.world.same(self.state.load)
        if saved is not None:
            self.optimisation.load_state_dict(saved["optimisation"])
            self.epoch, self.step, self.history, self.memory = (saved[k] for k in ("epoch", "step", "history", "memory"))
            self.carry, self.best, self.costs = saved["carry"], saved["best"], saved["costs"]
            self.meter.start(saved["spent"])
            self.sums = {name: value.to(self.optimisation.first_bad_step.device) for name, value in saved["sums"].items()}
            if not self.world.first:  # the sum so far is one process's to carry on
                self.sums = {name: torch.zeros_like(value) for name, value in self.sums.items()}
            lines.append(f"resuming {self.state.stage} at epoch {self.epoch}, step {self.step}")
        return lines

    def save(self) -> None:
        """Write a generation of the state; the first process does, with the sums of all."""
        self.aside.wait()  # a state must not know of an epoch's files before they are whole
        sums, self._saved = self._total(), time.monotonic()
        if not self.world.first:
            return
        self.state.save(
            {
                "optimisation": self.optimisation.state_dict(),
                "epoch": self.epoch,
                "step": self.step,
                "history": self.history,
                "costs": self.costs,
                "spent": self.meter.spent(),
                "memory": self.memory,
                "carry": self.carry,
                "best": self.best,
                "sums": sums,
            }
        )
        self._saved = time.monotonic()

    def _total(self) -> dict[str, Tensor]:
        """The sums over the processes."""
        sums = {name: value.clone() for name, value in sorted(self.sums.items())}
        self.world.sum_(list(sums.values()))
        return {name: sums[name] for name in self.sums}

    def run_epoch(
        self,
        experiment: Experiment,
        stage: str,
        rows: Sequence[np.ndarray],
        steps: Sequence[Sequence[Request]],
        loss: StepLoss,
        *,
        epochs: int,
    ) -> dict[str, float]:
        """Take the steps of this epoch from `self.step` on.

        Args:
            rows: the images of every step, of all processes.
            steps: the requests of every step, of this process.
            loss: (step, views) -> updates with the terms of their loss by name.

        Returns:
            Means of the loss terms over the epoch's steps, and the learning rate of its first one.

        Raises:
            Stopped: after SIGINT or SIGTERM, with the state saved.
            DataError: when a loss or gradient was not finite; nothing is saved, the ids of the batch are written.
        """
        s, runtime, optimisation = experiment.settings, experiment.runtime, self.optimisation
        first = self.step
        if first == 0:
            self.memory["lr"] = optimisation.lr  # kept with the state: a resumed epoch reports the same
        views = load(
            experiment.store, steps, seed=s.seed, stage=stage, epoch=self.epoch, workers=runtime.workers,
            device=runtime.device, start=first, data_on=runtime.data_on,  # type: ignore[arg-type]
        )  # fmt: skip
        optimisation.network.train()
        stream = stage if self.world.first else f"{stage}/{self.world.rank}"  # other images, other dropout
        bar = progress(
            self.meter.steps(views), desc=f"{stage} {self.epoch + 1}/{epochs}", total=len(steps), unit="step", initial=first
        )
        with self.aside, closing(bar):
            for batch in bar:
                torch.manual_seed(torch_seed(s.seed, stream, self.epoch, self.step))  # dropout
                with runtime.autocast():
                    updates = loss(self.step, batch)
                self._learn(runtime, optimisation, updates)
                optimisation.advance()
                self.step += 1
                if runtime.device.type == "cpu" or self.step % CHECK_EVERY == 0:
                    self._check_finite(experiment, stage, rows)
                stop, save = self.world.agree(bool(self.stop), self._due())
                if stop and self.step < len(steps):
                    self._check_finite(experiment, stage, rows)
                    self.save()
                    raise Stopped(f"{stage}: state saved at epoch {self.epoch}, step {self.step}; run again to continue")
                if save:
                    self._check_finite(experiment, stage, rows)
                    self.save()
        self._check_finite(experiment, stage, rows)
        means = {name: float(value) / len(steps) for name, value in self._total().items()}
        self.step, self.sums = 0, {}
        means["lr"] = self.memory["lr"]
        return means

    def _learn(self, runtime: Runtime, optimisation: Optimisation, updates: Iterable[Update]) -> None:
        """Take the updates of one batch, one after the other: each is computed after the one before it has moved its players."""
        waiting = iter(updates)
        while True:
            with runtime.autocast():
                update = next(waiting, None)
            if update is None:
                return
            total = torch.stack(list(update.terms.values())).sum()
            optimisation.update(total, update.players)
            for name, value in {"loss": total, **update.terms}.items():
                value = value.detach().double()
                self.sums[name] = self.sums[name] + value if name in self.sums else value

    def end_epoch(self, row: dict[str, Any]) -> None:
        """Record the epoch, save, and stop here if asked to."""
        self.history.append(row)
        self.costs.append(self.meter.row(self.epoch))
        self.meter.start({})
        self.epoch += 1
        self.memory = {}
        self.save()
        if self.world.any(bool(self.stop)):
            raise Stopped(f"{self.state.stage}: state saved after epoch {self.epoch - 1}; run again to continue")

    def _due(self) -> bool:
        """Whether it is time to save; answered once, the saving may follow a step later."""
        now = time.monotonic()
        if now - self._saved <= SAVE_SECONDS:
            return False
        self._saved = now
        return True

    def _check_finite(self, experiment: Experiment, stage: str, rows: Sequence[np.ndarray]) -> None:
        bad = int(self.optimisation.first_bad_step)  # waits for the device
        if bad < 0:
            return
        step = self.step - (self.optimisation.steps - bad)
        place = self.state.folder / "not_finite.txt"
        if self.world.first:
            with replacing(place) as temporary:
                temporary.write_text("\n".join(experiment.store.ids[np.unique(rows[max(step, 0)])]) + "\n", encoding="utf-8")
        raise DataError(
            f"{stage}: the loss is not finite at epoch {self.epoch}, step {step}; the ids of its images are in {place}. "
            "No weights were updated with it. Lower optimiser.lr, or look at these images"
        )
