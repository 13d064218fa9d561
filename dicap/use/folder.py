"""Reading images ahead of the network."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from dicap.data.sources.base import Rejected, read_rgb


def read_square(path: Path, size: int) -> np.ndarray | str:
    """A photograph as `convert` would store one's own: upright, (size, size, 3) uint8, or the reason why it cannot be read."""
    try:
        image = read_rgb(path, upright=True)
    except Rejected as reason:
        return str(reason)
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))


def read_ahead(
    folder: Path, paths: Sequence[str], size: int, batch: int, workers: int
) -> Iterator[tuple[Sequence[str], list[np.ndarray | str]]]:
    """Yield (paths, images or reasons) of one batch after the other while the next one is being read.

    At most two batches are in memory, however many images there are.
    """
    batches = [paths[start : start + batch] for start in range(0, len(paths), batch)]
    with ThreadPoolExecutor(max(1, workers)) as pool:
        waiting: list[tuple[Sequence[str], list[Future]]] = []
        for names in batches:
            waiting.append((names, [pool.submit(read_square, Path(folder) / name, size) for name in names]))
            if len(waiting) > 1:
                first, futures = waiting.pop(0)
                yield first, [future.result() for future in futures]
        for names, futures in waiting:
            yield names, [future.result() for future in futures]
