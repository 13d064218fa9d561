"""Results that cost time, found again by what they were made from: converted images, features of a network.

A store is a folder of files that only grow: `data` holds the values, one behind the other, and `index` a record of fixed length
for each, written once its value is on the disk. A process that is killed leaves bytes that no record speaks of, or half a record,
which the next one to write cuts off. A record has a checksum of store, key and value, so neither what was damaged nor the files
of another store are found.

Writers take turns by a lock; readers need none. Of two values of one key the later counts.
"""

import json
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from dicap.files.locks import locked

RECORD = np.dtype([("key", "S16"), ("start", "<u8"), ("length", "<u8"), ("checksum", "S16")])
UNUSED_DAYS = 30  # a store that nobody opened for so long is removed
ABSENT = -1


def digest(*parts: bytes | memoryview) -> bytes:
    """16 bytes that name these parts, one behind the other."""
    found = blake2b(digest_size=16)
    for part in parts:
        found.update(part)
    return found.digest()


class ContentStore:
    """The values of one kind, by key. What is written after it was opened is not seen.

    Attributes:
        folder: where it lies; made if it does not exist.
    """

    @classmethod
    def of(cls, root: Path, facts: dict[str, Any]) -> "ContentStore":
        """The store below `root` of values that all depend on `facts`, as JSON takes them, beside their keys."""
        return cls(root / digest(json.dumps(facts, sort_keys=True).encode()).hex())

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._data, self._index = folder / "data", folder / "index"
        for path in (self._data, self._index):
            path.touch()  # also says that the store is in use, see `remove_unused`
        content = self._index.read_bytes()
        records = np.frombuffer(content[: len(content) // RECORD.itemsize * RECORD.itemsize], RECORD)
        self._records = records[np.argsort(records["key"], kind="stable")]  # of equal keys the latest is last
        self._file = self._data.open("rb")

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Where the values of some keys, (n,) S16, are: (n,) int64 for `read`, ABSENT of those that there are none of."""
        if not len(self._records):
            return np.full(len(keys), ABSENT)
        places = np.searchsorted(self._records["key"], keys, side="right") - 1
        return np.where(self._records["key"][places] == keys, places, ABSENT)

    def read(self, place: int) -> bytes | None:
        """The value that `find` found; None where there is none, or it is damaged."""
        if place == ABSENT:
            return None
        record = self._records[place]
        start, length = int(record["start"]), int(record["length"])
        if start + length > os.fstat(self._file.fileno()).st_size:
            return None
        value = os.pread(self._file.fileno(), length, start)
        checksum = record["checksum"].ljust(16, b"\0")  # NumPy leaves out zeros at the end of bytes
        return value if self._checksum(self._records["key"][place : place + 1], value) == checksum else None

    def add(self, keys: np.ndarray, values: Sequence[bytes]) -> None:
        """Write values of (n,) S16 keys; all of them are on the disk on return.

        Raises:
            OSError: the disk is full; its `filename` is the folder.
        """
        records = np.zeros(len(keys), RECORD)
        records["key"] = keys
        self.folder.mkdir(parents=True, exist_ok=True)  # somebody may have removed it since it was opened
        with locked(self.folder / "lock", wait=True), self._data.open("ab") as data, self._index.open("ab") as index:
            begin = start = data.seek(0, os.SEEK_END)
            try:
                for row, value in enumerate(values):
                    records[row]["start"], records[row]["length"] = start, len(value)
                    records[row]["checksum"] = self._checksum(keys[row : row + 1], value)
                    start += data.write(value)
                data.flush()
                os.fsync(data.fileno())
                size = index.seek(0, os.SEEK_END)
                index.truncate(size - size % RECORD.itemsize)
                index.write(records.tobytes())
                index.flush()
                os.fsync(index.fileno())
            except OSError as error:  # what no record will speak of need not fill the disk
                os.ftruncate(data.fileno(), begin)
                error.filename = str(self.folder)
                raise

    def _checksum(self, key: np.ndarray, value: bytes) -> bytes:
        return digest(self.folder.name.encode(), key.tobytes(), value)


def remove_unused(root: Path) -> None:
    """Remove the stores and the exported backbones (.onnx) of each kind below a folder that nobody opened for UNUSED_DAYS."""
    for path in [*root.glob("*/*/index"), *root.glob("*/*.onnx")]:
        with suppress(FileNotFoundError):  # another process does the same
            if time.time() - path.stat().st_mtime > UNUSED_DAYS * 86_400:
                path.unlink() if path.suffix else shutil.rmtree(path.parent, ignore_errors=True)
