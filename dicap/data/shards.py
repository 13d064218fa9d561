"""Which images of a large set are in which shard, and how a shard is written and known again.

Rows stay in the order of the listing, and a shard is a stretch of them. It begins at an image whose id has the lowest hash of
all ids within half a shard size before and after it. So shards are a shard size long on average and never shorter than half of
one, and where one begins depends on the ids nearby and on nothing else: an image added, or removed, anywhere changes the one
shard it falls into (and, with a chance of some ten-thousandths, a neighbour's border). Shards of a fixed length would all change
from there on, and borders taken from an earlier conversion would make the bytes depend on what was converted before.

A shard's key names all that its pixels depend on: the paths of its images, the size and time of change of their files, image
size, kind of store, code, decoders. A shard of the same key has the same bytes, so it is taken from where finished shards are
kept (`dicap.data.kept`)."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import minimum_filter1d

from dicap.data import format as files
from dicap.data.resize import Result
from dicap.data.sources.base import RawSet, decoders

SIZES = "sizes.npy"  # of a kept shard: (images listed, 2) int32, width and height of the originals, 0 of those rejected


def shards_of(ids: Sequence[str], size: int) -> list[range]:
    """The rows of each shard of a set; none where it has no more than `size` images and is written as one file."""
    return cuts(ids, size) if len(ids) > size else []


def cuts(ids: Iterable[str], size: int) -> list[range]:
    """The rows of each shard.

    Args:
        ids: of all images, in order.
        size: images of a shard on average.
    """
    hashes = np.fromiter((_hash(name) for name in ids), np.float64)  # 48 bits: exact
    half = max(size // 2, 1)
    lowest = minimum_filter1d(hashes, 2 * half + 1, mode="constant", cval=np.inf) if len(hashes) else hashes
    begins = np.flatnonzero(hashes == lowest)
    begins = begins[(begins >= half) & (begins <= len(hashes) - half)].tolist()
    return [range(*pair) for pair in zip([0, *begins], [*begins, len(hashes)], strict=True)]


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=6).digest(), "big")


def keys(raw: RawSet, shards: list[range], *, image_size: int, store: str, code: str) -> list[str]:
    """The key of each of some shards.

    Args:
        code: what stands for the code that makes the pixels.
    """
    kind = f"{type(raw.images).__module__}.{type(raw.images).__qualname__}"
    facts = {"dataset": raw.dataset, "images": kind, "image_size": image_size, "store": store, "code": code, **decoders()}
    found = []
    for rows in shards:
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
        for i, item in zip(rows, raw.items[rows.start : rows.stop], strict=True):
            digest.update(json.dumps([item.path, raw.images.mark(i)]).encode())
        found.append(digest.hexdigest()[:32])
    return found


@dataclass(frozen=True)
class Written:
    """What is known of the images of a shard, or of a set of one file, when their pixels are written.

    Attributes:
        sizes: (images listed, 2) int32, width and height of the originals, 0 of those rejected.
        rejected: {row in the shard: reason}.
        error: summed squared difference of the JPEGs from the resized images.
        checksums: of the files of pixels.
    """

    sizes: np.ndarray
    rejected: dict[int, str]
    error: int
    checksums: dict[str, str]

    @property
    def kept(self) -> np.ndarray:
        """Rows in the shard that are not rejected, (n,) int64."""
        return np.flatnonzero(self.sizes[:, 0])

    def note(self, folder: Path) -> None:
        """Write it beside the pixels of a shard that is to be kept; the shard is whole with it."""
        np.save(folder / SIZES, self.sizes)
        checksums = self.checksums | {SIZES: files.sha256(folder / SIZES)}
        files.write_meta(folder, {"rejected": list(self.rejected.items()), "error": self.error, "checksums": checksums})

    @staticmethod
    def read(folder: Path, meta: dict[str, Any]) -> "Written":
        """As `note` wrote it."""
        checksums = {name: checksum for name, checksum in meta["checksums"].items() if name != SIZES}
        return Written(np.load(folder / SIZES, allow_pickle=False), dict(meta["rejected"]), meta["error"], checksums)


def write_pixels(results: Iterator[Result], n: int, folder: Path, *, image_size: int, store: str) -> Written:
    """Write the next `n` results as the files of pixels of a shard, or of a set of one file."""
    sizes, lengths = np.zeros((n, 2), np.int32), []
    rejected: dict[int, str] = {}
    error = 0
    path = folder / files.pixel_files(store)[0]
    with path.open("wb") as file:
        file.write(files.npy_header((0,)))
        for row, result in enumerate(islice(results, n)):
            if result.reason is not None:
                rejected[row] = result.reason
                continue
            file.write(result.data)
            sizes[row] = result.width, result.height
            lengths.append(len(result.data))
            error += result.error
        file.seek(0)
        file.write(files.npy_header((len(lengths), image_size, image_size, 3) if store == "array" else (sum(lengths),)))
    if store == "jpeg":
        np.save(folder / files.OFFSETS, np.cumsum([0, *lengths], dtype=np.int64))
    return Written(sizes, rejected, error, {name: files.sha256(folder / name) for name in files.pixel_files(store)})
