"""The settings and the code that a stage's result depends on, as dvc.yaml lists them.

They identify the checkpoints of an interrupted stage, and the stores of images and features. A test compares with a run.
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
    """{stage: its entry in dvc.yaml}, including its code. (In a project made by `new` the version replaces the code.)"""
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
            source = ROOT / dep.replace("${method}", settings.method)
            # Layers above the core, such as the readers of own labels, may not be installed.
            for path in sorted(source.rglob("*.py")) if source.is_dir() else [source] if source.is_file() else []:
                digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
