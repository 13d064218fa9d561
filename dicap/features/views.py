"""The views a bank of features holds, and which of them an image gets in a step.

Plain, mirrored, and V strong views of every image. What a strong view looks like depends on the image's pixels and the
number of the view and on nothing else, so that one bank serves every method, ratio, seed and estimator, and a set that is sorted,
split or grows needs no feature anew. Which of the V an image gets in a step is drawn as the image loader draws: a pure function
of (seed, stage, epoch, row, key of the request)."""

from dataclasses import dataclass

import numpy as np

from dicap.data.augment import View
from dicap.data.loader import Request
from dicap.randomness import uniform

TILES = 2  # tiles a side where there are tiles: D2L's 2 x 2 (docs/methods.md 4.9)
SEED, STAGE, EPOCH = 0, "features", 0  # counters of the strong views' random numbers
TILED = "_tiles"


@dataclass(frozen=True)
class BankView:
    """One file of a bank.

    Attributes:
        name: plain, mirror, strong_0 ..., and the same with `_tiles`.
        view: how the images are looked at.
    """

    name: str
    view: View

    def request(self, rows: np.ndarray, drawn_by: np.ndarray) -> Request:
        """What the loader is asked for: views of these rows, (B,), drawn by numbers of the images, (B,) uint64; tiles draw for
        themselves."""
        return Request(self.name, rows, self.view, drawn_by)


def bank_views(strong: View, count: int, tiles: str) -> list[BankView]:
    """The views of a bank in the order in which they are computed.

    Args:
        strong: the strong view (policy, hole, probability of mirroring).
        count: V, how many strong ones.
        tiles: none; weak: also the tiles, plain and mirrored; all: also those of the strong views.
    """
    found = []
    for grid in (1, TILES):
        if grid > 1 and tiles == "none":
            break
        end = TILED if grid > 1 else ""
        found += [
            BankView(f"plain{end}", View("test", tiles=grid)),
            BankView(f"mirror{end}", View("weak", flip=1.0, tiles=grid)),
        ]
        if grid == 1 or tiles == "all":
            of_grid = View("strong", strong.cutout, strong.policy, grid, strong.flip)
            found += [BankView(f"strong_{number}{end}", of_grid) for number in range(count)]
    return found


def choose(request: Request, seed: int, stage: str, epoch: int, count: int) -> np.ndarray:
    """Which view each image, or tile, of a request gets.

    Args:
        request: what a step asks for. A weak one is mirrored exactly where the image loader would mirror it. Of a strong one
            only the name counts: hole, policy and mirroring are the bank's.
        seed, stage, epoch: counters of the random numbers.
        count: V.

    Returns:
        (B, parts) int64: 0 plain, 1 mirrored, 2 + v strong view v.
    """
    view, rows = request.view, request.rows
    chosen = np.zeros((len(rows), view.parts), dtype=np.int64)
    for part in range(view.parts):
        stream = f"{request.key}/{view.name}/{part}"
        if view.name == "weak":
            chosen[:, part] = uniform(seed, stage, epoch, rows, f"{stream}/0") < view.flip
        elif view.name == "strong":
            assert count > 0, "a bank without strong views was asked for one"
            chosen[:, part] = 2 + np.floor(uniform(seed, stage, epoch, rows, f"{stream}/bank") * count).astype(np.int64)
    return chosen
