"""Engines run jobs, on this machine or on several: `here`, `slurm`, one file each.

An engine has `check(job)`, which raises DataError where no node has what the job asks for, and `run(jobs)`, which yields
(name, None) as a job succeeds and (name, why, perhaps "") as one fails; `outlives` says whether its jobs go on when the process
that submitted them ends. A job whose node or process dies is tried again; one that ends with an exit code other than 0 is not.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

BEGIN = "== "  # a job's log holds all its tries; each begins with such a line


@dataclass(frozen=True)
class Job:
    """A command line and what it needs.

    Attributes:
        name: unique in its folder; Slurm, whose jobs outlive the process that submitted them, finds them by it again.
        folder: where it runs, on a disk that every node sees.
        log: what it prints is added to this file.
        cpus, gpus: of one node.
        environment: added to that of the node.
    """

    name: str
    command: tuple[str, ...]
    folder: Path
    log: Path
    cpus: int = 1
    gpus: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


def reason_in(log: Path) -> str:
    """The line of a job's log that says why its last try failed."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "it wrote no log"
    begin = max((i for i, line in enumerate(lines) if line.startswith(BEGIN)), default=0)
    told = [line.strip() for line in lines[begin:] if re.match(r"\s*(Error|ERROR|Stopped)\b", line)]
    return told[0] if told else "the log does not say why"
