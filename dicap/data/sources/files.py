"""The image files below a folder."""

import os
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from dicap.data.sources.base import Rejected, read_rgb, stays_below
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


class FilesAt:
    """Photographs in files anywhere, turned upright; `paths` holds one an item.

    `below`: the folder that the first `len(below)` files must not leave by a link, or None for each that may be a link to
    anywhere: linking a photograph into the folder of its label is how some people label.
    """

    def __init__(self, paths: list[Path], below: Sequence[Path | None] = ()) -> None:
        self.paths, self._below = paths, below

    def read(self, i: int) -> Image.Image:
        folder = self._below[i] if i < len(self._below) else None
        if folder is not None and not stays_below(self.paths[i], folder):
            raise Rejected("a link out of the data set's folder; copy the file there")
        return read_rgb(self.paths[i], upright=True)


def same_file(path: Path) -> tuple[int, int] | str:
    """What links to one file have in common: device and number of the file; its name where it is missing."""
    try:
        info = os.stat(path)
    except OSError:
        return str(path)
    return info.st_dev, info.st_ino
