"""The engine for Slurm, which uses Slurm's commands: one batch job per job.

Slurm's own variables set partition, account, time limit and memory (SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT,
SBATCH_MEM_PER_NODE). Jobs go on when the process that submitted them ends. A later `run` finds running jobs by name and folder.
"""

import shlex
import subprocess
import time
from collections.abc import Generator, Sequence

from dicap.errors import DataError
from stages.lab.sweeps.engines import Job
from stages.support.parent import STARTED_BY

_INTERVAL = 10.0  # seconds between two queries of the queue; Slurm forgets a job 300 s after its end (MinJobAge)
_PATIENCE = 30  # queries that may fail in a row before giving up
_FAILED = {
    *("BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
}
# Slurm holds a job whose start failed, so that its owner can look at it. If Slurm's parent process of a job was killed, its node
# refuses the second start of the job because of leftovers, and accepts the third (seen with Slurm 22.05): release the job.
_HELD = "launch failed requeued held"


class Slurm:
    """Runs jobs as batch jobs of the user, at most `at_once` at a time."""

    outlives = True

    def __init__(self, at_once: int | None, interval: float = _INTERVAL) -> None:
        self._at_once = at_once
        self._interval = interval

    def check(self, job: Job) -> None:
        """Raise DataError if no node of the partition has the job's resources."""
        _slurm([*_sbatch(job), "--test-only"], _script(job))

    def run(self, jobs: Sequence[Job]) -> Generator[tuple[str, str | None], None, None]:
        """Submit jobs that are not running yet; yield (name, None or the reason of failure) as jobs end."""
        running = {(name, folder): n for n, state, _, folder, name in _queue() if state not in _FAILED | {"COMPLETED"}}
        remaining: dict[str, str] = {}  # name -> Slurm's number
        for job in jobs:
            try:
                remaining[job.name] = running.get((job.name, str(job.folder))) or self._submit(job, remaining)
            except DataError as error:
                raise DataError(f"{error}; the {len(remaining)} jobs that were submitted before go on") from None
        failing: set[str] = set()
        while remaining:
            states = {number: (state, reason) for number, state, reason, *_ in self._patiently()}
            for name, number in list(remaining.items()):
                state, reason = states.get(number, ("", ""))
                if reason == _HELD:
                    _slurm(["scontrol", "release", number])
                if state in _FAILED and number not in failing:  # if its node died, Slurm may be about to queue the job again
                    failing.add(number)
                elif state in ("", "COMPLETED", *_FAILED):
                    del remaining[name]
                    failure = "Slurm no longer lists the job" if not state else f"Slurm: {state.lower()} ({reason})"
                    yield name, {"COMPLETED": None, "FAILED": ""}.get(state, failure)
                else:
                    failing.discard(number)
            if remaining:
                time.sleep(self._interval)

    def _submit(self, job: Job, submitted: dict[str, str]) -> str:
        depends = []
        if self._at_once is not None and len(submitted) >= self._at_once:
            # This job starts after the end of the job that was submitted `at_once` jobs before it.
            depends.append(f"--dependency=afterany:{list(submitted.values())[-self._at_once]}")
        return _slurm([*_sbatch(job), "--parsable", *depends], _script(job)).strip().split(";")[0]

    def _patiently(self) -> list[list[str]]:
        """The queue; failed queries are repeated up to _PATIENCE times."""
        for remaining in reversed(range(_PATIENCE + 1)):
            try:
                return _queue()
            except DataError as error:
                if not remaining:
                    raise DataError(f"{error}; the jobs go on without being watched") from None
                time.sleep(self._interval)
        raise AssertionError


def _sbatch(job: Job) -> list[str]:
    """The `sbatch` command of a job. Slurm requeues a job whose node dies, and appends to its log."""
    options = [
        *("--job-name", job.name, "--chdir", str(job.folder), "--output", str(job.log).replace("%", "%%"), "--open-mode=append"),
        *("--nodes=1", "--ntasks=1", f"--cpus-per-task={job.cpus}", "--requeue"),
    ]
    return ["sbatch", *options, *([f"--gres=gpu:{job.gpus}"] if job.gpus else [])]


def _script(job: Job) -> str:
    """The batch script. `exec` replaces the shell by the job, so that the job's parent is Slurm's own process."""
    variables = {key: shlex.quote(value) for key, value in job.environment.items()} | {STARTED_BY: "$PPID"}
    return "\n".join(
        ["#!/bin/sh", *(f"export {key}={value}" for key, value in variables.items()), f"exec {shlex.join(job.command)}\n"]
    )


def _queue() -> list[list[str]]:
    """[number, state, reason, folder, name] of the user's jobs, including recently ended jobs."""
    lines = _slurm(["squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%r|%Z|%j"]).splitlines()
    return [line.split("|", 4) for line in lines if line.count("|") >= 4]


def _slurm(command: Sequence[str], text: str | None = None) -> str:
    """The output of one of Slurm's commands. Raises DataError with Slurm's own reason if it fails."""
    try:
        done = subprocess.run([*command], input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise DataError(f"--on slurm: no {command[0]} on this machine; run this where Slurm's commands are") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise DataError(f"{command[0]}: {lines[-1].split('error: ')[-1] if lines else 'no reason given'}")
    return done.stdout
