"""Photographs to predict, as files, folders, arrays or open images, and reading them while the network computes."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

from dicap.data.sources.base import Rejected, read_rgb, to_rgb
from dicap.data.sources.files import list_images, readable
from dicap.data.store import Store
from dicap.errors import DataError

One = str | Path | Image.Image | np.ndarray
Images = One | Sequence[One]


@dataclass(frozen=True)
class Photograph:
    """An image: the name in its rows, and its source, a file, an open image or pixels."""

    name: str
    source: Path | Image.Image | np.ndarray


def photographs(images: Images) -> list[Photograph]:
    """List the photographs that an argument `images` names.

    Args:
        images: a file, a folder (searched to the bottom, names relative to it), an open PIL image, an array (H, W, 3) or
            (N, H, W, 3) uint8, or a sequence of any of these. Images without a file are named by their number.

    Raises DataError if there is no image, for a web address, or for an array that cannot be an image.
    """
    is_sequence = isinstance(images, Iterable) and not isinstance(images, str | Path | Image.Image | np.ndarray)
    many: list[One] = list(images) if is_sequence else [images]  # type: ignore[list-item]
    photos: list[Photograph] = []
    for one in many:
        if isinstance(one, str | Path):
            photos += _of_path(str(one), alone=len(many) == 1, listed=is_sequence)
        else:
            pixels = [one] if isinstance(one, Image.Image) else _arrays(one)
            photos += [Photograph(str(len(photos) + i), image) for i, image in enumerate(pixels)]
    if not photos:
        raise DataError("predict: no image is named; give a file or a folder")
    return photos


def stored(store: Store, rows: Iterable[int]) -> Iterator[Photograph]:
    """The images in some rows of a converted set, named by their ids, read as they are needed."""
    return (Photograph(str(store.ids[row]), store.image(row)) for row in rows)


def _of_path(text: str, *, alone: bool, listed: bool) -> list[Photograph]:
    if "://" in text:
        raise DataError(f"{text}: an address; download the image and name its file")
    if not text:
        raise DataError("predict: an empty name; write . for the current folder")
    path = Path(text)
    if path.is_dir():
        return [Photograph(readable(name if alone else (path / name).as_posix()), path / name) for name in list_images(path)]
    if not path.exists() and not path.is_symlink() and alone and not listed:
        raise DataError(f"{text}: no such file or folder; name an image or a folder of images")
    return [Photograph(readable(text), path)]


def _arrays(pixels: np.ndarray) -> list[np.ndarray]:
    is_array = isinstance(pixels, np.ndarray)
    is_image = is_array and pixels.dtype == np.uint8 and pixels.ndim in (2, 3, 4) and pixels.size
    if not is_image or (pixels.ndim > 2 and pixels.shape[-1] not in (3, 4)):
        kind = f"{pixels.dtype} of shape {pixels.shape}" if is_array else type(pixels).__name__
        raise DataError(f"predict: found {kind}, expected a path, a PIL image, or an array of uint8 of shape (H, W, 3)")
    return list(pixels) if pixels.ndim == 4 else [pixels]


def read_square(source: Path | Image.Image | np.ndarray, size: int) -> np.ndarray | str:
    """A photograph as `convert` stores it: upright, (size, size, 3) uint8; or the reason why it cannot be read."""
    try:
        if isinstance(source, Path):
            image = read_rgb(source, upright=True)
        else:
            image = to_rgb(Image.fromarray(source) if isinstance(source, np.ndarray) else source, upright=True)
    except (Rejected, OSError) as reason:  # OSError: an open image whose file is damaged
        return str(reason)
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))


def read_ahead(
    images: Iterable[Photograph], size: int, batch: int, workers: int
) -> Iterator[tuple[Sequence[Photograph], list[np.ndarray | str]]]:
    """Yield (photographs, images or reasons) of each batch while the next batch is being read.

    At most two batches are in memory. Open images are loaded in this thread, since an image may be listed twice and two threads
    must not load it at once.
    """
    remaining, waiting = iter(images), deque()
    with ThreadPoolExecutor(max(1, workers)) as pool:
        while photos := list(islice(remaining, batch)):
            for photo in photos:
                if isinstance(photo.source, Image.Image):
                    with suppress(OSError):  # `read_square` reports the error
                        photo.source.load()
            waiting.append((photos, [pool.submit(read_square, photo.source, size) for photo in photos]))
            if len(waiting) > 1:
                first, futures = waiting.popleft()
                yield first, [future.result() for future in futures]
        for photos, futures in waiting:
            yield photos, [future.result() for future in futures]
