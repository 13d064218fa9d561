"""What the result of a stage depends on beside its inputs, as the pipeline names it: settings, and code.

The state of an interrupted stage is named by it, and so is what is kept of every image. A test runs every stage and compares.
"""

import hashlib
from functools import cache, reduce
from operator import getitem
from pathlib import Path
from typing import Any

from dicap.settings import Settings, read_yaml
from dicap.settings.resolve import TEMPLATE

ROOT = Path(__file__).parents[1]  # of the packages that are running
PACKAGES = ("dicap/", "stages/")


@cache
def pipeline() -> dict[str, dict[str, Any]]:
    """{stage: its entry in dvc.yaml}, with the code for which a project made by `new` has a version."""
    return read_yaml(TEMPLATE / "pipeline.yaml")["stages"]


def settings_of(stage: str, settings: Settings) -> dict[str, Any]:
    """The settings that the result of a stage depends on, {section or dotted key: value}."""
    values = settings.model_dump(mode="json")
    keys = [str(key).replace("${method}", settings.method) for key in pipeline()[stage]["params"] if isinstance(key, str)]
    # A method without options has an empty section in params.yaml and none here.
    return {key: reduce(getitem, key.split("."), values) for key in keys if key.partition(".")[0] in values}


def code_of(stage: str, settings: Settings) -> str:
    """sha256 of the source of the modules that the result of a stage depends on."""
    digest = hashlib.sha256()
    for dep in pipeline()[stage]["deps"]:
        if dep.startswith(PACKAGES):
            place = ROOT / dep.replace("${method}", settings.method)
            # The readers of own labels may be left out, as all layers above the core.
            for path in sorted(place.rglob("*.py")) if place.is_dir() else [place] if place.is_file() else []:
                digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
