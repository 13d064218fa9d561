"""Questions to the operating system and requests: processor cores, freed memory, parent processes."""

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
    """Let this process keep large blocks that it frees, for the next that it needs, where the C library can be told.

    By default glibc returns them to the system at once, which clears each page of them when they are asked for again: of the
    activations of a network that is trained on processors, in every step, which takes twice as long. No result changes.
    """
    with suppress(AttributeError, OSError, TypeError):  # not glibc
        for option, value in ((_M_MMAP_THRESHOLD, 2**30), (_M_TRIM_THRESHOLD, 2**31 - 1)):
            ctypes.CDLL(None).mallopt(option, value)


def when_parent_ends(then: Callable[[], None], parent: int, interval: float) -> None:
    """Call `then` and leave, once this process's parent is not `parent` any more; looked at every `interval` seconds."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(interval)
        then()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
