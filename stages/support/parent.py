"""Ends a job and its processes when the process that started the job dies.

If a daemon of a node, a worker or the sweep itself dies, the job is started again elsewhere. The old job must not go on.
"""

import contextlib
import os
import signal

from dicap.machine.processes import when_parent_ends

STARTED_BY = "DICAP_STARTED_BY"  # id of the process that started the job; it may already be dead when the job starts
_INTERVAL = 1.0  # seconds between two checks, which take a microsecond each
_GRACE = 10.0  # seconds for a training to save its checkpoint


def end_with_parent(interval: float = _INTERVAL, grace: float = _GRACE) -> None:
    """From now on, end this process and its descendants when its parent dies."""
    parent = int(os.environ.pop(STARTED_BY, os.getppid()))
    when_parent_ends(lambda: end_descendants(grace), parent, interval)


def end_descendants(grace: float = _GRACE) -> None:
    """Send SIGINT to the descendants of this process, and kill those that still run after `grace` seconds."""
    import psutil

    children = psutil.Process().children(recursive=True)
    for process in children:
        # Not SIGTERM, because DVC would die at once, without waiting for its stage. Processes of other groups get the signal
        # from the process that started them; after a second signal a training would not save.
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) == os.getpgrp():
                process.send_signal(signal.SIGINT)
    _, alive = psutil.wait_procs(children, timeout=grace)
    for process in {*alive, *psutil.Process().children(recursive=True)}:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
