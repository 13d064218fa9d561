"""Plans which images each step uses, as a pure function of (seed, stage, epoch, step)."""

from typing import NamedTuple

import numpy as np

from dicap.methods.base import Phase
from dicap.randomness import permutation


class Step(NamedTuple):
    """Positions (not rows) within `Phase.labelled` (b_l,) and within `Phase.unlabelled` (b_u,)."""

    labelled: np.ndarray
    unlabelled: np.ndarray

    @property
    def images(self) -> int:
        """Number of images of both kinds."""
        return len(self.labelled) + len(self.unlabelled)


def chunks(order: np.ndarray, size: int) -> list[np.ndarray]:
    """Consecutive pieces of `size`; a single last image joins the previous piece, because BatchNorm needs two."""
    pieces = [order[start : start + size] for start in range(0, len(order), size)]
    if len(pieces) > 1 and len(pieces[-1]) == 1:
        pieces[-2:] = [np.concatenate(pieces[-2:])]
    return pieces


def cycled(n: int, start: int, count: int, *, seed: int, stage: str, stream: str) -> np.ndarray:
    """Elements start .. start + count - 1 of an endless stream of shuffled passes over 0 .. n - 1.

    Empty if n is 0.
    """
    positions = np.arange(start, start + count if n else start)
    out = positions % n
    for number in np.unique(positions // n):
        in_pass = positions // n == number
        out[in_pass] = permutation(seed, stage, int(number), n, stream)[out[in_pass]]
    return out


def labelled_plan(phase: Phase, *, seed: int, stage: str, epoch: int) -> list[Step]:
    """One pass of warm-up or fine-tuning over D_l or D_est; each step adds as many unlabelled images (docs/methods.md 3.3).

    Without unlabelled images the steps hold labelled images only.
    """
    steps, start = [], epoch * len(phase.labelled)
    for labelled in chunks(permutation(seed, stage, epoch, len(phase.labelled), "labelled"), phase.batch_labelled):
        unlabelled = cycled(len(phase.unlabelled), start, len(labelled), seed=seed, stage=stage, stream="unlabelled")
        steps.append(Step(labelled, unlabelled))
        start += len(labelled)
    return steps


def warmup_plan(phase: Phase, *, over: str, seed: int, epoch: int) -> list[Step]:
    """One pass of the warm-up over the images named by warmup.over; without unlabelled images over D_l (docs/methods.md 3.3)."""
    plan = main_plan if over == "unlabelled" and len(phase.unlabelled) else labelled_plan
    return plan(phase, seed=seed, stage="warmup", epoch=epoch)


def main_plan(phase: Phase, *, seed: int, stage: str, epoch: int) -> list[Step]:
    """One pass over D_unsup, with labelled images cycled alongside (docs/methods.md 2.8, 3.8)."""
    pieces = chunks(permutation(seed, stage, epoch, len(phase.unlabelled), "unlabelled"), phase.batch_unlabelled)
    n, batch, shared = len(phase.labelled), phase.batch_labelled, {"seed": seed, "stage": stage, "stream": "labelled"}
    numbers = range(epoch * len(pieces), (epoch + 1) * len(pieces))  # of the steps, counted over all epochs
    return [Step(cycled(n, i * batch, batch, **shared), piece) for i, piece in zip(numbers, pieces, strict=True)]


def pool_plan(n_labelled: int, adopted: np.ndarray, batch: int, steps: int, *, seed: int, epoch: int) -> list[Step]:
    """Steps of `batch` images from the pool (labelled or adopted) and `batch` other images (DRML, docs/methods.md 4.5).

    Args:
        adopted: (n_unlabelled,) bool. Within a step's unlabelled images the adopted images come first.
    """
    inside, outside = np.flatnonzero(adopted), np.flatnonzero(~adopted)
    pool = n_labelled + len(inside)
    shared = {"seed": seed, "stage": f"train/{epoch}"}  # new permutations every epoch, because the pool changes
    plan = []
    for i in range(steps):
        drawn = cycled(pool, i * batch, batch, stream="pool", **shared)
        others = cycled(len(outside), i * batch, batch, stream="others", **shared)
        labelled = drawn[drawn < n_labelled]
        plan.append(Step(labelled, np.concatenate([inside[drawn[drawn >= n_labelled] - n_labelled], outside[others]])))
    return plan
