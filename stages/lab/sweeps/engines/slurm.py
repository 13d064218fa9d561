"""Slurm as an engine, through its commands: one batch job a job.

Partition, account, time limit and memory are Slurm's own variables (SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT,
SBATCH_MEM_PER_NODE). Jobs go on when the process that submitted them ends; submitted again, they are found by name and folder.
"""

import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dicap.errors import DataError
from stages.lab.sweeps.engines.base import Job
from stages.support.parent import STARTED_BY

_INTERVAL = 10.0  # seconds between two questions; Slurm forgets a job 300 s after its end (MinJobAge)
_PATIENCE = 30  # questions that its controller may leave unanswered
_ENDED = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
)
_MAYBE = ("BOOT_FAIL", "NODE_FAIL", "PREEMPTED")  # ended, or about to be queued again: looked at twice


# A job whose start failed is held for its owner to look at. A node on which Slurm's process above a job was killed refuses the
# job's second start, for what the first left, and takes the third (seen with Slurm 22.05).
_HELD = "launch failed requeued held"


@dataclass(frozen=True)
class _Line:
    """A line of `squeue`."""

    number: str
    state: str
    why: str
    folder: str
    name: str


class Slurm:
    """Runs jobs as batch jobs of the user, at most `at_once` of those submitted together at a time."""

    outlives = True

    def __init__(self, at_once: int | None, interval: float = _INTERVAL) -> None:
        self._at_once = at_once
        self._interval = interval
        self._before: list[_Line] | None = None  # the user's jobs when the first was submitted
        self._numbers: dict[str, str] = {}  # name -> Slurm's number
        self._states: dict[str, str] = {}
        self._reasons: dict[str, str] = {}

    def check(self, job: Job) -> None:
        """Raise DataError where no node of the partition has what the job asks for."""
        _slurm([*_sbatch(job), "--test-only"], _script(job))

    def submit(self, job: Job) -> None:
        """Hand a job to Slurm, unless one of its name and folder is under way."""
        if self._before is None:
            self._before = _queue()
        under_way = [line for line in self._before if (line.name, line.folder) == (job.name, str(job.folder))]
        under_way = [line for line in under_way if line.state not in _ENDED]
        self._numbers[job.name] = under_way[0].number if under_way else self._new(job)

    def watch(self) -> Iterator[tuple[str, bool]]:
        """Yield (name, whether it succeeded) as the submitted jobs end."""
        left, seen, unanswered = dict(self._numbers), set(), 0
        while left:
            try:
                now = {line.number: line for line in _queue()}
                unanswered = 0
            except DataError as error:
                unanswered += 1
                if unanswered > _PATIENCE:
                    raise DataError(f"{error}; the jobs go on without being watched") from None
                time.sleep(self._interval)
                continue
            for name, number in list(left.items()):
                line = now.get(number)
                if line is not None and line.why == _HELD:
                    _slurm(["scontrol", "release", number])
                if line is not None and (line.state not in _ENDED or (line.state in _MAYBE and number not in seen)):
                    (seen.add if line.state in _MAYBE else seen.discard)(number)
                    continue
                del left[name]
                state = "" if line is None else line.state
                if state not in ("COMPLETED", "FAILED"):
                    self._reasons[name] = (
                        f"Slurm: {line.state.lower()} ({line.why})" if line else "Slurm does not know it any more"
                    )
                yield name, state == "COMPLETED"
            if left:
                time.sleep(self._interval)

    def reason(self, name: str) -> str | None:
        """Slurm's reason, where it ended the job; None: the job ended by itself."""
        return self._reasons.get(name)

    def cancel(self) -> None:
        """End all jobs that were submitted."""
        if self._numbers:
            _slurm(["scancel", *self._numbers.values()])

    def _new(self, job: Job) -> str:
        conditions = [":".join(["afterok", *(self._numbers[name] for name in job.after)])] if job.after else []
        if self._at_once is not None and len(self._numbers) >= self._at_once:
            # One for one: the job that was submitted so many jobs ago has ended before this one begins.
            conditions.append(f"afterany:{list(self._numbers.values())[-self._at_once]}")
        depends = [f"--dependency={','.join(conditions)}", "--kill-on-invalid-dep=yes"] if conditions else []
        return _slurm([*_sbatch(job), "--parsable", *depends], _script(job)).strip().split(";")[0]


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


def _queue() -> list[_Line]:
    """The user's jobs, with those that ended lately."""
    lines = _slurm(["squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%r|%Z|%j"]).splitlines()
    return [_Line(*line.split("|", 4)) for line in lines if line.count("|") >= 4]


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
