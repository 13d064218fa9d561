"""The inputs of a network: views of images, or features that were computed once.

Each source has two methods. `views` yields {request key: (B, ...)} on the device for every step of an epoch, from step `start`
on. A view is a pure function of (seed, stage, epoch, row, request). `scoring` yields (rows, inputs) in the order of the rows, for
passes without strong views; `weak` is the (stage, epoch) of the weak view, None for the test view.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from dicap.data.loader import Request, load, scoring_batches
from dicap.data.store import Store
from dicap.machine.runtime import Runtime
from dicap.network.stored import StoredBackbone

SCORING_BATCH = 256  # images per scoring step; it affects results only by rounding


@dataclass(frozen=True)
class Images:
    """Views drawn from images at each step."""

    store: Store
    seed: int
    flip: float

    def views(
        self, runtime: Runtime, steps: Sequence[Sequence[Request]], *, stage: str, epoch: int, start: int
    ) -> Iterator[dict[str, Tensor]]:
        """uint8 (B, 3, H, W), see `dicap.data.loader.load`."""
        return load(
            self.store, steps, seed=self.seed, stage=stage, epoch=epoch, workers=runtime.workers, device=runtime.device,
            start=start,
        )  # fmt: skip

    def scoring(self, runtime: Runtime, rows: np.ndarray, weak: tuple[str, int] | None) -> Iterator[tuple[np.ndarray, Tensor]]:
        """uint8 (b, 3, H, W), see `dicap.data.loader.scoring_batches`."""
        return scoring_batches(
            self.store, rows, SCORING_BATCH, flip=None if weak is None else (self.seed, *weak), flip_share=self.flip,
            put=runtime.put,
        )  # fmt: skip


@dataclass(frozen=True)
class FixedFeatures:
    """One feature vector per image, the same for all views."""

    features: Tensor  # (N, D) on the device

    def views(
        self, runtime: Runtime, steps: Sequence[Sequence[Request]], *, stage: str, epoch: int, start: int
    ) -> Iterator[dict[str, Tensor]]:
        """(B, D) float32."""
        for requests in steps[start:]:
            yield {request.key: self.features[runtime.put(request.rows)] for request in requests}

    def scoring(self, runtime: Runtime, rows: np.ndarray, weak: tuple[str, int] | None) -> Iterator[tuple[np.ndarray, Tensor]]:
        """(b, D) float32."""
        for i in range(0, len(rows), SCORING_BATCH):
            yield rows[i : i + SCORING_BATCH], self.features[runtime.put(rows[i : i + SCORING_BATCH])]


class FrozenFeatures(Protocol):
    """Feature maps of a frozen backbone that were computed once; a plugin implements this (`dicap.plugins`)."""

    @property
    def backbone(self) -> StoredBackbone:
        """The placeholder of the backbone in a network whose inputs are feature maps."""
        ...

    def views(
        self, runtime: Runtime, steps: Sequence[Sequence[Request]], *, stage: str, epoch: int, start: int
    ) -> Iterator[dict[str, Tensor]]:
        """(B, D, g, g) float32."""
        ...

    def scoring(self, runtime: Runtime, rows: np.ndarray, weak: tuple[str, int] | None) -> Iterator[tuple[np.ndarray, Tensor]]:
        """(b, D, g, g) float32."""
        ...

    def mean(self, rows: np.ndarray) -> np.ndarray:
        """(n, D) float32: the mean of the feature map over its positions."""
        ...


Inputs = Images | FixedFeatures | FrozenFeatures
