"""What an engine is asked: jobs, and what becomes of them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

NAMES = ("here", "slurm")
BEGIN = "== "  # a job's log holds all its tries; each begins with such a line


@dataclass(frozen=True)
class Job:
    """A command line and what it needs.

    Attributes:
        name: unique in its folder; an engine whose jobs outlive the process that submitted them finds them by it again.
        folder: where it runs, on a disk that every node sees.
        log: what it prints is added to this file.
        cpus, gpus: of one node.
        environment: added to that of the node.
        after: the names of jobs that have to succeed first.
    """

    name: str
    command: tuple[str, ...]
    folder: Path
    log: Path
    cpus: int = 1
    gpus: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    after: tuple[str, ...] = ()


class Engine(Protocol):
    """Runs jobs. A job whose node or process dies is tried again; one that ends with an exit code other than 0 is not.

    Attributes:
        outlives: whether jobs go on when the process that submitted them ends.
    """

    outlives: bool

    def check(self, job: Job) -> None:
        """Raise DataError where no node has what the job asks for."""
        ...

    def submit(self, job: Job) -> None:
        """Have a job run, after those submitted before it where not all fit. Raises DataError where the engine refuses."""
        ...

    def watch(self) -> Iterator[tuple[str, bool]]:
        """Yield (name, whether it succeeded) as the submitted jobs end. Waiting takes no processor time worth naming."""
        ...

    def reason(self, name: str) -> str | None:
        """What the engine knows of a job's failure that its log does not; None: nothing."""
        ...

    def cancel(self) -> None:
        """End all jobs that were submitted."""
        ...


def reason_in(log: Path) -> str:
    """The line of a job's log that says why its last try failed."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "it wrote no log"
    begin = max((i for i, line in enumerate(lines) if line.startswith(BEGIN)), default=0)
    told = [line.strip() for line in lines[begin:] if re.match(r"\s*(Error|ERROR|Stopped)\b", line)]
    return told[0] if told else "the log does not say why"
