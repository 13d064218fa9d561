"""Stored features of a frozen backbone as the inputs of training, instead of views of images.

The features of a step are a pure function of (seed, stage, epoch, row, key of the request). `dicap.data.loader` would mirror the
same images. For a strong view each image gets one of the bank's strong views.
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
            batch = slice(start, start + SCORING_BATCH)
            yield rows[batch], as_maps(runtime.put(self._features(rows[batch], mirrored[batch])))

    def _features(self, rows: np.ndarray, views: np.ndarray) -> np.ndarray:
        """Features (B, g * g, D) float16 of rows (B,), each in the view with this number (B,), see `choose`."""
        rows = checked_rows(rows, self.bank.n)
        out = np.empty((len(rows), *self.bank.recipe.shape[1:]), np.float16)
        for number in np.unique(views).tolist():
            index = np.flatnonzero(views == number)
            out[index] = self.bank.view(("plain", "mirror")[number] if number < 2 else f"strong_{number - 2}")[rows[index]]
        return out

    def mean(self, rows: np.ndarray) -> np.ndarray:
        """(n, D) float32: the mean over positions, in the plain view."""
        maps = self.bank.view("plain")  # (N, g * g, D) float16
        out = np.empty((len(rows), maps.shape[2]), np.float32)
        for start in range(0, len(rows), SCORING_BATCH):  # all maps in float32 would be g * g times as large as the result
            batch = slice(start, start + SCORING_BATCH)
            out[batch] = maps[rows[batch]].astype(np.float32).mean(1)
        return out


def open_features(folder: Path, settings: Settings, store: Store) -> BankFeatures:
    """The features of the frozen backbone. Raises DataError if the bank does not match the settings."""
    bank = FeatureBank.open(folder)
    bank.check(settings, store)
    return BankFeatures(bank, settings.seed, settings.augment.flip)


def choose(request: Request, seed: int, stage: str, epoch: int, count: int) -> np.ndarray:
    """The number of the view that each image of a request gets, (B,) int64: 0 plain, 1 mirrored, 2 + v strong view v.

    Args:
        request: the requested view. A weak view is mirrored if the image loader would mirror it. For a strong view the request's
            cutout and flip are ignored: the bank's strong views have their own.
        count: V, the number of strong views in the bank.
    """
    view, rows = request.view, request.rows
    assert view.tiles == 1, "a bank holds whole images"
    stream = f"{request.key}/{view.name}/0"  # the image loader's name for the first part of a view
    if view.name == "weak":
        return (uniform(seed, stage, epoch, rows, f"{stream}/0") < view.flip).astype(np.int64)
    if view.name == "strong":
        assert count > 0, "the bank has no strong views"
        return 2 + np.floor(uniform(seed, stage, epoch, rows, f"{stream}/bank") * count).astype(np.int64)
    return np.zeros(len(rows), np.int64)
