"""What cells of a sweep share: converted images and features, made once before them."""

import json
from pathlib import Path
from typing import Any

from dicap.provenance.dependencies import relevant
from dicap.settings import Settings
from stages.sweeps.cell import cell_job
from stages.sweeps.engines.base import Job
from stages.sweeps.grid import Cell


def recipe_of(cell: Cell) -> str:
    """What decides the converted images and the features of a cell."""
    settings = Settings.model_validate(cell.settings)
    return json.dumps([relevant(settings, stage) for stage in ("convert", "features")], sort_keys=True)


def preparation(cell: Cell, rev: str, project: Path, **resources: Any) -> Job:
    """The job that makes them for all cells like this one."""
    return cell_job(f"prepare-{cell.name}", rev, project, cell.changes, until="features", **resources)
