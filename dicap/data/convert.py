"""A raw data set becomes one array of resized images, an index and a description (`dicap.data.format`).

Everything is written into a hidden folder beside the destination, which takes the destination's name at the very end:
a killed or failed conversion leaves the earlier set as it was.
"""

import csv
import io
import math
import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dicap.artifacts import make_room
from dicap.data import format as files
from dicap.data.sources.base import Images, RawSet, Rejected, unknown_entries
from dicap.errors import DataError
from dicap.progress import progress

JPEG_QUALITY = 95
CHUNK = 32  # images a worker takes at a time


@dataclass(frozen=True)
class Result:
    """What became of one image: its original size and its bytes, or why it was rejected."""

    width: int = 0
    height: int = 0
    data: bytes = b""
    error: int = 0  # summed squared difference of the JPEG from the resized image (`store: jpeg`)
    reason: str | None = None


def convert(
    raw: RawSet,
    destination: Path,
    *,
    image_size: int,
    store: str = "array",
    max_rejected: float = 0.01,
    workers: int | None = None,
) -> dict[str, Any]:
    """Convert a raw data set.

    Each image is decoded to RGB and resized to a square with Pillow's bilinear filter, the aspect ratio ignored
    (docs/methods.md 2.4). Files that cannot be decoded are left out, listed in meta.json with the reason.

    Args:
        raw: the listed images.
        destination: `data/converted`; replaced as a whole when everything has been written.
        image_size: side in pixels.
        store: array, or jpeg (re-encoded at quality 95, 4:4:4, for small disks; the loss is measured and recorded).
        max_rejected: share of rejected images above which the conversion fails.
        workers: processes; None: one a core; 0: none.

    Returns:
        The content of meta.json.

    Raises:
        DataError: too many images were rejected, two have the same id, a split lost all its images, the disk is
            full, or another conversion into the same folder is going on.
    """
    repeated = [name for name, count in Counter(item.id for item in raw.items).items() if count > 1]
    if repeated:
        count = sum(item.id == repeated[0] for item in raw.items)
        raise DataError(f"{raw.dataset}: image {repeated[0]!r} is listed {count} times; keep one")
    make_room(destination, folder=True)
    with _exclusive(destination) as scratch:
        try:
            meta = _write(raw, scratch, image_size, store, max_rejected, workers, destination)
        except OSError as error:
            raise DataError(f"{destination}: {error.strerror or error}; make room or choose another disk") from None
        except BrokenProcessPool:
            raise DataError(
                f"{destination}: a worker process was killed (often the memory is full); convert with --workers 0"
            ) from None
        swap_in(scratch, destination)
    return meta


def _write(
    raw: RawSet, scratch: Path, image_size: int, store: str, max_rejected: float, workers: int | None, destination: Path
) -> dict[str, Any]:
    results = _results(raw.images, len(raw.items), image_size, store == "jpeg", workers)
    shown = progress(results, desc=f"convert {raw.dataset}", total=len(raw.items), unit="image")
    kept: list[int] = []
    sizes: list[tuple[int, int]] = []
    lengths: list[int] = []
    rejected: list[dict[str, str]] = []
    error = 0
    name = files.ARRAY if store == "array" else files.JPEGS
    with (scratch / name).open("wb") as file, closing(shown):
        file.write(files.npy_header((0,)))
        for i, result in enumerate(shown):
            if result.reason is not None:
                rejected.append({"path": raw.items[i].path, "reason": result.reason})
                continue
            file.write(result.data)
            kept.append(i)
            sizes.append((result.width, result.height))
            lengths.append(len(result.data))
            error += result.error
        file.seek(0)
        shape = (len(kept), image_size, image_size, 3) if store == "array" else (sum(lengths),)
        file.write(files.npy_header(shape))
    if store == "jpeg":
        np.save(scratch / files.OFFSETS, np.cumsum([0, *lengths], dtype=np.int64))

    _judge(raw, rejected, kept, max_rejected, destination)
    items = [raw.items[i] for i in kept]
    columns = {
        "id": [item.id for item in items],
        "path": [item.path for item in items],
        "width": [width for width, _ in sizes],
        "height": [height for _, height in sizes],
        "split": [item.split for item in items],
        "labels": [None if item.labels is None else list(item.labels) for item in items],
    }
    unknown = {
        split: unknown_entries(len(raw.classes), [item for item in items if item.split == split]) for split in ("train", "test")
    }
    if any(unknown.values()):
        columns["absent"] = [None if item.absent is None else list(item.absent) for item in items]
    files.write_index(scratch / files.INDEX, columns)
    written = [name, files.INDEX] + ([files.OFFSETS] if store == "jpeg" else [])
    notes = list(raw.notes)
    if rejected:
        notes.append(f"{len(rejected)} images were rejected, so the split differs from one drawn with them")
    meta = {
        "schema": files.PARTIAL_SCHEMA if any(unknown.values()) else files.SCHEMA,
        "dataset": raw.dataset,
        "image_size": image_size,
        "store": store,
        "classes": raw.classes,
        "counts": {split: sum(item.split == split for item in items) for split in files.SPLITS},
        "rejected": rejected,
        "checksums": {written_name: files.sha256(scratch / written_name) for written_name in written},
        "hidden_labels": all(item.labels is not None for item in items),
        "notes": notes,
        "source": raw.source,
    }
    added = {was: [item.id for item in items if item.added == was] for was in ("train", "unlabeled")}
    if any(added.values()):
        meta["added"] = added  # labels given later: `split` never hides them
    if any(unknown.values()):
        meta["unknown"] = unknown  # entries (image, class) of which nothing is known, of the labelled images
    if store == "jpeg":
        mean = error / (len(kept) * image_size**2 * 3)
        meta["fidelity"] = {
            "quality": JPEG_QUALITY,
            "rms_difference": round(math.sqrt(mean), 4),
            "psnr_db": round(10 * math.log10(255**2 / max(mean, 1e-12)), 2),
        }
    files.write_meta(scratch, meta)
    return meta


def _judge(raw: RawSet, rejected: list[dict[str, str]], kept: list[int], max_rejected: float, destination: Path) -> None:
    """Fail if too much was rejected, leaving a list of what it was."""
    listing = destination.with_name(f"{destination.name}.rejected.csv")
    listing.unlink(missing_ok=True)
    share = len(rejected) / max(len(raw.items), 1)
    listed, left = {item.split for item in raw.items}, {raw.items[i].split for i in kept}
    lost = [split for split in ("train", "test") if split in listed and split not in left]
    if raw.items and share <= max_rejected and not lost:
        return
    if not rejected:
        raise DataError(f"{raw.dataset}: the raw data set lists no images; check data_root")
    with listing.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["path", "reason"])
        writer.writeheader()
        writer.writerows(rejected)
    first = f"the first is {rejected[0]['path']}: {rejected[0]['reason']}; all are listed in {listing}"
    if share <= max_rejected:
        raise DataError(f"{raw.dataset}: no image of split {lost[0]} is left of those listed; {first}")
    raise DataError(
        f"{raw.dataset}: {len(rejected)} of {len(raw.items)} images rejected ({share:.1%}), "
        f"more than convert.max_rejected ({max_rejected:.1%}); {first}; repair or remove them, or raise convert.max_rejected"
    )


def _results(images: Images, n: int, image_size: int, jpeg: bool, workers: int | None) -> Iterator[Result]:
    """The results of all images in order, from a pool of processes."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = cores if workers is None else workers
    if workers < 2 or n < 4 * CHUNK:
        for i in range(n):
            yield convert_one(images, i, image_size, jpeg)
        return
    with ProcessPoolExecutor(workers, initializer=_begin_worker, initargs=(images, image_size, jpeg, os.getpid())) as pool:
        chunks = iter(range(0, n, CHUNK))
        waiting: dict[int, Future] = {}
        for start in range(0, n, CHUNK):
            # A window of chunks: the order is kept, and memory does not grow with the data set.
            while len(waiting) < 4 * workers and (chunk := next(chunks, None)) is not None:
                waiting[chunk] = pool.submit(_convert_chunk, chunk, min(chunk + CHUNK, n))
            future = waiting.pop(start)
            wait([future], return_when=FIRST_COMPLETED)
            yield from future.result()


def convert_one(images: Images, i: int, image_size: int, jpeg: bool) -> Result:
    """Read, resize and encode image i."""
    try:
        picture = images.read(i)
    except Rejected as error:
        return Result(reason=str(error))
    resized = picture.resize((image_size, image_size), Image.Resampling.BILINEAR)
    if not jpeg:
        return Result(picture.width, picture.height, resized.tobytes())
    buffer = io.BytesIO()
    resized.save(buffer, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    with Image.open(io.BytesIO(buffer.getvalue())) as again:
        difference = np.asarray(again, dtype=np.int64) - np.asarray(resized, dtype=np.int64)
    return Result(picture.width, picture.height, buffer.getvalue(), int((difference**2).sum()))


def _begin_worker(images: Images, image_size: int, jpeg: bool, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent alone decides
    _begin_worker.job = images, image_size, jpeg  # type: ignore[attr-defined]
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _convert_chunk(start: int, stop: int) -> list[Result]:
    images, image_size, jpeg = _begin_worker.job  # type: ignore[attr-defined]
    return [convert_one(images, i, image_size, jpeg) for i in range(start, stop)]


def _end_with(parent: int) -> None:
    """Leave when the parent was killed; a pool's workers would wait for work for ever."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


class _exclusive:
    """The scratch folder beside `destination`, empty, held under a lock; removed on the way out."""

    def __init__(self, destination: Path) -> None:
        self._destination = destination
        self._scratch = destination.with_name(f".{destination.name}.converting")

    def __enter__(self) -> Path:
        import fcntl

        self._lock = self._destination.with_name(f".{self._destination.name}.lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise DataError(f"{self._destination}: another `dicap-stage convert` is writing it; wait for its end") from None
        _recover(self._destination)
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        return self._scratch

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._lock.close()  # the file stays: removing it would let a third process lock a new one


def swap_in(scratch: Path, destination: Path) -> None:
    """Give a finished folder the destination's name; what was there before is removed afterwards."""
    old = destination.with_name(f".{destination.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if destination.exists():
        destination.rename(old)
    scratch.rename(destination)
    shutil.rmtree(old, ignore_errors=True)


def _recover(destination: Path) -> None:
    """Undo a swap that was killed between its two renames."""
    old = destination.with_name(f".{destination.name}.old")
    if old.exists() and not destination.exists():
        old.rename(destination)
