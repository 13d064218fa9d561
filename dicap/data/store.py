"""Reading a converted set: images by row, without their labels (those are `dicap.data.labels`)."""

import io
import os
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image

from dicap.data import format as files
from dicap.data.chained import Chained, locate
from dicap.data.texts import Texts
from dicap.errors import DataError


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
        shards: number of shards; 0 of a set of one file.
    """

    def __init__(self, folder: Path, meta: dict[str, Any], pixels: "_Pixels", shard: int | None = None) -> None:
        self.folder = folder
        self.meta = meta
        self.classes: list[str] = list(meta["classes"])
        self.image_size: int = int(meta["image_size"])
        counts = meta.get("shards", [])
        self.shards = len(counts) if shard is None else 0
        start = 0 if shard is None else sum(counts[:shard])
        self.n: int = sum(meta["counts"].values()) if shard is None else counts[shard]
        self.checksum = files.identity(meta) if shard is None else files.shard_identity(meta, shard)
        self._rows, self._shard = slice(start, start + self.n), shard
        self._pixels = pixels
        self._ids: Texts | None = None
        self._resident: dict[torch.device, torch.Tensor] = {}

    @classmethod
    def open(cls, folder: str | os.PathLike, shard: int | None = None) -> "Store":
        """Open `data/converted`, or a shard of it, which is like a set of its own.

        Raises:
            DataError: a file is missing or damaged, or the files do not belong together. The checksums of the whole
                files are not computed here (that is `dicap-stage doctor`), only those of the index's pages when they are read.
        """
        folder = Path(folder)
        meta = files.read_meta(folder)
        n, found = sum(meta["counts"].values()), files.index_rows(folder)
        if found != n:
            raise DataError(f"{folder / files.INDEX}: {found} rows, meta.json counts {n}; run `dicap-stage convert` again")
        counts = meta.get("shards")
        if counts is None:
            return cls(folder, meta, _open_pixels(folder, meta, n, None))
        if sum(counts) != n:
            raise DataError(
                f"{folder / files.META}: {sum(counts)} images in shards, counted {n}; run `dicap-stage convert` again"
            )
        numbers = range(len(counts)) if shard is None else [shard]
        parts = [_open_pixels(folder, meta, counts[number], number) for number in numbers]
        return cls(folder, meta, parts[0] if len(parts) == 1 else _chained(parts), shard)

    def __reduce__(self):
        # A worker process maps the file itself; pixels never travel through a pipe.
        return Store.open, (self.folder, self._shard)

    @property
    def index(self) -> pd.DataFrame:
        """What is known of the images; see above."""
        columns = ["id", "path", "width", "height", "split"]
        return files.read_index(self.folder, columns)[self._rows].to_pandas()

    @property
    def ids(self) -> Texts:
        """The images' names, read when they are first asked for."""
        if self._ids is None:
            self._ids = Texts(files.read_index(self.folder, ["id"])["id"])[self._rows]
        return self._ids

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
        return np.array([blake2b(self.image(row), digest_size=16).digest() for row in range(self.n)], "S16")

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
        self.array = array

    def gather(self, rows: np.ndarray) -> np.ndarray:
        # One thread, on purpose: torch.index_select is half as quick again on idle cores, and hundreds of times slower
        # where another process keeps one of its threads waiting.
        _check_rows(rows, len(self.array))
        return np.take(self.array, rows, axis=0)


class _Arrays:
    """The arrays of several shards."""

    def __init__(self, parts: list[_Array]) -> None:
        self._whole = Chained([part.array for part in parts])

    def gather(self, rows: np.ndarray) -> np.ndarray:
        _check_rows(rows, len(self._whole))
        return self._whole.take(rows)


class _Jpegs:
    """The resized images as JPEG files in one array of bytes, decoded at each read."""

    def __init__(self, data: np.ndarray, offsets: np.ndarray, size: int) -> None:
        self._data, self._offsets, self.size = data, offsets, size

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def gather(self, rows: np.ndarray) -> np.ndarray:
        _check_rows(rows, len(self))
        return np.stack([self.decode(row) for row in rows.tolist()]) if len(rows) else _no_images(self.size)

    def decode(self, row: int) -> np.ndarray:
        """One image, (H, W, 3) uint8."""
        with Image.open(io.BytesIO(self._data[self._offsets[row] : self._offsets[row + 1]].tobytes())) as image:
            return np.asarray(image)


class _JpegShards:
    """The JPEG files of several shards."""

    def __init__(self, parts: list[_Jpegs]) -> None:
        self._parts, self._starts = parts, np.cumsum([0, *(len(part) for part in parts)])

    def gather(self, rows: np.ndarray) -> np.ndarray:
        _check_rows(rows, self._starts[-1])
        which, local = locate(self._starts[:-1], rows)
        images = [self._parts[part].decode(row) for part, row in zip(which.tolist(), local.tolist(), strict=True)]
        return np.stack(images) if images else _no_images(self._parts[0].size)


_Pixels = _Array | _Arrays | _Jpegs | _JpegShards


def _open_pixels(folder: Path, meta: dict[str, Any], n: int, shard: int | None) -> _Array | _Jpegs:
    """The images of a set of one file, or of a shard."""
    size, read = int(meta["image_size"]), files.open_npy if shard is None else files.map_npy
    if meta["store"] == "array":
        return _Array(read(folder / files.numbered(files.ARRAY, shard), np.uint8, (n, size, size, 3)))
    name, offsets = folder / files.numbered(files.JPEGS, shard), folder / files.numbered(files.OFFSETS, shard)
    data, ends = read(name, np.uint8, (None,)), read(offsets, np.int64, (n + 1,))
    if ends[-1] != len(data):
        raise DataError(f"{offsets}: does not belong to {name.name}; run `dicap-stage convert` again")
    return _Jpegs(data, ends, size)


def _chained(parts: "list[_Array | _Jpegs]") -> _Pixels:
    arrays = [part for part in parts if isinstance(part, _Array)]
    return _Arrays(arrays) if arrays else _JpegShards([part for part in parts if isinstance(part, _Jpegs)])


def _no_images(size: int) -> np.ndarray:
    return np.empty((0, size, size, 3), np.uint8)


def _check_rows(rows: np.ndarray, n: int) -> None:
    # NumPy would take negative rows from the end.
    if len(rows) and (rows.min() < 0 or rows.max() >= n):
        row = int(rows.min()) if rows.min() < 0 else int(rows.max())
        raise IndexError(f"row {row} is outside the set's {n} images")
