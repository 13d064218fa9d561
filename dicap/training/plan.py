"""Which images a step sees: a pure function of (seed, stage, epoch, step)."""

from typing import NamedTuple

import numpy as np

from dicap.methods.base import Phase
from dicap.randomness import permutation


class Step(NamedTuple):
    """Positions, not rows: of the labelled list (b_l,) and of D_unsup (b_u,)."""

    labelled: np.ndarray
    unlabelled: np.ndarray

    @property
    def images(self) -> int:
        """How many, of both kinds."""
        return len(self.labelled) + len(self.unlabelled)


def chunks(order: np.ndarray, size: int) -> list[np.ndarray]:
    """Consecutive pieces of `size`; a last piece of a single image joins the one before (BatchNorm needs two)."""
    pieces = [order[start : start + size] for start in range(0, len(order), size)]
    if len(pieces) > 1 and len(pieces[-1]) == 1:
        pieces[-2:] = [np.concatenate(pieces[-2:])]
    return pieces


def cycled(n: int, start: int, count: int, *, seed: int, stage: str, stream: str) -> np.ndarray:
    """Entries start .. start + count - 1 of an endless stream of passes over 0 .. n - 1, each pass with its own order.

    None where n is 0.
    """
    places = np.arange(start, start + count if n else start)
    out = places % n
    for turn in np.unique(places // n):
        here = places // n == turn
        out[here] = permutation(seed, stage, int(turn), n, stream)[out[here]]
    return out


def labelled_plan(phase: Phase, *, seed: int, stage: str, epoch: int) -> list[Step]:
    """One pass of warm-up or fine-tuning over the labelled images, each step with as many unlabelled ones (docs/methods.md 3.3).

    Without unlabelled images the steps hold labelled ones only.
    """
    steps, start = [], epoch * len(phase.labelled)
    for labelled in chunks(permutation(seed, stage, epoch, len(phase.labelled), "labelled"), phase.batch_labelled):
        beside = cycled(len(phase.unlabelled), start, len(labelled), seed=seed, stage=stage, stream="unlabelled")
        steps.append(Step(labelled, beside))
        start += len(labelled)
    return steps


def warmup_plan(phase: Phase, *, over: str, seed: int, epoch: int) -> list[Step]:
    """One pass of the warm-up: over the images that warmup.over names, where it has unlabelled ones (docs/methods.md 3.3)."""
    plan = main_plan if over == "unlabelled" and len(phase.unlabelled) else labelled_plan
    return plan(phase, seed=seed, stage="warmup", epoch=epoch)


def main_plan(phase: Phase, *, seed: int, stage: str, epoch: int) -> list[Step]:
    """One pass over D_unsup, the labelled images cycled beside it (docs/methods.md 2.8, 3.8)."""
    pieces = chunks(permutation(seed, stage, epoch, len(phase.unlabelled), "unlabelled"), phase.batch_unlabelled)
    n, batch, shared = len(phase.labelled), phase.batch_labelled, {"seed": seed, "stage": stage, "stream": "labelled"}
    places = range(epoch * len(pieces), (epoch + 1) * len(pieces))
    return [Step(cycled(n, i * batch, batch, **shared), piece) for i, piece in zip(places, pieces, strict=True)]


def pool_plan(n_labelled: int, adopted: np.ndarray, batch: int, steps: int, *, seed: int, epoch: int) -> list[Step]:
    """Steps of `batch` images of the pool (labelled or adopted) and as many others (DRML, docs/methods.md 4.5).

    Args:
        adopted: (n_unlabelled,) bool. Adopted images of a step stand first among its unlabelled ones.
    """
    inside, outside = np.flatnonzero(adopted), np.flatnonzero(~adopted)
    pool = n_labelled + len(inside)
    shared = {"seed": seed, "stage": f"train/{epoch}"}  # the pool changes from epoch to epoch, and so do its passes
    plan = []
    for i in range(steps):
        drawn = cycled(pool, i * batch, batch, stream="pool", **shared)
        others = cycled(len(outside), i * batch, batch, stream="others", **shared)
        labelled = drawn[drawn < n_labelled]
        plan.append(Step(labelled, np.concatenate([inside[drawn[drawn >= n_labelled] - n_labelled], outside[others]])))
    return plan
