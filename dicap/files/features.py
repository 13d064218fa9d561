"""The folder of a feature bank where no features are needed.

Loads no torch: an experiment that trains the whole network needs no more than this.
"""

from pathlib import Path

from dicap.files.atomic import replacing_folder
from dicap.files.json_files import write_json

SCHEMA = 3  # 1: with strong views of test images; 2: of all others
META = "meta.json"
BACKBONE = "backbone.safetensors"  # whose features they are: part of every model that is trained on them


def write_empty(folder: Path) -> None:
    """The bank of an experiment that needs none: meta.json that says so."""
    with replacing_folder(folder) as scratch:
        write_json({"schema": SCHEMA, "recipe": None, "fingerprint": None, "checksums": {}}, scratch / META)
