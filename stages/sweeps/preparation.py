"""What cells of a sweep share: converted images and features, made once before them."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stages.sweeps.grid import Cell


def recipe_of(cell: "Cell") -> str:
    """What decides the converted images and the features of a cell."""
    from dicap.provenance.dependencies import relevant
    from dicap.settings import Settings

    settings = Settings.model_validate(cell.settings)
    return json.dumps([relevant(settings, stage) for stage in ("convert", "features")], sort_keys=True)
