"""Reads the images of a converted set by row. Labels are read by `dicap.data.labels`."""

import hashlib
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dicap.data import format as files
from dicap.errors import DataError, SettingsError
from dicap.files.content_store import digest
from dicap.files.npy import open_npy

if TYPE_CHECKING:
    import pyarrow as pa
    import torch


class Store:
    """The images of a converted set, memory-mapped.

    The index is read when it is first used, because worker processes need only pixels.

    Attributes:
        image_size: side of the square images in pixels.
        ids: (N,) unique names of the images.
        checksum: checksum of the whole set; pixels_checksum: checksum of the pixels only, without names and labels.
    """

    def __init__(self, folder: Path, meta: dict[str, Any], array: np.ndarray) -> None:
        self.folder = folder
        self.meta = meta
        self.classes: list[str] = list(meta["classes"])
        self.image_size: int = int(meta["image_size"])
        self.n: int = sum(meta["counts"].values())
        self.checksum = files.identity(meta)
        self.pixels_checksum: str = meta["checksums"][files.ARRAY]
        self._array = array

    @classmethod
    def open(cls, folder: str | os.PathLike, image_size: int | None = None) -> "Store":
        """Open `data/converted`.

        Raises:
            SettingsError: the set was converted at another size than the setting `image_size`.
            DataError: a file is missing or damaged, or the files do not belong together. The checksums of the
                index's pages are verified when they are read; `dicap-stage doctor` verifies whole files.
        """
        folder = Path(folder)
        meta = files.read_meta(folder)
        n, rows = sum(meta["counts"].values()), files.read_index(folder, []).num_rows
        if rows != n:
            raise DataError(f"{folder / files.INDEX}: {rows} rows, meta.json counts {n}; {files.AGAIN}")
        size = int(meta["image_size"])
        if image_size not in (None, size):
            raise SettingsError(
                f"params.yaml: image_size: found {image_size}, but {folder} was converted at {size}; run `dvc repro` "
                "(or `dicap-stage convert`)"
            )
        return cls(folder, meta, open_npy(folder / files.ARRAY, files.AGAIN, np.uint8, (n, size, size, 3)))

    def __reduce__(self):
        # A worker process maps the file itself, so no pixels are pickled.
        return Store.open, (self.folder,)

    @cached_property
    def _names(self) -> "pa.Table":
        return files.read_index(self.folder, ["id", "split"])

    @cached_property
    def is_test(self) -> np.ndarray:
        """Whether each image is in the test split, (N,) bool."""
        return self._names["split"].to_numpy() == "test"

    @property
    def test_checksum(self) -> str:
        """A checksum of the rows of the test split."""
        return hashlib.sha256(np.packbits(self.is_test).tobytes()).hexdigest()

    @cached_property
    def ids(self) -> np.ndarray:
        """The names of the images, (N,) strings."""
        return self._names["id"].to_numpy()

    def pixels(self, rows: np.ndarray) -> np.ndarray:
        """A new (B, H, W, 3) uint8 array of the images at `rows`."""
        rows = checked_rows(rows, self.n)
        # NumPy, with one thread: torch.index_select is 1.5 times as fast on idle cores, but hundreds of times slower if another
        # process delays one of its threads.
        return np.take(self._array, rows, axis=0)

    def read(self, rows: np.ndarray) -> "torch.Tensor":
        """The images at `rows`, (B, 3, H, W) uint8 in channels-last memory format, as in the file. Raises IndexError."""
        import torch  # imported here, because the report needs images but no torch

        return torch.from_numpy(self.pixels(rows)).permute(0, 3, 1, 2)

    def image(self, row: int) -> np.ndarray:
        """One image, (H, W, 3) uint8."""
        return self.pixels(np.array([row]))[0]

    def digests(self) -> np.ndarray:
        """A checksum of each image's pixels, (N,) S16, independent of the set and the row."""
        return np.array([digest(self._array[row].data) for row in range(self.n)], "S16")


def checked_rows(rows: np.ndarray, n: int) -> np.ndarray:
    """Rows as int64. Raises IndexError for a row outside of 0 .. n - 1; NumPy would count negative rows from the end."""
    rows = np.asarray(rows, dtype=np.int64)
    outside = rows[(rows < 0) | (rows >= n)]
    if len(outside):
        raise IndexError(f"row {outside[0]} is outside the set's {n} images")
    return rows
