"""What the content of a feature bank depends on: images, backbone, normalisation, views, grid."""

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
    """What a bank was, or is to be, made of.

    Attributes:
        images: checksum of the converted set's array.
        image_size: side of the images in pixels.
        origin: of the backbone's weights: imagenet, lite, random, or the sha256 of a file.
        weights: checksum of the backbone's tensors.
        mean, std: with which pixels in [0, 1] are normalised.
        stride: of the last feature map.
        cutout, flip: of the strong views.
        views: V, the number of strong views; without any there is the plain view alone.
        test_split: checksum of the test split, whose images have no strong views; empty where V is 0.
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
        """The recipe that `settings` ask for, with the backbone of `network`, in eval mode, on the images of `store`, or of none.

        Raises:
            SettingsError: the grid is finer than the backbone's map.
        """
        grid, size = settings.features.grid, settings.image_size
        with torch.inference_mode():
            photograph = torch.zeros(1, 3, size, size, dtype=torch.uint8, device=network.mean.device)
            _, channels, height, width = network.features(photograph).shape
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
        """One checksum of all of it."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @property
    def files(self) -> dict[str, View]:
        """The views by the names of their files, in the order of the numbers by which `dicap.frozen.inputs.choose` names them.

        A plain view of every image; where V is not 0, also a mirrored one, and V strong views of images that are trained on.
        """
        strong = {f"strong_{i}": View("strong", cutout=self.cutout, flip=self.flip) for i in range(self.views)}
        mirror = {"mirror": View("weak", flip=1.0)} if strong else {}
        return {"plain": View("test")} | mirror | strong

    @property
    def shape(self) -> tuple[int, int, int]:
        """(N, g * g, D), of each view."""
        return self.n, self.grid**2, self.channels

    @property
    def bytes_per_image(self) -> int:
        """Bytes on disk for each image: two for each channel, position, and view."""
        return len(self.files) * self.grid**2 * self.channels * 2


def asked_for(settings: Settings, store: Store | None) -> dict[str, Any]:
    """What of a recipe follows from settings and images, without building the backbone: that takes longer than a stage's work."""
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
    """What tells the weights that the setting backbone_weights names from others: the name, or the sha256 of the file."""
    if weights in NAMED_WEIGHTS:
        return weights
    path = Path(weights)
    return sha256(path) if path.is_file() else f"missing: {path.name}"


def pretrained_network(settings: Settings) -> Network:
    """The backbone that `settings` name, with its normalisation and no head, frozen and in eval mode.

    Random weights do not depend on the experiment's seed: one bank serves all seeds. Raises SettingsError as `create_backbone`.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(0, "features", 0))
        network = build_network(settings, lambda channels: nn.Identity())
    return network.eval().requires_grad_(False)
