"""Features of photographs that are in no bank: found again in the stores that banks are made from, else computed and stored."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dicap.files.content_store import digest
from dicap.frozen.features.bank import as_maps
from dicap.frozen.features.compute import GPU_PASS, PASS, features_of, store_of
from dicap.frozen.features.recipe import Recipe
from dicap.network import Network
from dicap.settings import Settings

FEW = 8  # images that are computed quicker by themselves than in a pass of PASS


class KnownFeatures:
    """The pooled feature maps of a frozen backbone.

    Attributes:
        computed: number of images that were not found.
    """

    def __init__(
        self, known: Path, settings: Settings, network: Network, made_by: Sequence[Any], autocast: torch.dtype | None = None
    ) -> None:
        """Arguments as of `fill` in compute.py, but `made_by`: that of `network`, then others whose features will do."""
        recipe = Recipe.of(settings, None, network)
        self._network, self._grid, self._channels, self._autocast = network, recipe.grid, recipe.channels, autocast
        self._device = network.mean.device
        self._stores = [store_of(known, recipe, "plain", each) for each in made_by]
        self.computed = 0

    def maps(self, images: np.ndarray) -> Tensor:
        """Square images (n, S, S, 3) uint8 -> (n, D, g, g) float32, the same bits as in the bank found in."""
        keys = np.array([digest(np.ascontiguousarray(image).data) for image in images], "S16")
        values: list[bytes | None] = [None] * len(keys)
        for store in self._stores:
            values = [value or store.read(key) for value, key in zip(values, keys, strict=True)]
        lacking = [i for i, value in enumerate(values) if value is None]
        # Each pass has the same number of images, as those that fill a bank have: one in a hundred halves of a pass of another
        # number differs in its last bit. So where few are lacking they are computed by themselves and not stored.
        few = len(lacking) < FEW
        size = len(lacking) if few else GPU_PASS if self._device.type == "cuda" else PASS
        for start in range(0, len(lacking), max(size, 1)):
            some = lacking[start : start + size]
            pixels = torch.from_numpy(images[np.resize(some, size)]).permute(0, 3, 1, 2).to(self._device)
            for i, row in zip(some, features_of(self._network, pixels, self._grid, self._autocast).numpy(), strict=False):
                values[i] = row.tobytes()
        if not few:
            with suppress(OSError):  # the disk is full: they will be computed again
                self._stores[0].add(keys[lacking], [values[i] or b"" for i in lacking])
        self.computed += len(lacking)
        rows = np.frombuffer(b"".join(value or b"" for value in values), np.float16)
        return as_maps(torch.from_numpy(rows.reshape(len(images), -1, self._channels).copy()))
