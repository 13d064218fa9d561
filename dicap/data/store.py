"""Reading a converted set: images by row, without their labels (those are `dicap.data.labels`)."""

import io
import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image

from dicap.data import format as files
from dicap.errors import DataError
from dicap.files.content_store import digest
from dicap.files.npy import open_npy


class Store:
    """The images of a converted set, memory-mapped.

    Names, and all else that is known of the images, stay in the index's file until they are asked for: worker processes want
    pixels only.

    Attributes:
        folder: where the set lies.
        meta: the content of meta.json.
        classes: names of the classes in order.
        image_size: side of the square images in pixels.
        index: DataFrame of id, path, width, height, split: a row an image, in the order of the array. No labels. Read anew
            each time.
        ids: (N,) unique names of the images.
        checksum: identity of the set.
        n: number of images.
    """

    def __init__(self, folder: Path, meta: dict[str, Any], pixels: "_Array | _Jpegs") -> None:
        self.folder = folder
        self.meta = meta
        self.classes: list[str] = list(meta["classes"])
        self.image_size: int = int(meta["image_size"])
        self.n: int = sum(meta["counts"].values())
        self.checksum = files.identity(meta)
        self._pixels = pixels

    @classmethod
    def open(cls, folder: str | os.PathLike) -> "Store":
        """Open `data/converted`.

        Raises:
            DataError: a file is missing or damaged, or the files do not belong together. The checksums of the whole
                files are not computed here (that is `dicap-stage doctor`), only those of the index's pages when they are read.
        """
        folder = Path(folder)
        meta = files.read_meta(folder)
        n, found = sum(meta["counts"].values()), files.index_rows(folder)
        if found != n:
            raise DataError(f"{folder / files.INDEX}: {found} rows, meta.json counts {n}; run `dicap-stage convert` again")
        return cls(folder, meta, _open_pixels(folder, meta, n))

    def __reduce__(self):
        # A worker process maps the file itself; pixels never travel through a pipe.
        return Store.open, (self.folder,)

    @property
    def index(self) -> pd.DataFrame:
        """What is known of the images; see above."""
        columns = ["id", "path", "width", "height", "split"]
        return files.read_index(self.folder, columns).to_pandas()

    @cached_property
    def ids(self) -> np.ndarray:
        """The images' names, (N,) of texts, read when they are first asked for."""
        return files.read_index(self.folder, ["id"])["id"].to_numpy()

    def pixels(self, rows: np.ndarray) -> np.ndarray:
        """A fresh (B, H, W, 3) uint8 array of the images at `rows`, as they lie in the file."""
        return self._pixels.gather(np.asarray(rows, dtype=np.int64))

    def read(self, rows: np.ndarray) -> torch.Tensor:
        """The images at `rows`, (B, 3, H, W) uint8, contiguous, no augmentation.

        Raises:
            IndexError: a row is outside the set.
        """
        return self.read_channels_last(rows).contiguous()

    def read_channels_last(self, rows: np.ndarray) -> torch.Tensor:
        """As `read`, (B, 3, H, W), but in the file's own order in memory: four times quicker, and what a network wants."""
        return torch.from_numpy(self.pixels(rows)).permute(0, 3, 1, 2)

    def image(self, row: int) -> np.ndarray:
        """One image, (H, W, 3) uint8."""
        return self.pixels(np.array([row]))[0]

    def digests(self) -> np.ndarray:
        """A checksum of each image as it is stored, (N,) S16: its identity, whatever set it is in and wherever it stands."""
        return np.array([digest(self._pixels.stored(row)) for row in range(self.n)], "S16")


class _Array:
    """One uint8 array of all images."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def gather(self, rows: np.ndarray) -> np.ndarray:
        # One thread, on purpose: torch.index_select is half as quick again on idle cores, and hundreds of times slower
        # where another process keeps one of its threads waiting.
        _check_rows(rows, len(self.array))
        return np.take(self.array, rows, axis=0)

    def stored(self, row: int) -> memoryview:
        """The bytes of an image in the file."""
        return self.array[row].data


class _Jpegs:
    """The resized images as JPEG files in one array of bytes, decoded at each read."""

    def __init__(self, data: np.ndarray, offsets: np.ndarray, size: int) -> None:
        self._data, self._offsets, self.size = data, offsets, size

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def gather(self, rows: np.ndarray) -> np.ndarray:
        _check_rows(rows, len(self))
        return np.stack([self.decode(row) for row in rows.tolist()]) if len(rows) else _no_images(self.size)

    def stored(self, row: int) -> bytes:
        """The bytes of an image in the file."""
        return self._data[self._offsets[row] : self._offsets[row + 1]].tobytes()

    def decode(self, row: int) -> np.ndarray:
        """One image, (H, W, 3) uint8."""
        with Image.open(io.BytesIO(self.stored(row))) as image:
            return np.asarray(image)


def _open_pixels(folder: Path, meta: dict[str, Any], n: int) -> _Array | _Jpegs:
    size = int(meta["image_size"])
    if meta["store"] == "array":
        return _Array(open_npy(folder / files.ARRAY, files.AGAIN, np.uint8, (n, size, size, 3)))
    data = open_npy(folder / files.JPEGS, files.AGAIN, np.uint8, (None,))
    offsets = open_npy(folder / files.OFFSETS, files.AGAIN, np.int64, (n + 1,))
    if offsets[-1] != len(data):
        raise DataError(f"{folder / files.OFFSETS}: does not belong to {files.JPEGS}; {files.AGAIN}")
    return _Jpegs(data, offsets, size)


def _no_images(size: int) -> np.ndarray:
    return np.empty((0, size, size, 3), np.uint8)


def _check_rows(rows: np.ndarray, n: int) -> None:
    # NumPy would take negative rows from the end.
    if len(rows) and (rows.min() < 0 or rows.max() >= n):
        row = int(rows.min()) if rows.min() < 0 else int(rows.max())
        raise IndexError(f"row {row} is outside the set's {n} images")
