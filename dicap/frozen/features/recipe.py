"""The recipe of a feature bank, everything its content depends on: images, backbone, normalisation, views, grid."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dicap.data.augment import View
from dicap.data.store import Store
from dicap.errors import SettingsError
from dicap.files.checksum import sha256
from dicap.network import Network, build_network
from dicap.network.backbone import weights_checksum
from dicap.randomness import torch_seed
from dicap.settings import Settings
from dicap.settings.catalogue import NAMED_WEIGHTS


@dataclass(frozen=True)
class Recipe:
    """Everything that the content of a bank depends on.

    Attributes:
        images: checksum of the converted set's array.
        image_size: side of the images in pixels.
        origin: source of the backbone's weights: imagenet, lite, random, or the sha256 of a file.
        weights: checksum of the backbone's tensors.
        mean, std: normalisation of pixels in [0, 1].
        stride: image pixels per position of the last feature map.
        cutout, flip: settings of the strong views.
        views: V, the number of strong views; with 0 the bank has the plain view only.
        test_split: checksum of the test split, because test images have no strong views; empty if V is 0.
        grid: g; the map is pooled to g x g positions.
        channels: D.
    """

    images: str
    n: int
    image_size: int
    backbone: str
    origin: str
    weights: str
    normalize: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    stride: int
    tokens: str
    cutout: float
    flip: float
    views: int
    test_split: str
    grid: int
    channels: int

    @staticmethod
    def of(settings: Settings, store: Store | None, network: Network) -> "Recipe":
        """The recipe of `settings`, the backbone of `network` (in eval mode), and the images of `store` (None: no images).

        Raises:
            SettingsError: the grid is finer than the backbone's map.
        """
        grid, size = settings.features.grid, settings.image_size
        with torch.inference_mode():
            image = torch.zeros(1, 3, size, size, dtype=torch.uint8, device=network.mean.device)
            _, channels, height, width = network.features(image).shape
        if grid > min(height, width):
            raise SettingsError(
                f"params.yaml: features.grid: found {grid}, but the map of {settings.backbone} at image_size "
                f"{size} has {height} x {width} positions; set it to {min(height, width)} or less"
            )
        return Recipe(
            **asked_for(settings, store),
            weights=weights_checksum(network.backbone.state_dict()),
            mean=tuple(round(value, 6) for value in (network.mean.flatten() / 255).tolist()),
            std=tuple(round(value, 6) for value in (1 / (network.scale.flatten() * 255)).tolist()),
            channels=channels,
        )

    @property
    def fingerprint(self) -> str:
        """One checksum of the whole recipe."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @property
    def files(self) -> dict[str, View]:
        """The views by file name, in the order of the numbers that `dicap.frozen.inputs.choose` returns.

        Every image has a plain view and, if V is not 0, a mirrored view. Training images also have V strong views.
        """
        strong = {f"strong_{i}": View("strong", cutout=self.cutout, flip=self.flip) for i in range(self.views)}
        mirror = {"mirror": View("weak", flip=1.0)} if strong else {}
        return {"plain": View("test")} | mirror | strong

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape (N, g * g, D) of each view's array."""
        return self.n, self.grid**2, self.channels

    @property
    def bytes_per_image(self) -> int:
        """Bytes on disk per image: two per channel, position and view."""
        return len(self.files) * self.grid**2 * self.channels * 2


def asked_for(settings: Settings, store: Store | None) -> dict[str, Any]:
    """The part of a recipe that follows from settings and images, without building the backbone, which would take seconds."""
    return {
        "images": "" if store is None else store.pixels_checksum,
        "n": 0 if store is None else store.n,
        "image_size": settings.image_size if store is None else store.image_size,
        "backbone": settings.backbone,
        "origin": origin_of(settings.backbone_weights),
        "normalize": settings.network.normalize,
        "stride": settings.network.stride,
        "tokens": settings.network.tokens,
        "cutout": settings.augment.cutout,
        "flip": settings.augment.flip,
        "views": settings.features.views,
        "test_split": store.test_checksum if store is not None and settings.features.views else "",
        "grid": settings.features.grid,
    }


def origin_of(weights: str) -> str:
    """Identifies the weights of the setting backbone_weights: their name, or the sha256 of the file."""
    if weights in NAMED_WEIGHTS:
        return weights
    path = Path(weights)
    return sha256(path) if path.is_file() else f"missing: {path.name}"


def pretrained_network(settings: Settings) -> Network:
    """The backbone of `settings` with its normalisation and no head, frozen and in eval mode.

    Random weights do not depend on the experiment's seed, so one bank serves all seeds. Raises what `create_backbone` raises.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(0, "features", 0))
        network = build_network(settings, lambda channels: nn.Identity())
    return network.eval().requires_grad_(False)
