"""Features of photographs outside a bank: read from the stores that banks are made from, else computed and stored."""

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

FEW = 8  # fewer images than this are faster in a batch of their own than in a padded pass of PASS images


class KnownFeatures:
    """The pooled feature maps of a frozen backbone.

    Attributes:
        computed: number of images whose features were not stored.
    """

    def __init__(
        self, known: Path, settings: Settings, network: Network, made_by: Sequence[Any], autocast: torch.dtype | None = None
    ) -> None:
        """Arguments as in `fill` (compute.py), except `made_by`: the network's own, then others with equivalent features."""
        recipe = Recipe.of(settings, None, network)
        self._network, self._grid, self._channels, self._autocast = network, recipe.grid, recipe.channels, autocast
        self._device = network.mean.device
        self._stores = [store_of(known, recipe, "plain", facts) for facts in made_by]
        self.computed = 0

    def maps(self, images: np.ndarray) -> Tensor:
        """Square images (n, S, S, 3) uint8 -> (n, D, g, g) float32; stored features have the bits of their bank."""
        keys = np.array([digest(np.ascontiguousarray(image).data) for image in images], "S16")
        values: list[bytes | None] = [None] * len(keys)
        for store in self._stores:
            values = [value or store.read(key) for value, key in zip(values, keys, strict=True)]
        missing = [i for i, value in enumerate(values) if value is None]
        # Passes have the size of the passes that fill a bank: with another size one in a hundred float16 values differs in its
        # last bit. So a few missing images are computed in a batch of their own, and their features are not stored.
        few = len(missing) < FEW
        size = len(missing) if few else GPU_PASS if self._device.type == "cuda" else PASS
        for start in range(0, len(missing), max(size, 1)):
            batch = missing[start : start + size]
            pixels = torch.from_numpy(images[np.resize(batch, size)]).permute(0, 3, 1, 2).to(self._device)
            for i, row in zip(batch, features_of(self._network, pixels, self._grid, self._autocast).numpy(), strict=False):
                values[i] = row.tobytes()
        if not few:
            with suppress(OSError):  # a full disk only means that these features are computed again
                self._stores[0].add(keys[missing], [values[i] or b"" for i in missing])
        self.computed += len(missing)
        rows = np.frombuffer(b"".join(value or b"" for value in values), np.float16)
        return as_maps(torch.from_numpy(rows.reshape(len(images), -1, self._channels).copy()))
