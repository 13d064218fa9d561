"""Several processes of one command on this machine, for `--nproc N` (DICAP_NPROC in a pipeline). Several machines: torchrun.

Why not `torch.distributed.run` on one machine as well: it was tried. Whatever the processes end with, its own exit code is 1: a
stopped run (75) and a mistake in the settings (2) look alike; a mistake that should be one line comes with 40 lines of a
report, SIGTERM with a traceback; and the launcher has to import torch. The processes started here see the same
environment variables as those of torchrun, so `dicap.training.parallel.distributed` serves both.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import click

from dicap.machine.processes import cores
from stages.sweeps.engines.parent import STARTED_BY

EXIT_STOPPED = 75
GRACE_SECONDS = 60.0  # for the others to save and end, once one has ended


def nproc_option(function):
    """`--nproc N`: start the same command in N processes, each of which takes its part."""
    return click.option(
        "--nproc",
        envvar="DICAP_NPROC",
        type=click.IntRange(1),
        default=1,
        expose_value=False,
        is_eager=True,
        callback=_start,
        help="Processes that share each step, one per GPU. [DICAP_NPROC]",
    )(function)


def _start(context: click.Context, _: click.Parameter, count: int) -> None:
    # RANK is set in the processes that this function, or torchrun, started.
    if count > 1 and "RANK" not in os.environ and not context.resilient_parsing and not {"-h", "--help"} & set(sys.argv):
        context.exit(launch(count, [sys.executable, "-m", "stages.cli", *sys.argv[1:]]))


def launch(count: int, command: Sequence[str]) -> int:
    """Run a command in `count` processes that find each other; the exit code of the run.

    Only the first process's output is shown; another one's stderr is shown if it fails. SIGINT and SIGTERM are passed on to all.
    When one ends early the others are asked to stop, and killed if they do not within GRACE_SECONDS.
    """
    threads = max(1, cores() // count)
    common = os.environ | {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
        STARTED_BY: str(os.getpid()),
    }
    with contextlib.ExitStack() as stack:
        stderr = [stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")) for _ in range(count)]
        processes = []
        for rank in range(count):
            quiet: dict[str, Any] = {} if rank == 0 else {"stdout": subprocess.DEVNULL, "stderr": stderr[rank]}
            own = common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            processes.append(subprocess.Popen([*command], env=own, start_new_session=True, **quiet))
        for number in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, number, signal.signal(number, lambda n, _: _signal(processes, n)))
        first = _wait(processes)
        codes = [process.wait() for process in processes]
        if first > 0 and codes[first] != EXIT_STOPPED:
            stderr[first].seek(0)
            lines = [line for line in stderr[first].read().splitlines() if line.strip()][-20:]
            for line in lines or [f"ended with {codes[first]}"]:
                click.echo(f"process {first}: {line}", err=True)
    # A process that a signal ended has a negative code: the run failed, whichever of them it was.
    return next((max(code, 1) for code in codes if code not in (0, EXIT_STOPPED)), max(codes))


def _wait(processes: list[subprocess.Popen]) -> int:
    """Wait until all have ended; the rank of the first that ended with anything but success, or -1."""
    first, since = -1, 0.0
    while any(process.poll() is None for process in processes):
        left = [rank for rank, process in enumerate(processes) if process.poll() not in (None, 0)]
        if left and first < 0:
            first, since = left[0], time.monotonic()
            if processes[first].returncode != EXIT_STOPPED:
                _signal(processes, signal.SIGTERM)
        if left and time.monotonic() - since > GRACE_SECONDS:
            _signal(processes, signal.SIGKILL)
        time.sleep(0.05)
    if first < 0:
        first = next((rank for rank, process in enumerate(processes) if process.returncode), -1)
    return first


def _signal(processes: list[subprocess.Popen], number: int) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
