"""Pictures made small and square, in worker processes: what `dicap.data.convert` writes down."""

import os
import signal
import struct
from collections.abc import Generator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from PIL import Image

from dicap.data.sources.base import Images, Rejected
from dicap.machine.processes import cores, when_parent_ends

CHUNK = 8  # images a worker takes at a time
_HEAD = struct.Struct("<ii")
_INTERVAL = 0.5  # seconds between two looks at whether the parent lives


@dataclass(frozen=True)
class Result:
    """What became of one image: its original size and its bytes, or why it was rejected."""

    width: int = 0
    height: int = 0
    data: bytes = b""
    reason: str | None = None

    def to_bytes(self) -> bytes:
        """An image that was not rejected, for a store."""
        return _HEAD.pack(self.width, self.height) + self.data

    @staticmethod
    def from_bytes(value: bytes) -> "Result":
        """The inverse of `to_bytes`."""
        width, height = _HEAD.unpack_from(value)
        return Result(width, height, value[_HEAD.size :])


def results(images: Images, rows: Sequence[int], image_size: int, workers: int | None) -> Generator[Result]:
    """The results of some images, in order, from a pool of processes.

    Args:
        workers: processes; None: one a core; 0: none.
    """
    workers = cores() if workers is None else workers
    if workers < 2 or len(rows) < 16 * CHUNK:
        for i in rows:
            yield convert_one(images, i, image_size)
        return
    window = 16 * CHUNK * workers  # at a time: memory does not grow with the data set
    with ProcessPoolExecutor(workers, initializer=_begin_worker, initargs=(images, image_size, os.getpid())) as pool:
        for start in range(0, len(rows), window):
            yield from pool.map(_convert_row, rows[start : start + window], chunksize=CHUNK)


def convert_one(images: Images, i: int, image_size: int) -> Result:
    """Read and resize image i."""
    try:
        picture = images.read(i)
    except Rejected as error:
        return Result(reason=str(error))
    resized = picture.resize((image_size, image_size), Image.Resampling.BILINEAR)
    return Result(picture.width, picture.height, resized.tobytes())


def _begin_worker(images: Images, image_size: int, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent alone decides
    _begin_worker.job = images, image_size  # type: ignore[attr-defined]
    when_parent_ends(lambda: None, parent, _INTERVAL)  # a pool's workers would wait for work for ever


def _convert_row(i: int) -> Result:
    images, image_size = _begin_worker.job  # type: ignore[attr-defined]
    return convert_one(images, i, image_size)
