"""Features of a frozen backbone in place of views of images."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from dicap.data.loader import Request
from dicap.data.store import Store
from dicap.frozen.features import bank
from dicap.frozen.features.bank import FeatureBank
from dicap.machine.runtime import Runtime
from dicap.network.stored import StoredBackbone
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
            batches = {r.key: self.bank.request(r, seed=self.seed, stage=stage, epoch=epoch) for r in requests}
            yield {key: bank.as_maps(runtime.put(features)) for key, features in batches.items()}

    def scoring(self, runtime: Runtime, rows: np.ndarray, weak: tuple[str, int] | None) -> Iterator[tuple[np.ndarray, Tensor]]:
        """(b, D, g, g) float32."""
        flip = None if weak is None else (self.seed, *weak)
        for batch, features in bank.scoring_batches(self.bank, rows, SCORING_BATCH, flip=flip, flip_share=self.flip):
            yield batch, bank.as_maps(runtime.put(features))

    def mean(self, rows: np.ndarray, view: str = "plain") -> np.ndarray:
        """(n, D) float32: the mean over positions, in a view; NaN where the bank has none."""
        maps = self.bank.view(view)  # (N, g * g, D) float16
        out = np.empty((len(rows), maps.shape[2]), np.float32)
        for start in range(0, len(rows), SCORING_BATCH):  # in single precision all maps would be g * g times as large as this
            some = slice(start, start + SCORING_BATCH)
            out[some] = maps[rows[some]].astype(np.float32).mean(1)
        return out

    def strong(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Those of the rows (n,) that have a strong view, (m,), and their mean features (m, D) in the first of them."""
        rows = rows[np.isfinite(self.bank.view("strong_0")[rows, 0, 0])]
        return rows, self.mean(rows, "strong_0")


def open_features(folder: Path, settings: Settings, store: Store) -> BankFeatures:
    """The features of the frozen backbone. Raises DataError unless they are those that the settings ask for."""
    opened = FeatureBank.open(folder)
    opened.check(settings, store)
    return BankFeatures(opened, settings.seed, settings.augment.flip)
