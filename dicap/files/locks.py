"""File locks between processes."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from dicap.errors import DataError


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold a lock while the block runs. The system releases it when the process ends, even if the process is killed.

    Args:
        path: the lock file, created if it does not exist. It is not removed here: a process that waits for a removed file, and
            one that creates it again, would both get the lock.
        wait: wait until the lock is free.

    Yields:
        Whether this process holds the lock; always true with `wait`.

    Raises:
        DataError: the file system does not support locks.
    """
    while True:
        with path.open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            except OSError as error:
                raise DataError(f"{path}: cannot be locked ({error.strerror}); choose a disk that supports locks") from None
            if _is_at(handle, path):
                yield True
                return


def _is_at(handle: IO[str], path: Path) -> bool:
    """Whether an open file is still the file at `path`; another process may have removed the file or its folder."""
    try:
        return os.path.samestat(os.fstat(handle.fileno()), path.stat())
    except FileNotFoundError:
        return False
