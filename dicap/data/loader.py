"""Batches of views for training, and of plain images for scoring.

A view of an image is a pure function of (seed, stage, epoch, row, view, key of the request). It does not depend on the number of
worker processes, the order of the steps, or the step at which a run was resumed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from dicap.data.augment import View, render_batch
from dicap.data.policy import COLUMNS
from dicap.data.store import Store
from dicap.errors import DataError, first_line
from dicap.machine.processes import cores
from dicap.randomness import uniform


class Request(NamedTuple):
    """A request for views of some images in one step.

    Attributes:
        key: name of the result and of the stream of random numbers: requests with different keys draw independently.
        rows: (B,) int64 rows of the store.
        drawn_by: (B,) uint64 that seed the random numbers of each image; None: the rows.
    """

    key: str
    rows: np.ndarray
    view: View
    drawn_by: np.ndarray | None = None


def load(
    store: Store,
    steps: Sequence[Sequence[Request]],
    *,
    seed: int,
    stage: str,
    epoch: int,
    workers: int | None = None,
    device: str | torch.device = "cpu",
    start: int = 0,
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield the batches of an epoch, one dict per step, from step `start` on.

    Args:
        workers: processes that make views; None: chosen from the number of cores; 0: views are made in this process.

    Yields:
        {key: (B, 3, H, W) uint8}, or (B, 4, 3, H, W) with tiles, on `device`. The memory format stays channels last, because
        reordering the bytes would cost more than reading them.
    """
    device = torch.device(device)
    dataset = _Steps(store, steps, seed, stage, epoch)
    order = range(start, len(steps))
    count = min(worker_count() if workers is None else workers, len(order))
    loader = DataLoader(
        dataset,
        batch_size=None,
        sampler=order,
        num_workers=count,
        worker_init_fn=_one_thread,
        pin_memory=device.type == "cuda",
        prefetch_factor=4 if count else None,
        # A separate generator, because DataLoader would draw a number per epoch from torch's global generator.
        generator=torch.Generator(),
    )
    try:
        for batch in loader:
            yield {key: views.to(device, non_blocking=True) for key, views in batch.items()}
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        raise DataError(
            f"{store.folder}: a worker process died ({first_line(error)}); "
            "use fewer workers with --workers, or 0 for none (often the memory or /dev/shm is full)"
        ) from None


def scoring_batches(
    store: Store,
    rows: np.ndarray,
    batch_size: int,
    *,
    flip: tuple[int, str, int] | None = None,
    flip_share: float = 0.5,
    put: Callable[[torch.Tensor], torch.Tensor] = lambda images: images,
) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
    """Yield images in the order of `rows`, read from the store, for passes without strong views.

    Args:
        rows: (n,) int64, the images to yield.
        flip: (seed, stage, epoch) for the weak view, None for the test view.
        flip_share: probability of mirroring in the weak view.

    Yields:
        (rows of the batch, (B, 3, H, W) uint8, channels last in memory as in the file).
    """
    rows = np.asarray(rows, dtype=np.int64)
    flipped = uniform(*flip, rows, "score/weak") < flip_share if flip else np.zeros(len(rows), dtype=bool)
    for first in range(0, len(rows), batch_size):
        batch = rows[first : first + batch_size]
        images = store.read(batch)
        mirrored = torch.from_numpy(np.flatnonzero(flipped[first : first + batch_size]))
        if len(mirrored):
            images[mirrored] = images[mirrored].flip(3)
        yield batch, put(images)


def draws(seed: int, stage: str, epoch: int, request: Request) -> np.ndarray:
    """The random numbers of a request's views, (B, parts, COLUMNS) in [0, 1)."""
    view = request.view
    out = np.zeros((len(request.rows), view.parts, COLUMNS))
    columns = {"test": 0, "weak": 1, "strong": COLUMNS}[view.name]  # only the numbers that the view uses are drawn
    seeds = request.rows if request.drawn_by is None else request.drawn_by
    for part in range(view.parts):
        for column in range(columns):
            stream = f"{request.key}/{view.name}/{part}/{column}"
            out[:, part, column] = uniform(seed, stage, epoch, seeds, stream)
    return out


def worker_count() -> int:
    """Default number of worker processes: 0 on one or two cores, where workers would only compete with the training process."""
    available = cores()
    return 0 if available <= 2 else min(available - 1, 12)


class _Steps(Dataset):
    """The steps of an epoch; item i is the whole batch of step i."""

    def __init__(self, store: Store, steps: Sequence[Sequence[Request]], seed: int, stage: str, epoch: int) -> None:
        self._store, self._steps = store, steps
        self._counters = seed, stage, epoch

    def __len__(self) -> int:
        return len(self._steps)

    def __getitem__(self, step: int) -> dict[str, torch.Tensor]:
        batches = {}
        for request in self._steps[step]:
            views = render_batch(self._store.pixels(request.rows), request.view, draws(*self._counters, request))
            batches[request.key] = torch.from_numpy(views).movedim(-1, -3)
        return batches


def _one_thread(_worker: int) -> None:
    # One thread per worker: with torch's default all threads of all workers compete, and the loader was 100 times slower.
    torch.set_num_threads(1)
