"""The folder of a feature bank as a whole: empty where no features are needed, and put in its place once it is filled.

Loads no torch: an experiment that trains the whole network needs no more than this.
"""

import os
import shutil
from pathlib import Path

from dicap.errors import DataError
from dicap.files.artifacts import make_room, write_json

SCHEMA = 1
SHARDED_SCHEMA = 2  # of the bank of a set in shards
META = "meta.json"
BACKBONE = "backbone.safetensors"  # whose features they are: part of every model that is trained on them


def fill_empty(folder: Path) -> None:
    """The bank of an experiment that needs none: meta.json that says so."""
    make_room(folder, folder=True)
    folder.mkdir(exist_ok=True)
    write_json({"schema": SCHEMA, "recipe": None, "fingerprint": None, "engine": None, "checksums": {}}, folder / META)


def publish(folder: Path, destination: Path) -> None:
    """Give a filled working folder the place `destination`; what was there before is removed afterwards.

    Raises:
        DataError: it lies on another disk than `destination`, which has too little room.
    """
    make_room(destination, folder=True)
    old = destination.with_name(f".{destination.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if destination.exists():
        os.rename(destination, old)
    try:
        shutil.move(folder, destination)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(destination, ignore_errors=True)
        if old.exists():
            os.rename(old, destination)
        raise DataError(f"{destination}: {error}; make room and run again: nothing is computed twice") from None
    shutil.rmtree(old, ignore_errors=True)
