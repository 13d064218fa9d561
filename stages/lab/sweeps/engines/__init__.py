"""Engines run jobs, on this machine or on a cluster: `here`, `slurm`, one file each.

An engine has a method `check(job)`, which raises DataError if no node has the resources of the job, and a method `run(jobs)`. It
yields (name, None) when a job succeeds, and (name, reason) when a job fails; the reason may be "". The attribute `outlives` says
whether jobs go on after the process that submitted them ends. A job whose node or process dies is tried again; a job that exits
with a code other than 0 is not.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

BEGIN = "== "  # a job's log has all its tries; the first line of each try begins with this


@dataclass(frozen=True)
class Job:
    """A command line and its resources.

    Attributes:
        name: unique in its folder; another process finds a running Slurm job by this name.
        folder: the working directory, on a disk that every node can read.
        log: file to which the output is appended.
        cpus, gpus: required on one node.
        environment: variables in addition to the node's.
    """

    name: str
    command: tuple[str, ...]
    folder: Path
    log: Path
    cpus: int = 1
    gpus: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


def reason_in(log: Path) -> str:
    """The line of a job's log with the reason why its last try failed."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "it wrote no log"
    begin = max((i for i, line in enumerate(lines) if line.startswith(BEGIN)), default=0)
    errors = [line.strip() for line in lines[begin:] if re.match(r"\s*(Error|ERROR|Stopped)\b", line)]
    return errors[0] if errors else "the log has no error message"
