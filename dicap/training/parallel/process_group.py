"""How the processes of a run share a step and a list of images. Pure counting; what they send each other is in
`dicap.training.parallel.distributed`, which a run of one process never imports."""

import itertools
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from torch import Tensor, nn

from dicap.methods.base import PairShard
from dicap.training.plan import Step

T = TypeVar("T")


class Shard(NamedTuple):
    """What one process takes of a step: consecutive pieces of its two lists.

    weight: of its loss: 1, or 1/N in a step too small to be shared, which all N processes take whole.
    """

    labelled: slice
    unlabelled: slice
    weight: float = 1.0

    def of(self, step: Step) -> Step:
        """This shard of the step."""
        return Step(step.labelled[self.labelled], step.unlabelled[self.unlabelled])


def shards(step: Step, size: int) -> list[Shard]:
    """One shard per process; they are disjoint, cover the step, and differ by at most one image.

    A step of fewer than two images per process (the end of an epoch) is not shared: BatchNorm cannot take a single image.
    """
    n_labelled, n_unlabelled = len(step.labelled), len(step.unlabelled)
    if n_labelled + n_unlabelled < 2 * size or size == 1:
        return [Shard(slice(0, n_labelled), slice(0, n_unlabelled), 1 / size)] * size
    # What does not divide goes to the first processes on one side and to the last ones on the other.
    ends = [pieces(n_labelled, size), pieces(n_unlabelled, size)[::-1]]
    backwards = [slice(n_unlabelled - piece.stop, n_unlabelled - piece.start) for piece in ends[1]]
    return [Shard(one, other) for one, other in zip(ends[0], backwards, strict=True)]


def pieces(n: int, size: int) -> list[slice]:
    """0 .. n - 1 in `size` consecutive pieces, the first ones longer by one where n does not divide."""
    short, longer = divmod(n, size)
    starts = [r * short + min(r, longer) for r in range(size + 1)]
    return [slice(start, stop) for start, stop in itertools.pairwise(starts)]


def local_pairs(pairs: np.ndarray, own: list[np.ndarray], weak: np.ndarray, rank: int) -> tuple[np.ndarray, slice]:
    """A process's entries to contrast, renumbered to its own views, and their place when those of all are concatenated.

    Args:
        pairs: (m, 3) of the whole step, as in `Batch.pairs`.
        own: for each process (b,) bool, which of the step's contrasted images it has.
        weak: (b,) bool, which of these images have a weak view.
    """
    kept = [mask[pairs[:, 0]] for mask in own]
    before = int(sum(k.sum() for k in kept[:rank]))
    strong, weak = own[rank].cumsum() - 1, own[rank][weak].cumsum() - 1  # of the step's n-th view: its place among one's own
    mine = pairs[kept[rank]]
    mine = np.stack([strong[mine[:, 0]], mine[:, 1], weak[mine[:, 2]]], axis=1)
    return mine, slice(before, before + len(mine))


def mask_of(n: int, chosen: slice) -> np.ndarray:
    """(n,) bool, true for the chosen ones."""
    mask = np.zeros(n, bool)
    mask[chosen] = True
    return mask


class ProcessGroup:
    """Single process: every collective is a no-op."""

    rank, size = 0, 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes the files and speaks to the user."""
        return self.rank == 0

    def shard(self, step: Step) -> Shard:
        """This process's shard of a step."""
        return shards(step, self.size)[self.rank]

    def shard_pairs(
        self, step: Step, pairs: np.ndarray, weak: np.ndarray, *, all_images: bool
    ) -> tuple[np.ndarray, PairShard | None]:
        """Of the step's entries to contrast those of this process, and its place among all.

        Args:
            pairs: (m, 3) of the whole step; weak: (b,) bool, which of the contrasted images have a weak view.
            all_images: whether labelled and unlabelled images are contrasted, or the unlabelled ones alone.
        """
        if self.size == 1 or self.shard(step).weight != 1:
            return pairs, None
        own = []
        for shard in shards(step, self.size):
            unlabelled = mask_of(len(step.unlabelled), shard.unlabelled)
            own.append(np.concatenate([mask_of(len(step.labelled), shard.labelled), unlabelled]) if all_images else unlabelled)
        mine, place = local_pairs(pairs, own, weak, self.rank)
        return mine, self.pair_shard(len(pairs), place)

    def shard_rows(self, n: int) -> slice:
        """This process's piece of n images to score; all of them where there are fewer than processes."""
        return pieces(n, self.size)[self.rank] if n >= self.size else slice(0, n)

    def all_gather(self, piece: Tensor, own: slice, n: int) -> Tensor:
        """(n, ...) from every process's `own` piece of it."""
        return piece

    def pair_shard(self, total: int, own: slice) -> PairShard | None:
        """How to gather entries of this step from all processes."""
        return None

    def all_reduce_(self, tensors: list[Tensor]) -> None:
        """Add up each tensor over the processes, in place."""

    def average_statistics_(self, network: nn.Module) -> None:
        """Make BatchNorm's running statistics the mean over the processes, in place."""

    def agree(self, stop: bool, save: bool) -> tuple[bool, bool]:
        """Whether to stop and whether to save: what any process wants, told to all of them one step later."""
        return stop, save

    def any(self, flag: bool) -> bool:
        """Whether any process says so, now."""
        return flag

    def broadcast(self, make: Callable[[], T]) -> T:
        """What the main process makes, on all of them: plain containers, numbers, texts, tensors."""
        return make()

    def close(self) -> None:
        """Leave the group."""
