"""Files and folders that are there as a whole or not at all.

They are written to a temporary name beside their place and renamed, so a reader sees the old or the new one, never half.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dicap.errors import DataError
from dicap.files.locks import locked


def make_room(path: Path, *, folder: bool) -> None:
    """Make the folder of `path`. Raises DataError where there is a file in place of a folder or the reverse."""
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

    The temporary name is constant: some formats keep the name they were written under.

    Args:
        sync: force it onto the disk first. Without, it may be empty after a power failure.
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

    What was there before is removed when the new one is in its place. One that was put aside by a process that ended between the
    two renames is brought back first.

    Raises DataError where another process is writing it.
    """
    make_room(path, folder=True)
    temporary, old = (path.with_name(f".{path.name}.{end}") for end in ("tmp", "old"))
    with alone(path):
        try:
            _bring_back(old, path)
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            yield temporary
            if path.exists():
                shutil.rmtree(old, ignore_errors=True)
                os.rename(path, old)
            os.rename(temporary, path)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            _bring_back(old, path)
            shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def alone(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Let one process at a time write to a path. Without `wait`, raises DataError if another process is writing."""
    lock = lock_of(path)
    with locked(lock, wait=wait) as mine:
        if not mine:
            raise DataError(f"{path}: another process is writing it; wait for its end")
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)  # while it is held: who waits for it notices


def lock_of(path: Path) -> Path:
    """The lock of a place, whose name is the longest of all that stand beside it. Raises DataError where it is too long."""
    lock = path.with_name(f".{path.name}.dicap-lock")
    if any(len(os.fsencode(part)) > 255 for part in lock.parts):
        raise DataError(f"{path}: a name in this path is too long; give a shorter one")
    return lock


def _bring_back(old: Path, path: Path) -> None:
    if old.exists() and not path.exists():
        os.rename(old, path)
