"""Names in the folder of a feature bank, and the empty bank of an experiment that needs no features.

This module does not import torch, so that an experiment without features can write the empty bank quickly.
"""

from pathlib import Path

from dicap.files.atomic import replacing_folder
from dicap.files.json_files import write_json

SCHEMA = 3
META = "meta.json"
BACKBONE = "backbone.safetensors"  # the backbone of the features; published models contain it


def write_empty(folder: Path) -> None:
    """Write an empty bank: a meta.json without a recipe."""
    with replacing_folder(folder) as scratch:
        write_json({"schema": SCHEMA, "recipe": None, "fingerprint": None, "checksums": {}}, scratch / META)
