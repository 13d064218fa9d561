"""Reading a converted set: images by row, without their labels (those are `dicap.data.labels`)."""

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

    Names, and all else that is known of the images, stay in the index's file until they are asked for: worker processes want
    pixels only.

    Attributes:
        image_size: side of the square images in pixels.
        ids: (N,) unique names of the images.
        checksum: identity of the set; pixels_checksum: of its images alone, whatever their names and labels.
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
            SettingsError: it was converted at another size than the `image_size` of the settings.
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
        # A worker process maps the file itself; pixels never travel through a pipe.
        return Store.open, (self.folder,)

    @cached_property
    def _names(self) -> "pa.Table":
        return files.read_index(self.folder, ["id", "split"])

    @cached_property
    def is_test(self) -> np.ndarray:
        """Which images are of the test split, (N,) bool."""
        return self._names["split"].to_numpy() == "test"

    @property
    def test_checksum(self) -> str:
        """Identity of the test split: which rows are in it."""
        return hashlib.sha256(np.packbits(self.is_test).tobytes()).hexdigest()

    @cached_property
    def ids(self) -> np.ndarray:
        """The images' names, (N,) of texts, read when they are first asked for."""
        return self._names["id"].to_numpy()

    def pixels(self, rows: np.ndarray) -> np.ndarray:
        """A fresh (B, H, W, 3) uint8 array of the images at `rows`, as they lie in the file."""
        rows = checked_rows(rows, self.n)
        # One thread, on purpose: torch.index_select is half as quick again on idle cores, and hundreds of times slower
        # where another process keeps one of its threads waiting.
        return np.take(self._array, rows, axis=0)

    def read(self, rows: np.ndarray) -> "torch.Tensor":
        """The images at `rows`, (B, 3, H, W) uint8, in memory channels last as in the file. Raises IndexError."""
        import torch  # what looks at photographs only, as the report does, waits for no torch

        return torch.from_numpy(self.pixels(rows)).permute(0, 3, 1, 2)

    def image(self, row: int) -> np.ndarray:
        """One image, (H, W, 3) uint8."""
        return self.pixels(np.array([row]))[0]

    def digests(self) -> np.ndarray:
        """A checksum of each image as it is stored, (N,) S16: its identity, whatever set it is in and wherever it stands."""
        return np.array([digest(self._array[row].data) for row in range(self.n)], "S16")


def checked_rows(rows: np.ndarray, n: int) -> np.ndarray:
    """Rows as int64. Raises IndexError for one that is outside of `n` images: NumPy would take negative rows from the end."""
    rows = np.asarray(rows, dtype=np.int64)
    outside = rows[(rows < 0) | (rows >= n)]
    if len(outside):
        raise IndexError(f"row {outside[0]} is outside the set's {n} images")
    return rows
