"""The engine for this machine: one process per job, which ends with the process that submitted it."""

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from dicap.errors import DataError
from dicap.machine.processes import cores
from stages.lab.sweeps.engines import Job
from stages.support.parent import STARTED_BY


class Here:
    """Runs jobs on this machine in order, at most `at_once` at a time; jobs never share a GPU."""

    outlives = False

    def __init__(self, at_once: int | None) -> None:
        self._at_once = at_once or 1
        self._processes: list[subprocess.Popen] = []
        self._stopped = False
        self._starting, self._taking = threading.Lock(), threading.Lock()
        self._gpus: queue.SimpleQueue[str] = queue.SimpleQueue()  # the free GPUs

    def check(self, job: Job) -> None:
        """Raise DataError if this machine has fewer cores or GPUs than the job needs."""
        if job.cpus > cores():
            raise DataError(f"--cpus {job.cpus}: this machine has {cores()} processor cores")
        if job.gpus > (number := len(_gpus()) if job.gpus else 0):
            raise DataError(f"--gpus {job.gpus}: this machine has {number}")

    def run(self, jobs: Sequence[Job]) -> Generator[tuple[str, str | None], None, None]:
        """Yield (name, None or the reason of failure) as jobs end. If closed early, tell jobs to save and exit, and wait."""
        for device in _gpus() if any(job.gpus for job in jobs) else ():
            self._gpus.put(device)
        with ThreadPoolExecutor(self._at_once) as pool:
            try:
                names = {pool.submit(self._one, job): job.name for job in jobs}
                for end in as_completed(names):
                    yield names[end], end.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                with self._starting:
                    self._stopped = True
                    for process in self._processes:
                        process.terminate()

    def _one(self, job: Job) -> str | None:
        with self._taking:  # one job at a time takes GPUs: otherwise two jobs could deadlock
            devices = [self._gpus.get() for _ in range(job.gpus)]
        try:
            return self._process(job, {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {})
        finally:
            for device in devices:
                self._gpus.put(device)

    def _process(self, job: Job, devices: dict[str, str]) -> str | None:
        environment = {**os.environ, **job.environment, **devices, STARTED_BY: str(os.getpid())}
        with self._starting, open(job.log, "ab") as log:
            if self._stopped:
                return "not started"
            # In a new session, so that Ctrl-C reaches only the sweep, which then terminates each job.
            process = subprocess.Popen(
                [*job.command], cwd=job.folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
            self._processes.append(process)
        code = process.wait()
        with contextlib.suppress(ProcessLookupError):  # kill all remaining processes of the job
            os.killpg(process.pid, signal.SIGKILL)
        return None if code == 0 else f"ended by {signal.Signals(-code).name}" if code < 0 else ""


def _gpus() -> list[str]:
    """The names of the usable GPUs, as in CUDA_VISIBLE_DEVICES."""
    if (chosen := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [device for device in chosen.split(",") if device.strip()]
    import torch

    return [str(device) for device in range(torch.cuda.device_count())]
