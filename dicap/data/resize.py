"""Decodes pictures and resizes them to squares, in worker processes, for `dicap.data.convert`."""

import os
import signal
import struct
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice

from PIL import Image

from dicap.data.sources.base import Images, Rejected
from dicap.machine.processes import cores, when_parent_ends

CHUNK = 8  # images per task of a worker
AHEAD = 16  # chunks per worker to compute ahead; the limit keeps memory independent of the data set's size
SIZES = struct.Struct("<ii")  # width and height of the original, stored before the pixels of a square
_INTERVAL = 0.5  # seconds between two checks that the parent is alive


def squares(images: Images, rows: Sequence[int], image_size: int, workers: int | None) -> Generator[bytes | str]:
    """The results of `square` for some images, in order, from a pool of processes.

    Args:
        workers: processes; None: one per core; 0: none.
    """
    workers = cores() if workers is None else workers
    if workers < 2 or len(rows) < AHEAD * CHUNK:
        for i in rows:
            yield square(images, i, image_size)
        return
    pool = ProcessPoolExecutor(workers, initializer=_begin_worker, initargs=(images, image_size, os.getpid()))
    try:
        chunks = (pool.submit(_chunk, rows[start : start + CHUNK]) for start in range(0, len(rows), CHUNK))
        waiting = deque(islice(chunks, AHEAD * workers))
        while waiting:
            yield from waiting.popleft().result()
            waiting.extend(islice(chunks, 1))
    finally:
        pool.shutdown(cancel_futures=True)


def square(images: Images, i: int, image_size: int) -> bytes | str:
    """Image i as SIZES followed by the pixels of a square (image_size, image_size, 3) uint8; a string is a rejection's reason."""
    try:
        picture = images.read(i)
    except Rejected as error:
        return str(error)
    return SIZES.pack(*picture.size) + picture.resize((image_size, image_size), Image.Resampling.BILINEAR).tobytes()


def _begin_worker(images: Images, image_size: int, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group, but only the parent handles it
    _begin_worker.job = images, image_size  # type: ignore[attr-defined]
    when_parent_ends(lambda: None, parent, _INTERVAL)  # else the workers of a killed parent would wait for ever


def _chunk(rows: Sequence[int]) -> list[bytes | str]:
    images, image_size = _begin_worker.job  # type: ignore[attr-defined]
    return [square(images, i, image_size) for i in rows]
