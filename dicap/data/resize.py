"""Pictures made small and square, in worker processes: what `dicap.data.convert` writes down."""

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

CHUNK = 8  # images a worker takes at a time
AHEAD = 16  # chunks for each worker that are made ahead: memory does not grow with the data set
SIZES = struct.Struct("<ii")  # width and height of the original, which stand before the pixels of a square
_INTERVAL = 0.5  # seconds between two looks at whether the parent lives


def squares(images: Images, rows: Sequence[int], image_size: int, workers: int | None) -> Generator[bytes | str]:
    """What `square` makes of some images, in order, from a pool of processes.

    Args:
        workers: processes; None: one a core; 0: none.
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
    """Image i as SIZES and the pixels of a square, (image_size, image_size, 3) uint8; a text: why it is rejected."""
    try:
        picture = images.read(i)
    except Rejected as error:
        return str(error)
    return SIZES.pack(*picture.size) + picture.resize((image_size, image_size), Image.Resampling.BILINEAR).tobytes()


def _begin_worker(images: Images, image_size: int, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent alone decides
    _begin_worker.job = images, image_size  # type: ignore[attr-defined]
    when_parent_ends(lambda: None, parent, _INTERVAL)  # a pool's workers would wait for work for ever


def _chunk(rows: Sequence[int]) -> list[bytes | str]:
    images, image_size = _begin_worker.job  # type: ignore[attr-defined]
    return [square(images, i, image_size) for i in rows]
