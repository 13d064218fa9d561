"""Filling a feature bank, chunk by chunk: whatever stops it, what is whole is kept and the bytes at the end are the same.

The files grow in a working folder, which becomes the bank by one rename. Beside each file a journal names the checksum of every
chunk that reached the disk. Going on reads the chunks again, keeps the longest row of whole ones and computes the rest.

Of a set in shards, each shard is filled as a bank of its own and kept beside the project (`dicap.data.kept`); `gather` puts them
together. The features of a shard whose images are the same are so computed once, whatever is added elsewhere.
"""

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dicap.data.format import numbered, sha256
from dicap.data.kept import Kept
from dicap.data.loader import DataOn, load
from dicap.data.store import Store
from dicap.errors import DataError, Stopped
from dicap.features.bank import file_name
from dicap.features.folder import META, SCHEMA, SHARDED_SCHEMA
from dicap.features.recipe import Recipe
from dicap.features.views import EPOCH, SEED, STAGE, BankView
from dicap.files.artifacts import make_room, write_json
from dicap.machine.progress import progress
from dicap.network import Network, pooled

CHUNK = 256  # images of a chunk: what a kill loses at most
BATCH, GPU_BATCH = 32, 256  # images a pass, tiles counted as images
AT_ONCE = 2  # batches in work: while one is normalised or pooled, the engine has the other
HEAD = 128  # bytes of an .npy header


def fill(
    folder: Path,
    recipe: Recipe,
    store: Store,
    network: Network,
    *,
    engine: dict[str, Any],
    device: str | torch.device = "cpu",
    workers: int | None = None,
    data_on: DataOn = "host",
    autocast: torch.dtype | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Compute the features that `recipe` asks for into `folder`, going on where an earlier call was stopped.

    Args:
        folder: the working folder, which belongs to this recipe and engine alone; made if it does not exist.
        recipe: `Recipe.of` the settings, `store` and `network`.
        network: the frozen network, whose backbone an engine may have taken the place of (`dicap.features.engine`).
        engine: what is recorded of the engine in meta.json.
        device: where `network` is.
        workers, data_on: as `dicap.data.loader.load`.
        autocast: dtype of mixed precision, or None.
        stopping: asked after each chunk whether to stop there.

    Returns:
        Number of images (of all views, tiles counted) that an earlier call had computed.

    Raises:
        DataError: the disk has too little room (said before anything is computed). Stopped: `stopping` said so.
    """
    make_room(folder, folder=True)
    folder.mkdir(exist_ok=True)
    files = [_Growing(folder, view, recipe.shape(view)) for view in recipe.files]
    _check_disk(folder, sum(file.missing_bytes for file in files), recipe)
    images = {file: file.view.view.parts for file in files}
    taken_over = sum(file.rows * images[file] for file in files)
    total = recipe.n * sum(images.values())

    def compute(images: Tensor) -> np.ndarray:
        """(B, 3, H, W) or (B, 4, 3, H, W) uint8 -> (B * parts, g * g, D) float16."""
        with torch.inference_mode(), torch.autocast(images.device.type, dtype=autocast, enabled=autocast is not None):
            return _as_rows(pooled(network.features(images.flatten(0, -4)), recipe.grid)).cpu().numpy()

    work = _work(files, store, compute, device, workers, data_on, stopping)
    with closing(progress(work, desc="features", total=total, unit="image", initial=taken_over)) as shown:
        for _ in shown:
            pass
    checksums = {}
    for file in files:
        file.close()
        checksums[file.path.name] = sha256(file.path)
        file.journal.unlink()
    _write_meta(folder, recipe, engine, checksums, None)
    return taken_over


def _write_meta(
    folder: Path, recipe: Recipe, engine: dict[str, Any], checksums: dict[str, str], shards: list[int] | None
) -> None:
    meta = {
        "schema": SCHEMA if shards is None else SHARDED_SCHEMA,
        "recipe": recipe.to_dict(),
        "fingerprint": recipe.fingerprint,
        "engine": engine,
        "bytes_per_image": recipe.bytes_per_image,
        "checksums": checksums,
    }
    write_json(meta if shards is None else meta | {"shards": shards}, folder / META)


def shard_key(shard: Recipe, made_by: Any) -> str:
    """The name of a shard's features among those kept (`dicap.data.kept`).

    Args:
        made_by: engine and code, as JSON takes them.
    """
    return hashlib.sha256(json.dumps([shard.fingerprint, made_by], sort_keys=True).encode()).hexdigest()[:32]


def gather(folder: Path, recipe: Recipe, kept: Kept, keys: list[str], counts: list[int], *, engine: dict[str, Any]) -> None:
    """Put a bank together in `folder` from the features of the shards, which are kept under `keys`.

    Args:
        folder: what is in it is removed.
        recipe: of the whole set.
        counts: images of each shard.
        engine: what is recorded of the engine in meta.json.
    """
    shutil.rmtree(folder, ignore_errors=True)
    make_room(folder, folder=True)
    folder.mkdir()
    checksums = {}
    for shard, key in enumerate(keys):
        for name, checksum in kept.meta(key)["checksums"].items():
            place = numbered(name, shard)
            kept.link(key, name, folder / place)
            checksums[place] = checksum
    _write_meta(folder, recipe, engine, checksums, counts)


def _work(
    files: list["_Growing"], store: Store, compute: Callable[[Tensor], np.ndarray], device: str | torch.device,
    workers: int | None, data_on: DataOn, stopping: Callable[[], bool],
) -> Iterator[None]:  # fmt: skip
    """Compute all that is missing, yielding once an image."""
    size = GPU_BATCH if torch.device(device).type == "cuda" else BATCH
    drawn_by = store.digests().view("<u8")[::2]
    for file in files:
        parts = file.view.view.parts
        starts = range(file.rows, file.shape[0], CHUNK)
        chunks = [np.arange(start, min(start + CHUNK, file.shape[0])) for start in starts]
        # The batches of a chunk do not depend on where an earlier run was stopped: a pass's last bits depend on its size.
        step = max(size // parts, 1)
        batches = [[chunk[i : i + step] for i in range(0, len(chunk), step)] for chunk in chunks]
        steps = [[file.view.request(rows, drawn_by[rows])] for chunk in batches for rows in chunk]
        drawn = load(store, steps, seed=SEED, stage=STAGE, epoch=EPOCH, workers=workers, device=device, data_on=data_on)
        with closing(_overlapped(compute, (views[file.view.name] for views in drawn))) as computed:
            for chunk in batches:
                found = []
                for rows in chunk:
                    found.append(next(computed).reshape(len(rows), *file.shape[1:]))
                    yield from (None for _ in range(len(rows) * parts))
                file.append(np.concatenate(found))
                if stopping():
                    raise Stopped(
                        f"features: {file.rows} of {file.shape[0]} images of view {file.view.name} saved; run again to go on"
                    )


def _overlapped(compute: Callable[[Tensor], np.ndarray], batches: Iterator[Tensor]) -> Generator[np.ndarray]:
    """`compute` of each batch, in order: while two batches are computed, the next is drawn here."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="features") as threads:
        waiting: deque[Future[np.ndarray]] = deque()
        for batch in batches:
            waiting.append(threads.submit(compute, batch))
            if len(waiting) > AT_ONCE:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _as_rows(maps: Tensor) -> Tensor:
    """Feature maps (B, D, g, g) as a bank holds them: (B, g * g, D) float16."""
    found = maps.flatten(2).transpose(1, 2)
    limit = torch.finfo(torch.float16).max
    return found.clamp(-limit, limit).half()


class _Growing:
    """A file of features that is written row by row, and its journal.

    Attributes:
        rows: how many rows are whole on the disk.
    """

    def __init__(self, folder: Path, view: BankView, shape: tuple[int, ...]) -> None:
        self.view, self.shape = view, shape
        self.path = folder / file_name(view.name)
        self.journal = self.path.with_suffix(".journal")
        self._row_bytes = int(np.prod(shape[1:])) * 2
        self.rows, kept = self._whole()
        self._file = self.path.open("r+b" if self.rows else "w+b")
        if not self.rows:
            self._file.write(_header(shape))
        self._file.truncate(HEAD + self.rows * self._row_bytes)
        self._file.seek(0, os.SEEK_END)
        self.journal.write_text("".join(kept), encoding="utf-8")

    @property
    def missing_bytes(self) -> int:
        """What the disk still has to take."""
        return (self.shape[0] - self.rows) * self._row_bytes

    def append(self, features: np.ndarray) -> None:
        """Write a chunk, (n, ..., D) float16; it counts from when the journal has it."""
        data = np.ascontiguousarray(features, dtype=np.float16).tobytes()
        assert len(data) == len(features) * self._row_bytes
        self._file.write(data)
        self._file.flush()
        os.fsync(self._file.fileno())
        with self.journal.open("a", encoding="utf-8") as journal:
            journal.write(json.dumps({"rows": len(features), "sha256": hashlib.sha256(data).hexdigest()}) + "\n")
        self.rows += len(features)

    def close(self) -> None:
        """No more is going to be written."""
        self._file.close()

    def _whole(self) -> tuple[int, list[str]]:
        """Rows that are whole, and the lines of the journal that vouch for them."""
        rows, kept = 0, []
        try:
            lines = self.journal.read_text(encoding="utf-8").splitlines(keepends=True)
            with self.path.open("rb") as file:
                if file.read(HEAD) != _header(self.shape):
                    return 0, []
                for line in lines:
                    entry = json.loads(line)
                    data = file.read(entry["rows"] * self._row_bytes)
                    if not line.endswith("\n") or hashlib.sha256(data).hexdigest() != entry["sha256"]:
                        break
                    rows += entry["rows"]
                    kept.append(line)
        except (OSError, ValueError, KeyError, TypeError):
            pass  # what could be read before counts
        return rows, kept


def _header(shape: tuple[int, ...]) -> bytes:
    """The first 128 bytes of an .npy file of float16 in C order."""
    text = f"{{'descr': '<f2', 'fortran_order': False, 'shape': {shape!r}, }}"
    head = b"\x93NUMPY\x01\x00" + (HEAD - 10).to_bytes(2, "little") + text.ljust(HEAD - 11).encode() + b"\n"
    assert len(head) == HEAD, "the shape is too long for the head"
    return head


def _check_disk(folder: Path, needed: int, recipe: Recipe) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        smaller = "features.grid or features.views" if recipe.grid > 1 else "features.views"
        raise DataError(
            f"{folder}: the features need {needed} bytes more ({needed / 2**30:.1f} GiB; {recipe.bytes_per_image} an image), and "
            f"{free} are free; make room, choose another disk, or lower {smaller}"
        )
