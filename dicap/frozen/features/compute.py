"""Filling a feature bank. Features are stored by pixels: they are computed once, for all sets, orders and splits.

Features are kept in stores (`dicap.files.content_store`), one store per view and per combination of everything else that features
depend on. The key is a checksum of the image's pixels. Stored features are copied into the bank; missing features are computed
and written to both after every forward pass, so a killed run loses one pass.

The last bits of a network's output depend on the batch size. So every pass has the same number of images, and an image's features
have the same bits in every batch.
"""

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dicap.data.loader import Request, load
from dicap.data.store import Store
from dicap.errors import DataError, Stopped
from dicap.files.atomic import make_room
from dicap.files.checksum import sha256
from dicap.files.content_store import ContentStore
from dicap.files.features import META, SCHEMA
from dicap.files.json_files import write_json
from dicap.files.npy import write_head
from dicap.frozen.features.bank import file_name
from dicap.frozen.features.recipe import Recipe
from dicap.machine.progress import progress
from dicap.network import Network, pooled

PASS, GPU_PASS = 32, 256  # images per pass
SEED, STAGE, EPOCH = 0, "features", 0  # seed the random numbers of the strong views


def fill(
    folder: Path,
    recipe: Recipe,
    store: Store,
    network: Network,
    known: Path,
    *,
    made_by: Any = None,
    device: str | torch.device = "cpu",
    workers: int | None = None,
    autocast: torch.dtype | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Write the bank of `recipe` to `folder`, computing features only if they are not stored yet.

    Args:
        folder: created if it does not exist; its files are overwritten.
        recipe: `Recipe.of` the settings, `store` and `network`.
        known: folder of the stores, which all banks share.
        made_by: what else the features depend on (version, precision, device, code), as JSON values.
        autocast: dtype of mixed precision, or None.
        stopping: called after each pass; true stops.

    Returns:
        Number of images with newly computed features.

    Raises:
        DataError: the disk has too little room (checked before any computation). Stopped: `stopping` returned true.
    """
    keys = store.digests()
    needed = {name: ~store.is_test | (view.name != "strong") for name, view in recipe.files.items()}  # (N,) bool
    make_room(folder, folder=True)
    folder.mkdir(exist_ok=True)
    stores = {name: store_of(known, recipe, name, made_by) for name in recipe.files}
    paths = {name: folder / file_name(name) for name in stores}
    n_missing = sum(int((needed[name] & ~known.has(keys)).sum()) for name, known in stores.items())
    _check_disk(folder, store.n * recipe.bytes_per_image + n_missing * recipe.bytes_per_image // len(stores), recipe)
    missing = {name: _write_known(path, recipe, stores[name], keys, needed[name]) for name, path in paths.items()}
    count = sum(map(len, missing.values()))

    size = GPU_PASS if torch.device(device).type == "cuda" else PASS
    passes = [(name, rows[start : start + size]) for name, rows in missing.items() for start in range(0, len(rows), size)]
    seeds = keys.view("<u8")[::2]  # (N,) random numbers of an image's views depend on its pixels, not on its row
    steps = [[Request(name, full := np.resize(rows, size), recipe.files[name], seeds[full])] for name, rows in passes]
    views = load(store, steps, seed=SEED, stage=STAGE, epoch=EPOCH, workers=workers, device=device)
    done, lengths = 0, iter([len(rows) for _, rows in passes])
    with closing(progress(views, desc="features", total=count, unit="view", count=lambda _: next(lengths))) as bar:
        for (name, rows), pixels in zip(passes, bar, strict=True):
            features = features_of(network, pixels[name], recipe.grid, autocast)[: len(rows)].numpy()
            stores[name].add(keys[rows], [feature.tobytes() for feature in features])
            np.load(paths[name], mmap_mode="r+", allow_pickle=False)[rows] = features
            done += len(rows)
            if done < count and stopping():
                raise Stopped(f"features: {done} views saved; run again to continue")

    meta = {
        "schema": SCHEMA,
        "recipe": asdict(recipe),
        "fingerprint": recipe.fingerprint,
        "checksums": {path.name: sha256(path) for path in paths.values()},
    }
    write_json(meta, folder / META)
    return len(set().union(*missing.values()))


def store_of(known: Path, recipe: Recipe, name: str, made_by: Any) -> ContentStore:
    """The store of a view's features. Everything that features depend on, except the pixels, identifies the store."""
    # Left out: the set of images, settings of other views, and names of weights and normalisation, whose values are in.
    left_out = ("images", "n", "cutout", "flip", "views", "test_split", "origin", "normalize")
    facts = {fact: value for fact, value in asdict(recipe).items() if fact not in left_out}
    versions = [version(package) for package in ("torch", "timm")]  # they define the networks
    view = {"name": name, "view": asdict(recipe.files[name])}
    facts |= {"view": view, "drawn by": [SEED, STAGE, EPOCH], "made by": made_by, "versions": versions}
    return ContentStore.of(known, facts)


def features_of(network: Network, images: Tensor, grid: int, autocast: torch.dtype | None) -> Tensor:
    """Images (B, 3, H, W) uint8 -> features in the bank's format, (B, g * g, D) float16 on the CPU."""
    limit = torch.finfo(torch.float16).max
    with torch.inference_mode(), torch.autocast(images.device.type, dtype=autocast, enabled=autocast is not None):
        features = pooled(network.features(images), grid).flatten(2).transpose(1, 2)
        return features.clamp(-limit, limit).half().contiguous().cpu()


def _write_known(path: Path, recipe: Recipe, known: ContentStore, keys: np.ndarray, needed: np.ndarray) -> list[int]:
    """Write the file of a view: the stored features of each row, or NaN if they are not needed or not stored.

    Returns:
        The rows that are needed but not stored.
    """
    placeholder, missing = np.full(recipe.shape[1:], np.nan, np.float16).tobytes(), []
    with path.open("wb") as file:
        write_head(file, recipe.shape, np.float16)
        for row, (key, is_needed) in enumerate(zip(keys, needed, strict=True)):
            value = known.read(key) if is_needed else placeholder
            if value is None:
                missing.append(row)
            file.write(value or placeholder)
    return missing


def _check_disk(folder: Path, needed: int, recipe: Recipe) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        settings = "features.grid or features.views" if recipe.grid > 1 else "features.views"
        raise DataError(
            f"{folder}: the features need {needed} bytes ({needed / 2**30:.1f} GiB; {recipe.bytes_per_image} per image), but "
            f"{free} are free; make room, choose another disk, or lower {settings}"
        )
