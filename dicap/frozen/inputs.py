"""Features of a frozen backbone in place of views of images.

A step's features are a pure function of (seed, stage, epoch, row, key of the request), as its views of images are: the same
images are mirrored as by `dicap.data.loader`, and of the strong views in the bank each image gets one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from dicap.data.loader import Request
from dicap.data.store import Store, checked_rows
from dicap.frozen.features.bank import FeatureBank, as_maps
from dicap.machine.runtime import Runtime
from dicap.network.stored import StoredBackbone
from dicap.randomness import uniform
from dicap.settings import Settings
from dicap.training.inputs import SCORING_BATCH


@dataclass(frozen=True)
class BankFeatures:
    """Feature maps of a frozen backbone, computed once (`dicap.frozen.features`)."""

    bank: FeatureBank
    seed: int
    flip: float

    @property
    def backbone(self) -> StoredBackbone:
        """The backbone that the bank holds."""
        return self.bank.backbone

    def views(
        self, runtime: Runtime, steps: Sequence[Sequence[Request]], *, stage: str, epoch: int, start: int
    ) -> Iterator[dict[str, Tensor]]:
        """(B, D, g, g) float32."""
        for requests in steps[start:]:
            chosen = {r.key: (r.rows, choose(r, self.seed, stage, epoch, self.bank.views)) for r in requests}
            yield {key: as_maps(runtime.put(self._features(rows, views))) for key, (rows, views) in chosen.items()}

    def scoring(self, runtime: Runtime, rows: np.ndarray, weak: tuple[str, int] | None) -> Iterator[tuple[np.ndarray, Tensor]]:
        """(b, D, g, g) float32."""
        mirrored = uniform(self.seed, *weak, rows, "score/weak") < self.flip if weak else np.zeros(len(rows), bool)
        for start in range(0, len(rows), SCORING_BATCH):
            some = slice(start, start + SCORING_BATCH)
            yield rows[some], as_maps(runtime.put(self._features(rows[some], mirrored[some])))

    def _features(self, rows: np.ndarray, views: np.ndarray) -> np.ndarray:
        """(B, g * g, D) float16 of rows (B,), each in the view of its number (B,)."""
        rows = checked_rows(rows, self.bank.n)
        out = np.empty((len(rows), *self.bank.recipe.shape[1:]), np.float16)
        for number in np.unique(views).tolist():
            here = np.flatnonzero(views == number)
            out[here] = self.bank.view(("plain", "mirror")[number] if number < 2 else f"strong_{number - 2}")[rows[here]]
        return out

    def mean(self, rows: np.ndarray) -> np.ndarray:
        """(n, D) float32: the mean over positions, in the plain view."""
        maps = self.bank.view("plain")  # (N, g * g, D) float16
        out = np.empty((len(rows), maps.shape[2]), np.float32)
        for start in range(0, len(rows), SCORING_BATCH):  # in single precision all maps would be g * g times as large as this
            some = slice(start, start + SCORING_BATCH)
            out[some] = maps[rows[some]].astype(np.float32).mean(1)
        return out


def open_features(folder: Path, settings: Settings, store: Store) -> BankFeatures:
    """The features of the frozen backbone. Raises DataError unless they are those that the settings ask for."""
    opened = FeatureBank.open(folder)
    opened.check(settings, store)
    return BankFeatures(opened, settings.seed, settings.augment.flip)


def choose(request: Request, seed: int, stage: str, epoch: int, count: int) -> np.ndarray:
    """Which view each image of a request gets, (B,) int64: 0 plain, 1 mirrored, 2 + v strong view v.

    Args:
        request: what a step asks for. A weak one is mirrored exactly where the image loader would mirror it. Of a strong one
            only the name counts: hole and mirroring are the bank's.
        count: V.
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
