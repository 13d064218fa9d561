"""Atomic writes of files and folders.

They are written under a temporary name next to their path and then renamed, so a reader sees the old or the new version, never
half a file.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dicap.errors import DataError
from dicap.files.locks import locked


def make_room(path: Path, *, folder: bool) -> None:
    """Create the parent folder of `path`. Raises DataError if there is a file where a folder is needed, or the reverse."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise DataError(f"{path.parent}: a file stands where a folder is needed; move it away") from None
    if path.exists() and path.is_dir() != folder:
        present, needed = ("a file", "a folder") if folder else ("a folder", "a file")
        raise DataError(f"{path}: {present} stands where {needed} is to be written; move it away")


@contextmanager
def replacing(path: Path, *, sync: bool = True) -> Iterator[Path]:
    """Yield a temporary path next to `path`; on success it replaces `path`, on failure it is removed.

    The temporary name is constant, because some formats store the name they were written under.

    Args:
        sync: flush the file to disk before renaming it. Without `sync` it may be empty after a power failure.
    """
    make_room(path, folder=False)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        if sync:
            with open(temporary, "rb") as handle:
                os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder next to `path`; on success it replaces `path`, on failure it is removed.

    The old folder is removed after the new folder is in place. If an earlier process ended between the two renames, its old
    folder is restored first.

    Raises DataError if another process is writing the folder.
    """
    make_room(path, folder=True)
    temporary, old = (path.with_name(f".{path.name}.{end}") for end in ("tmp", "old"))
    with alone(path):
        try:
            _restore(old, path)
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            yield temporary
            if path.exists():
                shutil.rmtree(old, ignore_errors=True)
                os.rename(path, old)
            os.rename(temporary, path)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            _restore(old, path)
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def alone(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Let one process at a time write to a path. Without `wait`, raises DataError if another process is writing."""
    lock = lock_of(path)
    with locked(lock, wait=wait) as mine:
        if not mine:
            raise DataError(f"{path}: another process is writing it; wait until it ends")
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)  # while the lock is held: a waiting process notices it and opens a new file


def lock_of(path: Path) -> Path:
    """The lock file of a path. Its name is the longest of all temporary names; raises DataError if it is too long."""
    lock = path.with_name(f".{path.name}.dicap-lock")
    if any(len(os.fsencode(part)) > 255 for part in lock.parts):
        raise DataError(f"{path}: a name in this path is too long; give a shorter one")
    return lock


def _restore(old: Path, path: Path) -> None:
    if old.exists() and not path.exists():
        os.rename(old, path)
