"""A cache of expensive results (converted images, features of a network), with keys made from their inputs.

A store is a folder with one file per key, in subfolders named by the first two hexadecimal digits of the key, like Git's objects.
Files are written atomically. A file begins with a checksum of store, key and value, so a damaged file, or a file of another key
or store, counts as missing. So files need no flush to disk, which would take a hundred times as long.
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
UNUSED_DAYS = 30  # a store that was not opened for this long is removed


def digest(*parts: bytes | memoryview) -> bytes:
    """A 16-byte hash of the concatenated parts."""
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.digest()


class ContentStore:
    """Values of one kind, by keys of KEY bytes. Arrays of keys are (n,) S16.

    Attributes:
        folder: the store's folder; created if it does not exist.
    """

    @classmethod
    def of(cls, root: Path, facts: dict[str, Any]) -> "ContentStore":
        """The store below `root` for values that depend on their key and on `facts` (JSON values)."""
        return cls(root / digest(json.dumps(facts | {"format": FORMAT}, sort_keys=True).encode()).hex())

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lock").touch()  # its time tells `remove_unused` that the store is in use

    def has(self, keys: np.ndarray) -> np.ndarray:
        """Whether there is a file for each key, (n,) bool. Only `read` verifies the file."""
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
        """Write the values of some keys; for equal keys the last value counts. Raises OSError with the folder as `filename`."""
        self.folder.mkdir(parents=True, exist_ok=True)  # the folder may have been removed since it was opened
        with locked(self.folder / "lock", wait=True):  # two writers of one key would share a temporary name
            try:
                for key, value in zip(keys, values, strict=True):
                    with replacing(self._path(key), sync=False) as temporary:
                        temporary.write_bytes(self._checksum(key, value) + value)
            except OSError as error:
                error.filename = str(self.folder)
                raise

    def _path(self, key: bytes) -> Path:
        name = _padded(key).hex()
        return self.folder / name[:2] / name[2:]

    def _checksum(self, key: bytes, value: bytes) -> bytes:
        return digest(self.folder.name.encode(), _padded(key), value)


def _padded(key: bytes) -> bytes:
    """The key with its trailing zeros, which NumPy strips."""
    return key.ljust(KEY, b"\0")


def remove_unused(root: Path) -> None:
    """Remove the stores below a folder that were not opened for UNUSED_DAYS."""
    for path in root.glob("*/*/lock"):
        with suppress(FileNotFoundError):  # another process may be removing the store
            if time.time() - path.stat().st_mtime > UNUSED_DAYS * 86_400:
                shutil.rmtree(path.parent, ignore_errors=True)
