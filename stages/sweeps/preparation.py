"""What cells of a sweep share: converted images and features, made once before them; on a cluster by several jobs where they are
written in shards."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.sweeps.cell import cell_job
from stages.sweeps.engines.base import Job

if TYPE_CHECKING:
    from dicap.settings import Settings
    from stages.sweeps.grid import Cell


def recipe_of(cell: "Cell") -> str:
    """What decides the converted images and the features of a cell."""
    from dicap.provenance.dependencies import relevant

    settings = _settings_of(cell)
    return json.dumps([relevant(settings, stage) for stage in ("convert", "features")], sort_keys=True)


def preparation(cell: "Cell", rev: str, project: Path, parts: int, resources: Mapping[str, Any]) -> list[Job]:
    """The jobs that make them; the last has succeeded when they are there.

    Args:
        cell: one of those that share them.
        parts: how many jobs share the work of a set in shards at most; each of them takes every so many-th shard.
        resources: of each job.
    """

    settings = _settings_of(cell)
    parts = min(parts, _shards(settings)) if parts > 1 else 0
    jobs: list[Job] = []

    def add(label: str, after: Sequence[str], **options: Any) -> str:
        jobs.append(cell_job(f"prepare-{cell.name}{label}", rev, project, cell.changes, after=(*after,), **options, **resources))
        return jobs[-1].name

    after: list[str] = []
    if parts > 1:
        after = [add(f"-convert-{i}", after, until="convert", shard=f"{i}/{parts}") for i in range(parts)]
    if parts > 1 and settings.needs_features:
        after = [add("-convert", after, until="convert")]
        after = [add(f"-features-{i}", after, until="features", shard=f"{i}/{parts}") for i in range(parts)]
    add("", after, until="features")
    return jobs


def _settings_of(cell: "Cell") -> "Settings":
    from dicap.settings import Settings

    return Settings.model_validate(cell.settings)


def _shards(settings: "Settings") -> int:
    """How many shards the converted set will have. Where the images cannot be listed here, the preparation says why: 0."""
    from dicap.errors import DataError
    from stages.commands.convert import count_shards

    try:
        return count_shards(settings)
    except DataError:
        return 0
