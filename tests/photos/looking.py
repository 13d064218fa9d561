"""Reads a folder as `init-data` and then `convert` do."""

from pathlib import Path

from dicap.data.sources.base import RawSet
from dicap.photos.readers.read import read
from dicap.photos.readers.understand import understand
from dicap.settings import Own


def looked_at(place: Path, said: Own) -> RawSet:
    return read(*understand(Path(place).resolve(), said))
