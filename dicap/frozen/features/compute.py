"""Filling a feature bank. Features belong to pixels: whatever set, order or split an image is in, they are computed once.

The features of each image in each view lie in stores (`dicap.files.content_store`), one for each view and all that its features
depend on; the key is a checksum of the stored pixels. A bank is put together from them. What they lack is computed and stored,
some images at a time: a run that is killed loses those in work.

A network's last bits depend on how many images a pass has. So each has the same number, of whichever images and views, and an
image's features are the same bits whatever it is computed with.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from itertools import repeat
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
from dicap.files.npy import HEAD, npy_header
from dicap.frozen.features.bank import file_name
from dicap.frozen.features.recipe import Recipe
from dicap.frozen.features.views import EPOCH, SEED, STAGE, BankView
from dicap.machine.progress import progress
from dicap.network import Network, pooled

CHUNK = 1024  # views that are stored at once: what a kill loses at most
STEP, GPU_STEP = 8, 64  # images whose views are drawn at a time
PASS, GPU_PASS = 32, 256  # images a pass, views counted


def fill(
    folder: Path,
    recipe: Recipe,
    store: Store,
    network: Network,
    *,
    known: Path | None = None,
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
        network: the frozen network.
        known: where features of this and other banks are stored; None: nowhere.
        made_by: what else the features depend on, as JSON takes it: the version, precision, device and code that compute them.
        device: where `network` is.
        workers: as `dicap.data.loader.load`.
        autocast: dtype of mixed precision, or None.
        stopping: asked after some images whether to store what was computed and stop there.

    Returns:
        Number of images, of different pixels, of which something was computed.

    Raises:
        DataError: the disk has too little room (said before anything is computed). Stopped: `stopping` said so.
    """
    keys = store.digests()
    _, first, twin_of = np.unique(keys, return_index=True, return_inverse=True)
    make_room(folder, folder=True)
    folder.mkdir(exist_ok=True)
    stores = [None if known is None else store_of(known, recipe, view, made_by) for view in recipe.files]
    views = [_View(folder, view, recipe, store) for view, store in zip(recipe.files, stores, strict=True)]
    needed = needed_features(recipe, store, keys)
    lacking = [view.lacking(keys[rows]) for view, rows in zip(views, needed.T, strict=True)]
    _check_disk(folder, sum(view.bytes * (store.n + count) for view, count in zip(views, lacking, strict=True)), recipe)
    missing = np.stack([view.copy_known(keys, rows) for view, rows in zip(views, needed.T, strict=True)], 1)  # as `needed`
    twins = np.flatnonzero(missing.any(1) & (first[twin_of] != np.arange(store.n)))  # their features come with the first ones'
    missing[twins] = False
    computed = int(missing.any(1).sum())

    compute = partial(features_of, network, grid=recipe.grid, autocast=autocast)
    cuda = torch.device(device).type == "cuda"
    steps = list(_steps(missing, recipe.files, keys, GPU_STEP if cuda else STEP))
    options = {"seed": SEED, "stage": STAGE, "epoch": EPOCH, "workers": workers, "device": device}
    features = _computed(steps, load(store, steps, **options), compute, GPU_PASS if cuda else PASS)
    work = _store(features, steps, {view.view.name: view for view in views}, keys, stopping)
    with closing(progress(work, desc="features", total=store.n, unit="image", initial=store.n - computed)) as shown:
        for _ in shown:
            pass
    for view in views:
        view.copy_twins(twins, first[twin_of[twins]])
        view.close()
    meta = {
        "schema": SCHEMA,
        "recipe": recipe.to_dict(),
        "fingerprint": recipe.fingerprint,
        "checksums": {view.path.name: sha256(view.path) for view in views},
    }
    write_json(meta, folder / META)
    return computed


def needed_features(recipe: Recipe, store: Store, keys: np.ndarray) -> np.ndarray:
    """Which images' features of which view a bank holds, (N, views) bool: strong views of what is trained on alone.

    Args:
        keys: (N,) checksums of the images. One in the test split that is the same as another is trained on. Where `recipe.viewed`
            is a number, it is the images of the least checksums that have strong views: so few are others in a set that grows.
    """
    trained = np.unique(keys[~store.is_test])
    viewed = np.isin(keys, trained if recipe.viewed == "all" else trained[: int(recipe.viewed)])
    return np.stack([viewed | (view.view.name != "strong") for view in recipe.files], 1)


def store_of(known: Path, recipe: Recipe, view: BankView, made_by: Any) -> ContentStore:
    """The store of all that the features of an image in a view depend on beside its pixels."""
    # What the view has of the views, and the weights and numbers of the network, not where they came from.
    others = ("images", "n", "cutout", "flip", "views", "viewed", "test_split", "origin", "normalize")
    facts = {name: value for name, value in recipe.to_dict().items() if name not in others}
    versions = [version(name) for name in ("torch", "timm")]  # whose the networks are
    facts |= {"view": asdict(view), "drawn by": [SEED, STAGE, EPOCH], "made by": made_by, "versions": versions}
    return ContentStore.of(known, facts)


def _steps(missing: np.ndarray, views: list[BankView], keys: np.ndarray, size: int) -> Iterator[list[Request]]:
    """What is to be computed, for `load`: some images at a time in all views that they lack.

    Args:
        missing: (N, V) bool; keys: (N,) S16, checksums of the images, by which their views are drawn.
    """
    drawn_by = keys.view("<u8")[::2]
    for pattern in np.unique(missing, axis=0):
        rows = np.flatnonzero((missing == pattern).all(1)) if pattern.any() else np.arange(0)
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            yield [view.request(some, drawn_by[some]) for view, lacking in zip(views, pattern, strict=True) if lacking]


def _computed(
    steps: list[list[Request]], drawn: Iterator[dict[str, Tensor]], compute: Callable[[Tensor], Tensor], size: int
) -> Iterator[Tensor]:
    """The features of each request of each step, (B, g * g, D) float16."""
    counts = [len(request.rows) for step in steps for request in step]
    images = (views[request.key] for step, views in zip(steps, drawn, strict=True) for request in step)
    passes = -(-sum(counts) // size)
    yield from _regrouped(map(compute, _regrouped(_filled_up(images, passes * size), repeat(size, passes))), counts)


def _filled_up(images: Iterator[Tensor], count: int) -> Iterator[Tensor]:
    """The images (b, ...), and the last one again until there are `count`."""
    for last in images:
        count -= len(last)
        yield last
    if count:
        yield last[-1:].expand(count, *last.shape[1:])


def _regrouped(parts: Iterator[Tensor], counts: Iterable[int]) -> Iterator[Tensor]:
    """The rows of `parts` in the same order, in groups of `counts`."""
    rest: Tensor | None = None
    for count in counts:
        held = [] if rest is None else [rest]
        while sum(map(len, held)) < count:
            held.append(next(parts))
        whole = held[0] if len(held) == 1 else torch.cat(held)
        rest = whole[count:] if len(whole) > count else None
        yield whole[:count]


def _store(
    features: Iterator[Tensor], steps: list[list[Request]], views: dict[str, "_View"], keys: np.ndarray,
    stopping: Callable[[], bool],
) -> Iterator[None]:  # fmt: skip
    """Store the features of each step's requests, yielding once an image."""
    waiting: list[tuple[str, np.ndarray, Tensor]] = []
    held, done = 0, 0
    for number, step in enumerate(steps):
        waiting += [(request.key, request.rows, next(features)) for request in step]
        held += sum(len(request.rows) for request in step)
        done += len(step[0].rows)
        yield from repeat(None, len(step[0].rows))
        last = number == len(steps) - 1
        stop = not last and stopping()
        if held < CHUNK and not (last or stop):
            continue
        for name in {name: None for name, _, _ in waiting}:
            rows = np.concatenate([rows for key, rows, _ in waiting if key == name])
            views[name].add(rows, keys[rows], torch.cat([features for key, _, features in waiting if key == name]).numpy())
        waiting, held = [], 0
        if stop:
            raise Stopped(f"features: those of {done} images saved; run again to go on")


def features_of(network: Network, images: Tensor, grid: int, autocast: torch.dtype | None) -> Tensor:
    """Images (B, 3, H, W) uint8 -> features as a bank holds them, (B, g * g, D) float16 on the processor."""
    limit = torch.finfo(torch.float16).max
    with torch.inference_mode(), torch.autocast(images.device.type, dtype=autocast, enabled=autocast is not None):
        features = pooled(network.features(images), grid).flatten(2).transpose(1, 2)
        return features.clamp(-limit, limit).half().contiguous().cpu()


class _View:
    """A file of a bank while it is written, and the store of its features.

    Attributes:
        bytes: of an image's features.
    """

    def __init__(self, folder: Path, view: BankView, recipe: Recipe, store: ContentStore | None) -> None:
        self.view, self.path, self._store = view, folder / file_name(view.name), store
        self.bytes = int(np.prod(recipe.shape[1:])) * 2
        self._file = self.path.open("w+b", buffering=0)
        self._file.write(npy_header(recipe.shape, np.float16))

    def lacking(self, keys: np.ndarray) -> int:
        """How many images' features are not in the store."""
        return 0 if self._store is None else int((~self._store.has(keys)).sum())

    def copy_known(self, keys: np.ndarray, needed: np.ndarray) -> np.ndarray:
        """Write the needed features that are in the store; which images' are not, (N,) bool. NaN of those not needed."""
        absent = np.full(self.bytes // 2, np.nan, np.float16).tobytes()
        missing = np.zeros(len(keys), bool)
        for row, key in enumerate(keys):
            value = absent
            if needed[row]:
                value = None if self._store is None else self._store.read(key)
            if value is None or len(value) != self.bytes:
                missing[row] = True
            else:
                self._write(row, value)
        return missing

    def add(self, rows: np.ndarray, keys: np.ndarray, features: np.ndarray) -> None:
        """Write the features of some rows, (n, g * g, D) float16, here and into the store."""
        values = [row.tobytes() for row in features]
        if self._store is not None:
            self._store.add(keys, values)
        for row, value in zip(rows.tolist(), values, strict=True):
            self._write(row, value)

    def copy_twins(self, rows: np.ndarray, others: np.ndarray) -> None:
        """Give rows the features of others of the same pixels."""
        for row, other in zip(rows.tolist(), others.tolist(), strict=True):
            self._write(row, os.pread(self._file.fileno(), self.bytes, HEAD + other * self.bytes))

    def close(self) -> None:
        """No more is going to be written."""
        self._file.close()

    def _write(self, row: int, value: bytes) -> None:
        assert len(value) == self.bytes
        os.pwrite(self._file.fileno(), value, HEAD + row * self.bytes)


def _check_disk(folder: Path, needed: int, recipe: Recipe) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        smaller = "features.grid or features.views" if recipe.grid > 1 else "features.views"
        raise DataError(
            f"{folder}: the features need {needed} bytes more ({needed / 2**30:.1f} GiB; {recipe.bytes_per_image} an image), and "
            f"{free} are free; make room, choose another disk, or lower {smaller}"
        )
