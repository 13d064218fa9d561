"""DVC's experiment queue, through its command line."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.finished import ask, question

UNDER_WAY = ("Queued", "Running")
# Task, name, time, state: the name may be missing, the time has blanks.
_ROW = re.compile(r"^(?P<task>[0-9a-f]{7})\s+(?P<name>\S+)\s.*\s(?P<state>Queued|Running|Failed|Success)\s*$")
_RESULTS = Path(".dvc/tmp/exps/celery/result")
_INTERVAL = 15.0  # seconds between two questions; each costs up to two seconds of a core, for DVC to start
_PATIENCE = 4  # while nothing ends, up to so many intervals: a cell that trains for minutes needs the core more
_ATTEMPTS = 12  # answers without a worker before the queue is given up
_LATE = 3  # answers without a worker before one whose experiment is running counts as dead; on a busy machine they answer late


def add(name: str, changes: Mapping[str, Any]) -> None:
    """Queue one experiment. Raises DataError where DVC refuses."""
    settings = [part for key, value in changes.items() for part in ("-S", f"{key}={_literal(value)}")]
    ask("exp", "run", "--queue", "-n", name, *settings)


def start(jobs: int) -> None:
    """Start up to `jobs` workers, which end when the queue is empty."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Two trainings with all cores each would wait for one another.
    environment = {"OMP_NUM_THREADS": str(max(1, cores // jobs))} | dict(os.environ)
    # The workers outlive this call and would keep a pipe open.
    subprocess.run(
        [sys.executable, "-m", "dvc", "queue", "start", "-j", str(jobs)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        check=False,
        start_new_session=True,
    )


def states(answer: str | None = None) -> dict[str, str]:
    """Name -> Queued, Running, Success or Failed. A name that was tried again counts by what became of it last."""
    text = question("queue", "status") if answer is None else answer
    order = ("Failed", "Success", *UNDER_WAY)
    found: dict[str, str] = {}
    for line in text.splitlines():
        row = _ROW.match(line)
        if row and order.index(row["state"]) >= order.index(found.get(row["name"], "Failed")):
            found[row["name"]] = row["state"]
    return found


def release(names: Sequence[str], interval: float = _INTERVAL) -> None:
    """Give up the experiments that DVC calls running though no worker is left, as after a power cut: they can be queued again."""
    dead: list[str] = []
    for attempt in range(_LATE + 1):
        if attempt:
            time.sleep(interval)
        answer = question("queue", "status")
        now = states(answer)
        dead = [name for name in names if now.get(name) == "Running"]
        if not dead or _workers(answer):
            return
    ask("queue", "kill", *dead)


def watch(names: Sequence[str], jobs: int, interval: float = _INTERVAL, attempts: int = _ATTEMPTS) -> Iterator[tuple[str, str]]:
    """Yield (name, Success or Failed) as experiments end; those that no worker takes up end as Queued.

    A worker that died is replaced: two that ask DVC's message folder at the same instant can bring each other down. One that
    is only slow to answer is not: its experiment is running.
    """
    open_names, idle, pause = list(names), 0, interval
    while open_names:
        answer = question("queue", "status")
        now, before = states(answer), len(open_names)
        for name in list(open_names):
            if now.get(name, "Failed") not in UNDER_WAY:
                open_names.remove(name)
                yield name, now.get(name, "Failed")
        if not open_names:
            return
        working, running = _workers(answer), sum(now[name] == "Running" for name in open_names)
        idle = idle + 1 if working == 0 else 0
        if idle > attempts:
            yield from ((name, now[name]) for name in open_names)
            return
        if max(working, running) < min(jobs, len(open_names)) or idle > _LATE:
            start(jobs)
        if idle or len(open_names) < before:
            pause = interval
        _wait(pause)
        pause = min(2 * pause, _PATIENCE * interval)


def _wait(seconds: float) -> None:
    """Sleep for so many seconds, or until a file more lies where DVC's queue keeps its results: looking there costs nothing."""
    before, end = _results(), time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and _results() == before:
        time.sleep(min(1.0, left))


def _results() -> int:
    return sum(1 for _ in _RESULTS.iterdir()) if _RESULTS.is_dir() else 0


def reason(name: str) -> str:
    """The line of a failed experiment's log that says why."""
    from dicap.errors import DataError

    try:
        log = question("queue", "logs", name)
    except DataError:
        return "no worker took it up; dvc queue start -j 1 tries again"
    lines = [line.strip() for line in log.splitlines() if re.match(r"\s*(Error|ERROR|Stopped)\b", line)]
    return lines[0] if lines else "the log does not say why"


def _workers(answer: str) -> int:
    """How many workers are at work, by the answer of `dvc queue status`."""
    active = re.search(r"Worker status: (\d+) active", answer)
    return int(active[1]) if active else 0


def _literal(value: Any) -> str:
    """A value as Hydra's grammar reads it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    if isinstance(value, int | float) or re.fullmatch(r"[\w./~-]+", text):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
