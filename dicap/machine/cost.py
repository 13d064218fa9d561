"""What an epoch costs: where its minutes go, and the most memory it held. Changes no result and reaches no model."""

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

GIB = 2**30
PARTS = ("data", "step", "refresh", "evaluation")  # step: forward, losses, backward, optimiser, EMA


class Meter:
    """Adds up the seconds of an epoch by part.

    On a GPU the host runs ahead of the device, and asking for the time would hold it up. There each step is bracketed by two
    events on the device's stream, which are read when the epoch ends: `step` is the time between them, and `data` is
    what else passed while the steps were taken, in which the device waited for its next batch.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.start({})

    def start(self, spent: dict[str, float]) -> None:
        """Begin an epoch, or continue one that had `spent` so much when its state was saved."""
        self._spent = dict.fromkeys((*PARTS, "wall", "images"), 0.0) | spent
        self._begin = time.perf_counter()
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._host = 0.0  # seconds of the steps behind the events, waiting for their batches included
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)

    @contextmanager
    def timing(self, part: str) -> Iterator[None]:
        """Charge what happens inside, which must end with a result on the host, to `part`."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._spent[part] += time.perf_counter() - begin

    def steps(self, batches: Iterator[dict[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
        """Pass the batches on and measure: the data's time until one comes, then the step's until the next is asked for."""
        while True:
            asked = time.perf_counter()
            batch = next(batches, None)
            came = time.perf_counter()
            if batch is None:
                return
            self._spent["images"] += sum(len(views) for views in batch.values())
            if self._device.type != "cuda":
                yield batch
                self._spent["data"] += came - asked
                self._spent["step"] += time.perf_counter() - came
                continue
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            yield batch
            end.record()
            self._events.append((begin, end))
            self._host += time.perf_counter() - asked

    def spent(self) -> dict[str, float]:
        """Seconds of the epoch so far by part, `wall` seconds of all of it, and the `images` seen. Waits for the device."""
        if self._events:
            waiting = time.perf_counter()
            torch.cuda.synchronize(self._device)
            self._host += time.perf_counter() - waiting
            busy = sum(begin.elapsed_time(end) for begin, end in self._events) / 1000
            self._spent["step"] += busy
            self._spent["data"] += max(self._host - busy, 0.0)
            self._events, self._host = [], 0.0
        now = time.perf_counter()
        self._spent["wall"] += now - self._begin
        self._begin = now
        return dict(self._spent)

    def row(self, epoch: int) -> dict[str, Any]:
        """The epoch's line of cost.csv."""
        spent = self.spent()
        steps = spent["data"] + spent["step"]
        row: dict[str, Any] = {"epoch": epoch, "minutes": spent["wall"] / 60}
        row |= {f"minutes_{part}": spent[part] / 60 for part in PARTS}
        row["images_per_s"] = spent["images"] / steps if steps else None
        row["peak_memory_gb"] = torch.cuda.max_memory_allocated(self._device) / GIB if self._device.type == "cuda" else None
        unit = 1 if sys.platform == "darwin" else 1024  # bytes of what the system counts in
        row["peak_resident_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB
        return row
