"""The images below a folder, and reading them ahead of the network."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

from dicap.data.sources.base import Rejected, read_rgb
from dicap.errors import DataError

ENDINGS = frozenset(
    f".{name}" for name in ("jpg", "jpeg", "jpe", "jfif", "png", "bmp", "gif", "tif", "tiff", "webp", "ppm", "pgm", "pnm")
)


def list_images(folder: Path) -> list[str]:
    """Paths of the image files below a folder, relative to it, with forward slashes, sorted; hidden files are passed over.

    Links are followed, each folder once.

    Raises:
        DataError: there is no such folder, or no image in it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; name a folder of images")
    found, seen = [], set()
    for place, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        relative = Path(place).relative_to(folder)
        found += [
            (relative / name).as_posix() for name in names if Path(name).suffix.lower() in ENDINGS and not name.startswith(".")
        ]
    if not found:
        raise DataError(f"{folder}: no image files below it; known endings are {', '.join(sorted(ENDINGS))}")
    return sorted(found)


def read_square(path: Path, size: int) -> np.ndarray | str:
    """An image as `convert` would store it, (size, size, 3) uint8, or the reason why it cannot be read."""
    try:
        image = read_rgb(path)
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
