"""A Ray cluster as an engine: one task a job.

Ray's tasks end with the process that submitted them; the same sweep runs them again.
"""

import importlib
import os
from collections.abc import Mapping
from typing import Any

import click

from dicap.errors import DataError, first_line
from stages.lab.sweeps.engines.base import Job
from stages.lab.sweeps.engines.here import Driven
from stages.support.parent import STARTED_BY

_RETRIES = 10  # a job that brings down its worker so many times is at fault itself


class RayEngine(Driven):
    """Runs jobs as tasks of the cluster that this machine belongs to (or RAY_ADDRESS names)."""

    def __init__(self, at_once: int | None) -> None:
        super().__init__(at_once)
        self._ray = _connect()
        self._task = self._ray.remote(_task())
        self._references: dict[Any, str] = {}  # of the tasks that run

    def check(self, job: Job) -> None:
        """Raise DataError where no node has so many cores and GPUs: Ray itself would wait for one, silently."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        if not any(node.get("CPU", 0) >= job.cpus and node.get("GPU", 0) >= job.gpus for node in nodes):
            has = ", ".join(f"{node.get('CPU', 0):g} cores and {node.get('GPU', 0):g} GPUs" for node in nodes)
            raise DataError(f"--cpus {job.cpus} --gpus {job.gpus}: no node of the Ray cluster has both; the nodes: {has}")

    def cancel(self) -> None:
        """End all jobs."""
        self._waiting.clear()
        for reference in self._references:
            self._ray.cancel(reference, force=True)  # the job sees that its worker is gone, saves and ends
        self._ray.shutdown()

    def _start(self, job: Job) -> None:
        task = self._task.options(num_cpus=job.cpus, num_gpus=job.gpus, max_retries=_RETRIES, name=job.name)
        reference = task.remote(list(job.command), str(job.folder), str(job.log), dict(job.environment))
        self._references[reference] = job.name

    def _next(self) -> tuple[str, bool]:
        (reference,), _ = self._ray.wait(list(self._references), num_returns=1)
        name = self._references.pop(reference)
        try:
            code = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._reasons[name] = f"Ray: {first_line(error)}"
            return name, False
        return name, code == 0


def _connect() -> Any:
    """The package, connected to the cluster. Raises DataError where there is none."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError:
        raise DataError("--on ray: Ray is not installed; pip install 'dicap[ray]'") from None
    if os.environ.get("RAY_AUTH_MODE") != "token":
        click.echo("Warning: RAY_AUTH_MODE is not token; whoever reaches its ports can run anything on the cluster", err=True)
    try:
        ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = first_line(error)
        raise DataError(f"--on ray: no cluster answers ({reason}); docs/clusters.md says how to start one") from None
    return ray


def _task() -> Any:
    """The task. Ray sends a function within a function whole: a worker needs nothing of this project to load it."""
    started_by = STARTED_BY

    def run(command: list[str], folder: str, log: str, environment: Mapping[str, str]) -> int:
        import contextlib
        import os
        import signal
        import subprocess

        with open(log, "ab") as out:
            process = subprocess.Popen(
                [*command], cwd=folder, env={**os.environ, **environment, started_by: str(os.getpid())},
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip
        code = process.wait()
        with contextlib.suppress(ProcessLookupError):  # nothing that it started runs on without it
            os.killpg(process.pid, signal.SIGKILL)
        return code

    return run
