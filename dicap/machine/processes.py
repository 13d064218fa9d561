"""Calls to the operating system: number of cores, freed memory, parent processes."""

import ctypes
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def keep_freed_memory() -> None:
    """Let this process keep large freed blocks of memory for reuse, if the C library is glibc.

    By default glibc returns large blocks to the system, which clears their pages when they are allocated again. On a CPU this
    happens to a network's activations in every step, and training takes twice as long. No result changes.
    """
    with suppress(AttributeError, OSError, TypeError):  # not glibc
        for option, value in ((_M_MMAP_THRESHOLD, 2**30), (_M_TRIM_THRESHOLD, 2**31 - 1)):
            ctypes.CDLL(None).mallopt(option, value)


def when_parent_ends(then: Callable[[], None], parent: int, interval: float) -> None:
    """Call `then` and exit as soon as this process's parent is no longer `parent`; checked every `interval` seconds."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(interval)
        then()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
