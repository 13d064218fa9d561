"""Several processes of one command on this machine, for `--nproc N` (DICAP_NPROC in a pipeline), by torch's own launcher.

Of several machines each runs torchrun. Both describe the processes as `dicap.training.parallel.distributed` expects.
"""

import logging
import os
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from dicap.errors import SettingsError
from dicap.machine.processes import LAUNCHED, cores
from stages.support.parent import STARTED_BY

EXIT_STOPPED = 75


def check_processes(count: int, batch: int, gpus: int | None) -> None:
    """Raise SettingsError for more processes than can have a part of a step, or a GPU of their own."""
    if count > max(1, batch // 2):
        raise SettingsError(
            f"--nproc: found {count}, but a step of train.batch_size {batch} images is shared by at most {max(1, batch // 2)} "
            "processes, two images each; use fewer"
        )
    if gpus and count > gpus:
        raise SettingsError(f"--nproc: found {count}, but this machine has {gpus} GPUs and each process needs one; use fewer")


def launch(count: int, command: Sequence[str]) -> int:
    """Run a command in `count` processes that find each other; the exit code of the run.

    Only the first process's output is shown; of another one that fails, why, and nothing more. Signals are passed on. When one
    process ends early, torch asks the others to stop, and kills those that do not within 30 seconds.
    """
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException, Std
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    threads = os.environ.get("OMP_NUM_THREADS", str(max(1, cores() // count)))
    before = dict(os.environ)
    os.environ |= {STARTED_BY: str(os.getpid()), "OMP_NUM_THREADS": threads}  # the processes have this one's environment
    logging.disable(logging.CRITICAL)  # 40 lines about a process that said why it ended
    with tempfile.TemporaryDirectory() as folder:
        quiet = {rank: Std.NONE if rank == 0 else Std.ALL for rank in range(count)}
        config = LaunchConfig(
            1, 1, count, run_id=LAUNCHED, rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0,
            logs_specs=DefaultLogsSpecs(folder, redirects=quiet),
        )  # fmt: skip
        try:
            elastic_launch(config, command[0])(*command[1:])
        except SignalException:
            return EXIT_STOPPED
        except ChildFailedError as error:
            # A process that stopped did so because another one failed, or because it was asked to.
            failed = {rank: f for rank, f in error.failures.items() if f.exitcode not in (EXIT_STOPPED, -signal.SIGTERM)}
            if not failed:
                return EXIT_STOPPED
            rank, failure = min(failed.items())
            lines = []
            if failure.exitcode < 0:
                ended = f"Error: ended by signal {-failure.exitcode}"
                lines = [f"{ended}; the last state that was saved is whole, run again to continue"]
            elif rank:
                (said,) = Path(folder).rglob(f"{rank}/stderr.log")
                lines = [line for line in said.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
                lines = [line for line in lines if line.startswith("Error: ")] or lines[-20:]
            for line in lines:
                click.echo(f"process {rank}: {line}", err=True)
            return max(failure.exitcode, 1)
        finally:
            logging.disable(logging.NOTSET)
            os.environ.clear()
            os.environ.update(before)
    return 0
