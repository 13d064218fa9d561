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

    A GPU computes while the host goes on, which waits for it in some later step: of the steps together the time is right.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.start({})

    def start(self, spent: dict[str, float]) -> None:
        """Begin an epoch, or continue one that had `spent` so much when its state was saved."""
        self._spent = dict.fromkeys((*PARTS, "wall", "images"), 0.0) | spent
        self._begin = time.perf_counter()
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
            yield batch
            self._spent["data"] += came - asked
            self._spent["step"] += time.perf_counter() - came

    def spent(self) -> dict[str, float]:
        """Seconds of the epoch so far by part, `wall` seconds of all of it, and the `images` seen."""
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
