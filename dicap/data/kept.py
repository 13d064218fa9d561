"""Finished shards, kept beside the project: what the next conversion, or the next bank of features, need not make again.

DVC removes a stage's outputs before it runs the stage, so an earlier set cannot be looked for where it was. Each shard lies here
in a folder named by all that its content depends on. The published files are hard links to the kept ones and take no room of
their own; on a disk without links they are copies. A kept shard counts only while its files match their checksums."""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from dicap.data.format import META, sha256
from dicap.errors import DataError
from dicap.files.artifacts import make_room

KEPT_DAYS = 7  # a shard that nothing uses may belong to work that was interrupted, and go on for so long


class Kept:
    """The shards kept in a folder, each with a `meta.json` that names the checksums of its other files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: str) -> Path:
        """Where a shard lies, or would lie."""
        return self.folder / key

    def holds(self, key: str) -> bool:
        """Whether a shard was finished; its files are not read."""
        return (self.path(key) / META).is_file()

    def meta(self, key: str) -> dict[str, Any]:
        """What was noted of a shard that is whole."""
        return json.loads((self.path(key) / META).read_text(encoding="utf-8"))

    def whole(self, key: str) -> bool:
        """Whether a shard is there and its files match their checksums; reads all of it."""
        try:
            checksums = self.meta(key)["checksums"]
            return all(sha256(self.path(key) / name) == checksum for name, checksum in checksums.items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False

    @contextmanager
    def making(self, key: str, what: str) -> Iterator[Path]:
        """Yield an empty folder beside the shard's place; what is written there becomes the shard at the end.

        Args:
            what: the shard in words.

        Raises:
            DataError: another process is making it, or a file stands in the way.
        """
        with self._alone(key, what):
            scratch = self.folder / f"{key}.making"
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            try:
                yield scratch
                self._put(key, scratch)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)

    def take(self, key: str, folder: Path) -> None:
        """Make a finished folder a shard; it is moved."""
        make_room(self.path(key), folder=True)
        self._put(key, folder)

    def link(self, key: str, name: str, place: Path) -> None:
        """Let `place` be a file of a shard, by a hard link where the disk has them."""
        source = self.path(key) / name
        try:
            os.link(source, place)
        except OSError:
            shutil.copyfile(source, place)

    def clean(self, used: set[str]) -> None:
        """Remove what is of no more use: shards that are not in `used`, that no other file is a link to (a published set, DVC's
        cache) and that nobody has touched for KEPT_DAYS."""
        for path in self.folder.iterdir() if self.folder.exists() else ():
            with suppress(FileNotFoundError):  # what another process is making
                if path.name in used or time.time() - path.stat().st_mtime < KEPT_DAYS * 86_400:
                    continue
                if not path.is_dir():
                    path.unlink()  # the lock of a process that was killed
                elif all(file.stat().st_nlink == 1 for file in path.iterdir()):
                    shutil.rmtree(path, ignore_errors=True)

    def _put(self, key: str, folder: Path) -> None:
        shutil.rmtree(self.path(key), ignore_errors=True)  # one that was damaged
        shutil.move(folder, self.path(key))

    @contextmanager
    def _alone(self, key: str, what: str) -> Iterator[None]:
        make_room(self.path(key), folder=True)
        path = self.folder / f"{key}.lock"
        with path.open("a") as lock:
            if not _locked(lock, path):
                raise DataError(f"{path}: another process is making {what}; wait for its end and run again")
            try:
                yield
            finally:
                path.unlink(missing_ok=True)


def _locked(lock: IO[str], path: Path) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.fstat(lock.fileno()), os.stat(path))  # its last holder may just have removed it
    except OSError:
        return False
