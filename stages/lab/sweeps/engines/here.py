"""The machine itself as an engine: one process a job, which ends with the process that submitted it."""

import contextlib
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator

from dicap.errors import DataError
from dicap.machine.processes import cores
from stages.lab.sweeps.engines.base import Job
from stages.support.parent import STARTED_BY

_GRACE = 60.0  # seconds for a job to save and end


class Here:
    """Runs jobs on this machine, at most `at_once` at a time, each GPU for one of them.

    They begin in the order of submission; one that waits for another lets later ones pass.
    """

    outlives = False

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._waiting: list[Job] = []
        self._running: dict[str, Job] = {}
        self._ended: dict[str, bool] = {}
        self._reasons: dict[str, str] = {}
        self._devices: list[str] | None = None  # free GPUs; asked for when a job needs one
        self._taken: dict[str, list[str]] = {}
        self._processes: dict[str, subprocess.Popen] = {}
        self._exits: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()

    def check(self, job: Job) -> None:
        """Raise DataError where this machine has fewer cores or GPUs than the job asks for."""
        if job.cpus > cores():
            raise DataError(f"--cpus {job.cpus}: this machine has {cores()} processor cores")
        if job.gpus > len(self._free()):
            raise DataError(f"--gpus {job.gpus}: this machine has {len(self._free())}")

    def submit(self, job: Job) -> None:
        """Have a job run; it starts once `watch` is asked."""
        self._waiting.append(job)

    def watch(self) -> Iterator[tuple[str, bool]]:
        """Start jobs as there is room for them, and yield (name, whether it succeeded) as they end."""
        while self._waiting or self._running:
            for job in list(self._waiting):
                failed = [name for name in job.after if self._ended.get(name) is False]
                if failed:
                    self._waiting.remove(job)
                    self._reasons[job.name] = f"{failed[0]} failed, which it needs"
                    self._ended[job.name] = False
                    yield job.name, False
                elif self._ready(job):
                    self._waiting.remove(job)
                    self._running[job.name] = job
                    self._start(job)
            if self._running:
                name, succeeded = self._next()
                del self._running[name]
                self._ended[name] = succeeded
                yield name, succeeded
            else:
                assert all(self._ended.keys() >= {*job.after} for job in self._waiting), "a job waits for nobody"

    def reason(self, name: str) -> str | None:
        """What is known of a job's failure beside its log; None: nothing."""
        return self._reasons.get(name)

    def _ready(self, job: Job) -> bool:
        room = len(self._running) < self._at_once and (job.gpus == 0 or job.gpus <= len(self._free()))
        return room and all(self._ended.get(name, False) for name in job.after)

    def cancel(self) -> None:
        """Ask all jobs to save and end, and wait for it."""
        self._waiting.clear()
        running = [self._processes[name] for name in self._running if name in self._processes]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(_GRACE)
            except subprocess.TimeoutExpired:
                _end_group(process)

    def _free(self) -> list[str]:
        if self._devices is None:
            self._devices = _gpus()
        return self._devices

    def _start(self, job: Job) -> None:
        environment = dict(os.environ) | dict(job.environment) | {STARTED_BY: str(os.getpid())}
        if job.gpus:
            free = self._free()
            self._taken[job.name] = [free.pop(0) for _ in range(job.gpus)]
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(self._taken[job.name])
        with open(job.log, "ab") as log:
            # A session of its own: Ctrl-C goes to the sweep, which asks each job to end.
            process = subprocess.Popen(
                [*job.command], cwd=job.folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._processes[job.name] = process
        threading.Thread(target=self._wait, args=(job.name, process), daemon=True).start()

    def _wait(self, name: str, process: subprocess.Popen) -> None:
        code = process.wait()
        _end_group(process)
        self._exits.put((name, code))

    def _next(self) -> tuple[str, bool]:
        name, code = self._exits.get()
        self._free().extend(self._taken.pop(name, []))
        if code < 0:
            self._reasons[name] = f"ended by {signal.Signals(-code).name}"
        return name, code == 0


def _gpus() -> list[str]:
    """What CUDA_VISIBLE_DEVICES calls the GPUs that may be used."""
    if (chosen := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return [device for device in chosen.split(",") if device.strip()]
    import torch

    return [str(device) for device in range(torch.cuda.device_count())]


def _end_group(process: subprocess.Popen) -> None:
    """Nothing that a job started runs on without it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
