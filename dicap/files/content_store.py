"""Results that cost time, found again by what they were made from: converted images, features of a network.

A store is a folder with a file for each key, in folders of its first two hexadecimal digits as Git has them. A file is put in its
place as a whole. It begins with a checksum of store, key and value, so neither what was damaged nor the file of another key or
store is found: that is also why it need not be forced onto the disk, which would take a hundred times as long.
"""

import json
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from dicap.files.atomic import replacing
from dicap.files.locks import locked

FORMAT = 2  # 1: all values in one file
KEY = 16  # bytes
UNUSED_DAYS = 30  # a store that was not opened for so long is removed


def digest(*parts: bytes | memoryview) -> bytes:
    """16 bytes that name these parts, one behind the other."""
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.digest()


class ContentStore:
    """The values of one kind, by keys of KEY bytes; arrays of them, (n,) S16.

    Attributes:
        folder: where it lies; made if it does not exist.
    """

    @classmethod
    def of(cls, root: Path, facts: dict[str, Any]) -> "ContentStore":
        """The store below `root` of values that all depend on `facts`, as JSON takes them, beside their keys."""
        return cls(root / digest(json.dumps(facts | {"format": FORMAT}, sort_keys=True).encode()).hex())

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lock").touch()  # also says that the store is in use, see `remove_unused`

    def has(self, keys: np.ndarray) -> np.ndarray:
        """Whether there is a file for each of some keys, (n,) bool; `read` says whether it is sound."""
        return np.array([self._path(key).exists() for key in keys], bool)

    def read(self, key: bytes) -> bytes | None:
        """The value of a key; None if it is missing or damaged."""
        try:
            content = self._path(key).read_bytes()
        except FileNotFoundError:
            return None
        value = content[KEY:]
        return value if self._checksum(key, value) == content[:KEY] else None

    def add(self, keys: np.ndarray, values: Sequence[bytes]) -> None:
        """Write the values of some keys, of two of one key the later. Raises OSError, whose `filename` is the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)  # somebody may have removed it since it was opened
        with locked(self.folder / "lock", wait=True):  # temporary names are those of the keys
            try:
                for key, value in zip(keys, values, strict=True):
                    with replacing(self._path(key), sync=False) as temporary:
                        temporary.write_bytes(self._checksum(key, value) + value)
            except OSError as error:
                error.filename = str(self.folder)
                raise

    def _path(self, key: bytes) -> Path:
        name = _whole(key).hex()
        return self.folder / name[:2] / name[2:]

    def _checksum(self, key: bytes, value: bytes) -> bytes:
        return digest(self.folder.name.encode(), _whole(key), value)


def _whole(key: bytes) -> bytes:
    """The key with the zeros at its end that NumPy leaves out."""
    return key.ljust(KEY, b"\0")


def remove_unused(root: Path) -> None:
    """Remove the stores of each kind below a folder that nobody opened for UNUSED_DAYS."""
    for path in root.glob("*/*/lock"):
        with suppress(FileNotFoundError):  # another process does the same
            if time.time() - path.stat().st_mtime > UNUSED_DAYS * 86_400:
                shutil.rmtree(path.parent, ignore_errors=True)
