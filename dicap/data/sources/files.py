"""The image files below a folder."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from PIL import Image

from dicap.data.sources.base import Rejected, file_mark, read_rgb, stays_below
from dicap.errors import DataError

TABLES = (".csv", ".tsv", ".tab", ".txt", ".parquet")  # files of labels
ENDINGS = frozenset(
    f".{name}"
    for name in (
        *("jpg", "jpeg", "jpe", "jfif", "png", "bmp", "gif", "tif", "tiff", "webp", "ppm", "pgm", "pnm"),
        *("heic", "heif", "hif", "avif"),
    )
)
# Photographs and films that cannot be read: they are counted, so that nobody misses them without a word.
FOREIGN = frozenset(
    f".{name}"
    for name in (
        *("cr2", "cr3", "nef", "arw", "dng", "orf", "rw2", "raf", "psd", "svg", "jxl", "eps", "pdf"),
        *("mp4", "mov", "avi", "mkv", "zip", "tar", "gz", "7z", "rar"),
    )
)


def list_images(folder: Path, *, endings: frozenset[str] = ENDINGS, required: bool = True) -> list[str]:
    """Paths of the image files below a folder, relative to it, with forward slashes, sorted; hidden files are passed over.

    Links are followed, each folder once.

    Raises:
        DataError: there is no such folder, or no image in it although one is `required`.
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
            (relative / name).as_posix() for name in names if Path(name).suffix.lower() in endings and not name.startswith(".")
        ]
    if not found and required:
        raise DataError(f"{folder}: no image files below it; known endings are {', '.join(sorted(endings))}")
    return sorted(found)


class FilesAt:
    """Photographs in files anywhere, turned upright; `paths` has one an item.

    `below`: the folder that the first `len(below)` files must not leave by a link, or None for each that may be a link to
    anywhere: linking a photograph into the folder of its label is how some people label.
    """

    def __init__(self, paths: Iterable[Path], below: Sequence[Path | None] = ()) -> None:
        self.paths, self._below = list(paths), list(below)

    def read(self, i: int) -> Image.Image:
        path = self.paths[i]
        folder = self._below[i] if i < len(self._below) else None
        if folder is not None and not stays_below(path, folder):
            raise Rejected("a link out of the data set's folder; copy the file there")
        return read_rgb(path, upright=True)

    def mark(self, i: int) -> str:
        """Place, size and times of change of its file."""
        return file_mark(self.paths[i])


def readable(name: str) -> str:
    """A file's name as text that can be written: bytes of it that are not UTF-8 as `\\xe9`, a carriage return as `\\r`."""
    name = name.replace("\r", "\\r")  # which Python writes into a CSV file as the end of a row
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def same_file(path: Path) -> tuple[int, int] | str:
    """What links to one file have in common: device and number of the file; its name where it is missing."""
    try:
        info = os.stat(path)
    except OSError:
        return str(path)
    return info.st_dev, info.st_ino


def linked_folder(file: Path, root: Path) -> Path:
    """The folder that a file must not leave by a link: `root`, or a folder in it (or in its images/) that is itself a link.

    Linking a large folder of photographs into that of the annotations is the owner's own doing; a file in it that leads
    elsewhere may be somebody else's.
    """
    place = root
    if file.is_relative_to(root):
        for part in file.relative_to(root).parts[:-1][:2]:
            place = place / part
            if place.is_symlink():
                return place
    return root
