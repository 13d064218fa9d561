"""One lock for everything that two processes must not do at once."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from dicap.errors import DataError


@contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold a lock while the block runs; the system frees it when the process ends, however it ends.

    Args:
        path: a file that stands for the lock, made if it does not exist. It stays: who removes it while somebody waits for it
            would let in two at once.
        wait: until it is free.

    Yields:
        Whether this process holds it; always, with `wait`.

    Raises:
        DataError: the file system knows no locks.
    """
    while True:
        with path.open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            except OSError as error:
                raise DataError(f"{path}: cannot be locked ({error.strerror}); choose a disk that has locks") from None
            if _is_still(handle, path):
                yield True
                return


def _is_still(handle: IO[str], path: Path) -> bool:
    """Whether an open file is the one at `path`: another process may have removed it, or its folder."""
    try:
        return os.path.samestat(os.fstat(handle.fileno()), path.stat())
    except FileNotFoundError:
        return False
