"""Reading a feature bank: features by view and row.

A bank is a folder (`artifacts/features`) with one float16 .npy file per view and a meta.json. Arrays are (N, g * g, D) in the
order of the converted set's rows; strong views of test images are NaN, because they are never needed. meta.json is written last
and has the recipe and the files' checksums. An image takes 2 * g * g * D bytes per view. There are 2 + V views, or 1 if V is 0.
With D = 1,280 (EfficientNet-Lite0) and V = 4 an image takes 15 kB at g = 1, 61 kB at 2, 246 kB at 4 and 753 kB at 7; COCO's
123,000 images take 1.9 GB at g = 1 and 93 GB at g = 7.
"""

from pathlib import Path

import numpy as np
from torch import Tensor

from dicap.data.store import Store
from dicap.errors import DataError
from dicap.files.checksum import sha256
from dicap.files.features import BACKBONE, META, SCHEMA
from dicap.files.json_files import read_json
from dicap.files.npy import open_npy
from dicap.frozen.features.recipe import Recipe, asked_for
from dicap.network.stored import StoredBackbone
from dicap.settings import Settings


class FeatureBank:
    """The features of all images of a set, memory-mapped.

    Attributes:
        n: number of images; grid: g; channels: D; views: V.
    """

    def __init__(self, folder: Path, recipe: Recipe, checksums: dict[str, str]) -> None:
        self.folder, self.recipe = folder, recipe
        self.n, self.grid, self.channels, self.views = recipe.n, recipe.grid, recipe.channels, recipe.views
        self._checksums = checksums
        self._maps: dict[str, np.ndarray] = {}

    @classmethod
    def open(cls, folder: str | Path) -> "FeatureBank":
        """Open `artifacts/features`.

        Raises:
            DataError: the bank is missing, damaged or empty (made for settings that train the whole network). The checksum of a
                view's file is checked at its first use.
        """
        folder = Path(folder)
        path = folder / META
        if not path.exists():
            raise DataError(f"{path}: no such file, so {folder} is not a feature bank; run `dvc repro features`")
        meta = read_json(path)
        if meta.get("schema") != SCHEMA:
            raise DataError(f"{path}: schema is {meta.get('schema')!r}, expected {SCHEMA}; {_again(folder)}")
        if meta.get("recipe", ...) is None:
            raise DataError(f"{folder}: holds no features, because its settings freeze no backbone; run `dvc repro features`")
        try:
            recipe, checksums = Recipe(**meta["recipe"]), meta["checksums"]
            fits = recipe.fingerprint == meta["fingerprint"] and set(checksums) == {file_name(name) for name in recipe.files}
        except (KeyError, TypeError):
            fits = False
        if not fits:
            raise DataError(f"{path}: of another version, or damaged (its parts do not match); {_again(folder)}")
        return cls(folder, recipe, checksums)

    def check(self, settings: Settings, store: Store) -> None:
        """Raise DataError, naming the difference, if the bank does not match `settings` and the images of `store`."""
        for name, value in asked_for(settings, store).items():
            if getattr(self.recipe, name) != value:
                raise DataError(f"{self.folder}: made with other {name} than the settings have; run `dvc repro features`")

    @property
    def backbone(self) -> StoredBackbone:
        """The placeholder of the backbone in networks that are trained on these features."""
        return StoredBackbone(self.folder / BACKBONE, self.channels, self.recipe.weights)

    def view(self, name: str) -> np.ndarray:
        """The features of all images in one view, (N, g * g, D) float16, memory-mapped read-only. Raises DataError."""
        if name not in self._maps:
            path = self.folder / file_name(name)
            array = open_npy(path, _again(self.folder), np.float16, self.recipe.shape)
            if sha256(path) != self._checksums[path.name]:
                raise DataError(f"{path}: damaged (its content does not match its checksum); {_again(self.folder)}")
            self._maps[name] = array
        return self._maps[name]


def as_maps(features: Tensor) -> Tensor:
    """Features (..., g * g, D) as the feature maps (..., D, g, g) float32 that heads take."""
    side = round(features.shape[-2] ** 0.5)
    assert side**2 == features.shape[-2], features.shape
    return features.float().transpose(-1, -2).unflatten(-1, (side, side))


def file_name(view: str) -> str:
    """The file of a view."""
    return f"{view}.npy"


def _again(folder: Path) -> str:
    return f"remove {folder} and run `dvc repro features`"
