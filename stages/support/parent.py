"""A job that watches who started it: when that process dies, whatever the job started ends with it.

An engine that loses a node's daemon, a worker or itself starts the job again elsewhere; the old job would go on unseen.
"""

import contextlib
import os
import signal

from dicap.machine.processes import when_parent_ends

STARTED_BY = "DICAP_STARTED_BY"  # the process that an engine started the job from; it may be dead before the job looks
_INTERVAL = 1.0  # seconds between two looks, each of a microsecond
_GRACE = 10.0  # seconds for a training to save its state


def end_with_parent(interval: float = _INTERVAL, grace: float = _GRACE) -> None:
    """From now on, end this process and all that it started when its parent dies."""
    parent = int(os.environ.pop(STARTED_BY, os.getppid()))
    when_parent_ends(lambda: end_descendants(grace), parent, interval)


def end_descendants(grace: float = _GRACE) -> None:
    """Ask all that this process started to stop, as Ctrl-C does, and kill what still runs after `grace` seconds."""
    import psutil

    children = psutil.Process().children(recursive=True)
    for process in children:
        # Not SIGTERM: of that DVC dies at once, without waiting for its stage. Processes of other groups get the signal from
        # the process that started them; after a second signal a training would not save.
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            if os.getpgid(process.pid) == os.getpgrp():
                process.send_signal(signal.SIGINT)
    _, left = psutil.wait_procs(children, timeout=grace)
    for process in {*left, *psutil.Process().children(recursive=True)}:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
