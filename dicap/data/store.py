"""Reading a converted set: images by row, without their labels (those are `dicap.data.labels`)."""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image

from dicap.data import format as files
from dicap.errors import DataError


class Store:
    """The images of a converted set, memory-mapped.

    Attributes:
        folder: where the set lies.
        meta: the content of meta.json.
        classes: names of the classes in order.
        image_size: side of the square images in pixels.
        index: DataFrame of id, path, width, height, split: a row an image, in the order of the array. No labels.
        ids: (N,) unique names of the images.
        checksum: identity of the set.
        n: number of images.
    """

    def __init__(self, folder: Path, meta: dict[str, Any], index: pd.DataFrame, pixels: "_Array | _Jpegs") -> None:
        self.folder = folder
        self.meta = meta
        self.index = index
        self.classes: list[str] = list(meta["classes"])
        self.image_size: int = int(meta["image_size"])
        self.ids: np.ndarray = index["id"].to_numpy(dtype=object)
        self.checksum = files.identity(meta)
        self.n = len(index)
        self._pixels = pixels
        self._resident: dict[torch.device, torch.Tensor] = {}

    @classmethod
    def open(cls, folder: str | os.PathLike) -> "Store":
        """Open `data/converted`.

        Raises:
            DataError: a file is missing or damaged, or the files do not belong together. The checksums of the whole
                files are not computed here (that is `dicap-stage doctor`), only those of the index's pages.
        """
        folder = Path(folder)
        meta = files.read_meta(folder)
        index = files.read_index(folder, ["id", "path", "width", "height", "split"]).to_pandas()
        n, size = sum(meta["counts"].values()), int(meta["image_size"])
        if len(index) != n:
            raise DataError(f"{folder / files.INDEX}: {len(index)} rows, meta.json counts {n}; run `dicap-stage convert` again")
        if meta["store"] == "array":
            pixels = _Array(files.open_npy(folder / files.ARRAY, np.uint8, (n, size, size, 3)))
        else:
            data = files.open_npy(folder / files.JPEGS, np.uint8, (None,))
            offsets = np.array(files.open_npy(folder / files.OFFSETS, np.int64, (n + 1,)))
            if offsets[-1] != len(data):
                raise DataError(f"{folder / files.OFFSETS}: does not belong to {files.JPEGS}; run `dicap-stage convert` again")
            pixels = _Jpegs(data, offsets, size)
        return cls(folder, meta, index, pixels)

    def __reduce__(self):
        # A worker process maps the file itself; pixels never travel through a pipe.
        return Store.open, (self.folder,)

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

    def resident(self, device: torch.device) -> torch.Tensor:
        """The whole set on `device`, (N, H, W, 3) uint8; uploaded on the first call, in pieces.

        Raises:
            DataError: the device has too little free memory.
        """
        if device not in self._resident:
            shape = (self.n, self.image_size, self.image_size, 3)
            try:
                whole = torch.empty(shape, dtype=torch.uint8, device=device)
            except torch.OutOfMemoryError:
                need = self.n * self.image_size**2 * 3 / 2**30
                raise DataError(f"{self.folder}: {need:.1f} GiB do not fit on {device}; use --data-on host") from None
            for start in range(0, self.n, 4096):
                rows = np.arange(start, min(start + 4096, self.n))
                whole[start : start + len(rows)] = torch.from_numpy(self.pixels(rows)).to(device)
            self._resident[device] = whole
        return self._resident[device]


class _Array:
    """One uint8 array of all images."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def gather(self, rows: np.ndarray) -> np.ndarray:
        # One thread, on purpose: torch.index_select is half as quick again on idle cores, and hundreds of times slower
        # where another process keeps one of its threads waiting.
        _check_rows(rows, len(self._array))
        return np.take(self._array, rows, axis=0)


class _Jpegs:
    """The resized images as JPEG files in one array of bytes, decoded at each read."""

    def __init__(self, data: np.ndarray, offsets: np.ndarray, size: int) -> None:
        self._data, self._offsets, self._size = data, offsets, size

    def gather(self, rows: np.ndarray) -> np.ndarray:
        _check_rows(rows, len(self._offsets) - 1)
        pixels = np.empty((len(rows), self._size, self._size, 3), dtype=np.uint8)
        for i, row in enumerate(rows.tolist()):
            with Image.open(io.BytesIO(self._data[self._offsets[row] : self._offsets[row + 1]].tobytes())) as image:
                pixels[i] = np.asarray(image)
        return pixels


def _check_rows(rows: np.ndarray, n: int) -> None:
    # NumPy would take negative rows from the end.
    if len(rows) and (rows.min() < 0 or rows.max() >= n):
        row = int(rows.min()) if rows.min() < 0 else int(rows.max())
        raise IndexError(f"row {row} is outside the set's {n} images")
