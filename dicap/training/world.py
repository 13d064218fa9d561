"""How the processes of a run share a step and a list of images. Pure counting; what they say to each other is in
`dicap.training.distributed`, which a run of one process never imports."""

import itertools
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from torch import Tensor, nn

from dicap.methods.base import Others
from dicap.training.plan import Step

T = TypeVar("T")


class Part(NamedTuple):
    """What one process takes of a step: consecutive pieces of its two lists.

    weight: of its loss: 1, or 1/N in a step too small to be shared, which all N processes take whole.
    """

    labelled: slice
    unlabelled: slice
    weight: float = 1.0

    def of(self, step: Step) -> Step:
        """This part of the step."""
        return Step(step.labelled[self.labelled], step.unlabelled[self.unlabelled])


def parts(step: Step, size: int) -> list[Part]:
    """A part a process; they are disjoint, cover the step, and differ by at most one image.

    A step of fewer than two images a process (the end of an epoch) is not shared: BatchNorm cannot take a single image.
    """
    n_labelled, n_unlabelled = len(step.labelled), len(step.unlabelled)
    if n_labelled + n_unlabelled < 2 * size or size == 1:
        return [Part(slice(0, n_labelled), slice(0, n_unlabelled), 1 / size)] * size
    # What does not divide goes to the first processes on one side and to the last ones on the other.
    ends = [pieces(n_labelled, size), pieces(n_unlabelled, size)[::-1]]
    backwards = [slice(n_unlabelled - piece.stop, n_unlabelled - piece.start) for piece in ends[1]]
    return [Part(one, other) for one, other in zip(ends[0], backwards, strict=True)]


def pieces(n: int, size: int) -> list[slice]:
    """0 .. n - 1 in `size` consecutive pieces, the first ones longer by one where n does not divide."""
    short, longer = divmod(n, size)
    starts = [r * short + min(r, longer) for r in range(size + 1)]
    return [slice(start, stop) for start, stop in itertools.pairwise(starts)]


def own_pairs(pairs: np.ndarray, strong: list[np.ndarray], weak: list[np.ndarray], rank: int) -> tuple[np.ndarray, slice]:
    """A process's entries to contrast, renumbered to its own views, and their place when all of them stand in line.

    Args:
        pairs: (m, 3) of the whole step, as in `Batch.pairs`.
        strong, weak: for each process (n,) int64, the place of the step's n-th view among its own, -1 for others' views.
    """
    kept = [places[pairs[:, 0]] >= 0 for places in strong]
    before = int(sum(k.sum() for k in kept[:rank]))
    mine = pairs[kept[rank]]
    mine = np.stack([strong[rank][mine[:, 0]], mine[:, 1], weak[rank][mine[:, 2]]], axis=1)
    return mine, slice(before, before + len(mine))


def places(n: int, chosen: slice, base: int = 0) -> np.ndarray:
    """(n,) int64: where the chosen ones of n stand in a list of them that begins at `base`; -1 for the rest."""
    out = np.full(n, -1)
    out[chosen] = base + np.arange(chosen.stop - chosen.start)
    return out


class Alone:
    """The world of a run of one process: everything is its own, and there is nobody to ask."""

    rank, size = 0, 1

    @property
    def first(self) -> bool:
        """Whether this process writes the files and speaks to the user."""
        return self.rank == 0

    def part(self, step: Step) -> Part:
        """This process's part of a step."""
        return parts(step, self.size)[self.rank]

    def own(self, n: int) -> slice:
        """This process's piece of n images to score; all of them where there are fewer than processes."""
        return pieces(n, self.size)[self.rank] if n >= self.size else slice(0, n)

    def whole(self, piece: Tensor, own: slice, n: int) -> Tensor:
        """(n, ...) from every process's `own` piece of it."""
        return piece

    def others(self, total: int, own: slice) -> Others | None:
        """How to stand entries of this step in line with those of the other processes."""
        return None

    def sum_(self, tensors: list[Tensor]) -> None:
        """Add up each tensor over the processes, in place."""

    def average_statistics_(self, network: nn.Module) -> None:
        """Make BatchNorm's running statistics the mean over the processes, in place."""

    def agree(self, stop: bool, save: bool) -> tuple[bool, bool]:
        """Whether to stop and whether to save: what any process wants, told to all of them one step later."""
        return stop, save

    def any(self, flag: bool) -> bool:
        """Whether any process says so, now."""
        return flag

    def same(self, make: Callable[[], T]) -> T:
        """What the first process makes, on all of them: plain containers, numbers, texts, tensors."""
        return make()

    def leave(self) -> None:
        """Say goodbye."""
