"""Slurm as an engine, through its commands: one batch job a job.

Partition, account, time limit and memory are Slurm's own variables (SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT,
SBATCH_MEM_PER_NODE). Jobs go on when the process that submitted them ends; submitted again, they are found by name and folder.
"""

import shlex
import subprocess
import time
from collections.abc import Generator, Sequence

from dicap.errors import DataError
from stages.lab.sweeps.engines import Job
from stages.support.parent import STARTED_BY

_INTERVAL = 10.0  # seconds between two questions; Slurm forgets a job 300 s after its end (MinJobAge)
_PATIENCE = 30  # questions that its controller may leave unanswered
_FAILED = {
    *("BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT"),
}
# A job whose start failed is held for its owner to look at. A node on which Slurm's process above a job was killed refuses the
# job's second start, for what the first left, and takes the third (seen with Slurm 22.05).
_HELD = "launch failed requeued held"


class Slurm:
    """Runs jobs as batch jobs of the user, at most `at_once` of those submitted together at a time."""

    outlives = True

    def __init__(self, at_once: int | None, interval: float = _INTERVAL) -> None:
        self._at_once = at_once
        self._interval = interval

    def check(self, job: Job) -> None:
        """Raise DataError where no node of the partition has what the job asks for."""
        _slurm([*_sbatch(job), "--test-only"], _script(job))

    def run(self, jobs: Sequence[Job]) -> Generator[tuple[str, str | None], None, None]:
        """Hand jobs to Slurm, but for those under way; yield (name, None or why it failed) as they end."""
        under_way = {(name, folder): n for n, state, _, folder, name in _queue() if state not in _FAILED | {"COMPLETED"}}
        left: dict[str, str] = {}  # name -> Slurm's number
        for job in jobs:
            try:
                left[job.name] = under_way.get((job.name, str(job.folder))) or self._submit(job, left)
            except DataError as error:
                raise DataError(f"{error}; the {len(left)} jobs that were submitted before go on") from None
        failing: set[str] = set()
        while left:
            now = {number: (state, why) for number, state, why, *_ in self._patiently()}
            for name, number in list(left.items()):
                state, why = now.get(number, ("", ""))
                if why == _HELD:
                    _slurm(["scontrol", "release", number])
                if state in _FAILED and number not in failing:  # after a node's death it may be about to be queued again
                    failing.add(number)
                elif state in ("", "COMPLETED", *_FAILED):
                    del left[name]
                    gone = "Slurm does not know it any more" if not state else f"Slurm: {state.lower()} ({why})"
                    yield name, {"COMPLETED": None, "FAILED": ""}.get(state, gone)
                else:
                    failing.discard(number)
            if left:
                time.sleep(self._interval)

    def _submit(self, job: Job, submitted: dict[str, str]) -> str:
        depends = []
        if self._at_once is not None and len(submitted) >= self._at_once:
            # One for one: the job that was submitted so many jobs ago has ended before this one begins.
            depends.append(f"--dependency=afterany:{list(submitted.values())[-self._at_once]}")
        return _slurm([*_sbatch(job), "--parsable", *depends], _script(job)).strip().split(";")[0]

    def _patiently(self) -> list[list[str]]:
        """The queue, asked for until the controller answers."""
        for further in reversed(range(_PATIENCE + 1)):
            try:
                return _queue()
            except DataError as error:
                if not further:
                    raise DataError(f"{error}; the jobs go on without being watched") from None
                time.sleep(self._interval)
        raise AssertionError


def _sbatch(job: Job) -> list[str]:
    """`sbatch` with what the job needs; a job whose node dies is queued again and adds to its log."""
    options = [
        *("--job-name", job.name, "--chdir", str(job.folder), "--output", str(job.log).replace("%", "%%"), "--open-mode=append"),
        *("--nodes=1", "--ntasks=1", f"--cpus-per-task={job.cpus}", "--requeue"),
    ]
    return ["sbatch", *options, *([f"--gres=gpu:{job.gpus}"] if job.gpus else [])]


def _script(job: Job) -> str:
    """The batch script. The job takes the shell's place, so that its parent is Slurm's own process."""
    variables = {key: shlex.quote(value) for key, value in job.environment.items()} | {STARTED_BY: "$PPID"}
    return "\n".join(
        ["#!/bin/sh", *(f"export {key}={value}" for key, value in variables.items()), f"exec {shlex.join(job.command)}\n"]
    )


def _queue() -> list[list[str]]:
    """[number, state, reason, folder, name] of the user's jobs, with those that ended lately."""
    lines = _slurm(["squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%r|%Z|%j"]).splitlines()
    return [line.split("|", 4) for line in lines if line.count("|") >= 4]


def _slurm(command: Sequence[str], text: str | None = None) -> str:
    """What one of Slurm's commands prints. Raises DataError with Slurm's own reason where it fails."""
    try:
        done = subprocess.run([*command], input=text, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise DataError(f"--on slurm: no {command[0]} on this machine; run this where Slurm's commands are") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise DataError(f"{command[0]}: {lines[-1].split('error: ')[-1] if lines else 'no reason given'}")
    return done.stdout
