"""The views a bank of features holds, and which of them an image gets in a step.

A plain view of every image; where V is not 0, also V strong views of images that are trained on: of some, or of all of them, and
then a mirrored one of every image. What a strong view looks like depends on the image's pixels and the number of the view and on
nothing else, so that one bank serves every method, ratio, seed and estimator, and a set that is sorted or grows needs no feature
anew. Which of the V an image gets in a step is drawn as the image loader draws: a pure function of (seed, stage, epoch, row, key
of the request)."""

from dataclasses import dataclass

import numpy as np

from dicap.data.augment import View
from dicap.data.loader import Request
from dicap.randomness import uniform

SEED, STAGE, EPOCH = 0, "features", 0  # counters of the strong views' random numbers


@dataclass(frozen=True)
class BankView:
    """One file of a bank.

    Attributes:
        name: plain, mirror, strong_0 ...
        view: how the images are looked at.
    """

    name: str
    view: View

    def request(self, rows: np.ndarray, drawn_by: np.ndarray) -> Request:
        """What the loader is asked for: views of these rows, (B,), drawn by numbers of the images, (B,) uint64."""
        return Request(self.name, rows, self.view, drawn_by)


def choose(request: Request, seed: int, stage: str, epoch: int, count: int) -> np.ndarray:
    """Which view each image of a request gets.

    Args:
        request: what a step asks for. A weak one is mirrored exactly where the image loader would mirror it. Of a strong one
            only the name counts: hole and mirroring are the bank's.
        seed, stage, epoch: counters of the random numbers.
        count: V.

    Returns:
        (B,) int64: 0 plain, 1 mirrored, 2 + v strong view v.
    """
    view, rows = request.view, request.rows
    assert view.tiles == 1, "a bank holds whole images"
    stream = f"{request.key}/{view.name}/0"  # as the image loader calls the first part of a view
    if view.name == "weak":
        return (uniform(seed, stage, epoch, rows, f"{stream}/0") < view.flip).astype(np.int64)
    if view.name == "strong":
        assert count > 0, "a bank without strong views was asked for one"
        return 2 + np.floor(uniform(seed, stage, epoch, rows, f"{stream}/bank") * count).astype(np.int64)
    return np.zeros(len(rows), np.int64)
