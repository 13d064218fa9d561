"""Processor cores and parent processes, as the operating system tells."""

import os
import threading
import time
from collections.abc import Callable


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def when_parent_ends(then: Callable[[], None], parent: int, interval: float) -> None:
    """Call `then` and leave, once this process's parent is not `parent` any more; looked at every `interval` seconds."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(interval)
        then()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
