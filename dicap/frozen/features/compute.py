"""Filling a feature bank. Features belong to pixels: whatever set, order or split an image is in, they are computed once.

The features of each image in each view lie in stores (`dicap.files.content_store`), one for each view and all that its features
depend on; the key is a checksum of the stored pixels. What they hold is copied into the bank, what they lack is computed for
both, a pass of the network at a time: a run that is killed loses the pass in work.

A network's last bits depend on how many images a pass has. So each has the same number, and an image's features are the same bits
whatever it is computed with.
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

PASS, GPU_PASS = 32, 256  # images a pass
SEED, STAGE, EPOCH = 0, "features", 0  # counters of the strong views' random numbers


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
    """Put the bank that `recipe` asks for together in `folder`, computing the features that nobody has computed yet.

    Args:
        folder: what is in it is written over; made if it does not exist.
        recipe: `Recipe.of` the settings, `store` and `network`.
        known: where features of this and other banks are stored.
        made_by: what else the features depend on, as JSON takes it: the version, precision, device and code that compute them.
        autocast: dtype of mixed precision, or None.
        stopping: asked after each pass whether to stop there.

    Returns:
        Number of images of which something was computed.

    Raises:
        DataError: the disk has too little room (said before anything is computed). Stopped: `stopping` said so.
    """
    keys = store.digests()
    needed = {name: ~store.is_test | (view.name != "strong") for name, view in recipe.files.items()}  # (N,) bool
    make_room(folder, folder=True)
    folder.mkdir(exist_ok=True)
    stores = {name: store_of(known, recipe, name, made_by) for name in recipe.files}
    paths = {name: folder / file_name(name) for name in stores}
    absent = sum(int((needed[name] & ~known.has(keys)).sum()) for name, known in stores.items())
    _check_disk(folder, store.n * recipe.bytes_per_image + absent * recipe.bytes_per_image // len(stores), recipe)
    missing = {name: _write_known(path, recipe, stores[name], keys, needed[name]) for name, path in paths.items()}
    count = sum(map(len, missing.values()))

    size = GPU_PASS if torch.device(device).type == "cuda" else PASS
    passes = [(name, rows[start : start + size]) for name, rows in missing.items() for start in range(0, len(rows), size)]
    by = keys.view("<u8")[::2]  # (N,) what the views of an image are drawn by
    steps = [[Request(name, full := np.resize(rows, size), recipe.files[name], by[full])] for name, rows in passes]
    drawn = load(store, steps, seed=SEED, stage=STAGE, epoch=EPOCH, workers=workers, device=device)
    done, lengths = 0, iter([len(rows) for _, rows in passes])
    with closing(progress(drawn, desc="features", total=count, unit="view", count=lambda _: next(lengths))) as shown:
        for (name, rows), pixels in zip(passes, shown, strict=True):
            features = features_of(network, pixels[name], recipe.grid, autocast)[: len(rows)].numpy()
            stores[name].add(keys[rows], [each.tobytes() for each in features])
            np.load(paths[name], mmap_mode="r+", allow_pickle=False)[rows] = features
            done += len(rows)
            if done < count and stopping():
                raise Stopped(f"features: {done} views saved; run again to go on")

    meta = {
        "schema": SCHEMA,
        "recipe": asdict(recipe),
        "fingerprint": recipe.fingerprint,
        "checksums": {path.name: sha256(path) for path in paths.values()},
    }
    write_json(meta, folder / META)
    return len(set().union(*missing.values()))


def store_of(known: Path, recipe: Recipe, name: str, made_by: Any) -> ContentStore:
    """The store of all that the features of an image in a view depend on beside its pixels."""
    # What the view has of the views, and the weights and numbers of the network, not where they came from.
    others = ("images", "n", "cutout", "flip", "views", "test_split", "origin", "normalize")
    facts = {fact: value for fact, value in asdict(recipe).items() if fact not in others}
    versions = [version(package) for package in ("torch", "timm")]  # whose the networks are
    view = {"name": name, "view": asdict(recipe.files[name])}
    facts |= {"view": view, "drawn by": [SEED, STAGE, EPOCH], "made by": made_by, "versions": versions}
    return ContentStore.of(known, facts)


def features_of(network: Network, images: Tensor, grid: int, autocast: torch.dtype | None) -> Tensor:
    """Images (B, 3, H, W) uint8 -> features as a bank holds them, (B, g * g, D) float16 on the processor."""
    limit = torch.finfo(torch.float16).max
    with torch.inference_mode(), torch.autocast(images.device.type, dtype=autocast, enabled=autocast is not None):
        features = pooled(network.features(images), grid).flatten(2).transpose(1, 2)
        return features.clamp(-limit, limit).half().contiguous().cpu()


def _write_known(path: Path, recipe: Recipe, known: ContentStore, keys: np.ndarray, needed: np.ndarray) -> list[int]:
    """Write the file of a view: the stored features of each row, NaN where they are not needed or not known.

    Returns:
        The rows whose features are not known.
    """
    absent, missing = np.full(recipe.shape[1:], np.nan, np.float16).tobytes(), []
    with path.open("wb") as file:
        write_head(file, recipe.shape, np.float16)
        for row, (key, wanted) in enumerate(zip(keys, needed, strict=True)):
            value = known.read(key) if wanted else absent
            if value is None:
                missing.append(row)
            file.write(value or absent)
    return missing


def _check_disk(folder: Path, needed: int, recipe: Recipe) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        smaller = "features.grid or features.views" if recipe.grid > 1 else "features.views"
        raise DataError(
            f"{folder}: the features need {needed} bytes more ({needed / 2**30:.1f} GiB; {recipe.bytes_per_image} an image), and "
            f"{free} are free; make room, choose another disk, or lower {smaller}"
        )
