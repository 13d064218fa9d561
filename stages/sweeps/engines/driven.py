"""Engines whose jobs end with the process that submitted them, which therefore decides what runs when."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

from stages.sweeps.engines.base import Job


class Driven(ABC):
    """At most `at_once` jobs at a time, in the order of submission; one that waits for another lets later ones pass."""

    outlives = False

    def __init__(self, at_once: int | None) -> None:
        self._at_once = at_once
        self._waiting: list[Job] = []
        self._running: dict[str, Job] = {}
        self._ended: dict[str, bool] = {}
        self._reasons: dict[str, str] = {}

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
        room = self._at_once is None or len(self._running) < self._at_once
        return room and all(self._ended.get(name, False) for name in job.after) and self._fits(job)

    def _fits(self, job: Job) -> bool:
        """Whether what the job needs is free now."""
        return True

    @abstractmethod
    def _start(self, job: Job) -> None:
        """Begin a job; return at once."""

    @abstractmethod
    def _next(self) -> tuple[str, bool]:
        """Wait until a running job has ended: its name, whether it succeeded."""
