"""The cost of an epoch: minutes by part, and peak memory. Costs change no result and are not part of a model."""

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

    A GPU computes asynchronously, so the time of a single step may be charged to a later step; the sum over steps is right.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.start({})

    def start(self, spent: dict[str, float]) -> None:
        """Begin an epoch, or continue an epoch that had `spent` these seconds when its checkpoint was saved."""
        self._spent = dict.fromkeys((*PARTS, "wall", "images"), 0.0) | spent
        self._begin = time.perf_counter()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)

    @contextmanager
    def timing(self, part: str) -> Iterator[None]:
        """Charge the block's time to `part`. The block must end with a result on the CPU."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._spent[part] += time.perf_counter() - begin

    def steps(self, batches: Iterator[dict[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
        """Pass the batches on. Waiting for a batch counts as `data`, the time until the next request counts as `step`."""
        while True:
            requested = time.perf_counter()
            batch = next(batches, None)
            received = time.perf_counter()
            if batch is None:
                return
            self._spent["images"] += sum(len(views) for views in batch.values())
            yield batch
            self._spent["data"] += received - requested
            self._spent["step"] += time.perf_counter() - received

    def spent(self) -> dict[str, float]:
        """Seconds of the epoch so far by part, its total seconds `wall`, and the number of `images` seen."""
        now = time.perf_counter()
        self._spent["wall"] += now - self._begin
        self._begin = now
        return dict(self._spent)

    def row(self, epoch: int) -> dict[str, Any]:
        """The epoch's row of cost.csv."""
        spent = self.spent()
        steps = spent["data"] + spent["step"]
        row: dict[str, Any] = {"epoch": epoch, "minutes": spent["wall"] / 60}
        row |= {f"minutes_{part}": spent[part] / 60 for part in PARTS}
        row["images_per_s"] = spent["images"] / steps if steps else None
        row["peak_memory_gb"] = torch.cuda.max_memory_allocated(self._device) / GIB if self._device.type == "cuda" else None
        unit = 1 if sys.platform == "darwin" else 1024  # macOS reports bytes, Linux KiB
        row["peak_resident_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / GIB
        return row
