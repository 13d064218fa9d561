"""Places that a person chooses (`--out`): what a command wrote there it notes in the folder, and replaces nothing else."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dicap.errors import DataError
from dicap.files.atomic import make_room, replacing, replacing_folder
from dicap.files.json_files import read_json, write_json

NOTE = ".dicap-written.json"  # {file below this folder: [size, time of change in ns]}


def check_own(*paths: Path) -> None:
    """Ask this before the work is done.

    Raises:
        DataError: at one of these places there is something that no command wrote, or that was changed since.
    """
    for path in map(Path, paths):
        if os.path.lexists(path) and (path.is_dir() or _noted(path.parent).get(path.name) != _mark(path)):
            raise not_own(path)


def check_own_folder(path: Path) -> None:
    """The same for a folder that is replaced as a whole: absent, empty, or as a command left it. Raises DataError."""
    path = Path(path).resolve()
    if Path.cwd().is_relative_to(path):
        raise DataError(f"{path}: this folder is worked in and cannot be replaced; name one in it")
    make_room(path, folder=True)
    if not path.exists():
        return
    noted, found = _noted(path), _marks(path)
    if strange := [name for name, mark in found.items() if noted.get(name) != mark]:
        raise not_own(path / strange[0])


@contextmanager
def replacing_own(path: Path) -> Iterator[Path]:
    """`replacing`, of nothing but what was written so before. Raises DataError, see `check_own`."""
    check_own(path)
    with replacing(path) as temporary:
        yield temporary
    known = {name: mark for name, mark in _noted(path.parent).items() if (path.parent / name).exists()}
    write_json(known | {path.name: _mark(path)}, path.parent / NOTE)


@contextmanager
def replacing_own_folder(path: Path) -> Iterator[Path]:
    """`replacing_folder`, of nothing but what was written so before. Raises DataError, see `check_own_folder`."""
    check_own_folder(path)
    with replacing_folder(Path(path).resolve()) as temporary:
        yield temporary
        write_json(_marks(temporary), temporary / NOTE)


def remove_own(path: Path) -> None:
    """Remove a file if it is there. Raises DataError, see `check_own`."""
    check_own(path)
    path.unlink(missing_ok=True)


def _noted(folder: Path) -> dict[str, Any]:
    try:
        return read_json(folder / NOTE)
    except DataError:  # none, or damaged: then nothing is known to be ours
        return {}


def _mark(path: Path) -> list[int]:
    info = path.lstat()
    return [info.st_size, info.st_mtime_ns]


def _marks(folder: Path) -> dict[str, list[int]]:
    """Of all that is no folder below a folder, but the note; links to folders included."""
    found = {}
    for place, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for path in (Path(place, name) for name in (*names, *links)):
            found[path.relative_to(folder).as_posix()] = _mark(path)
    found.pop(NOTE, None)
    return found


def not_own(path: Path) -> DataError:
    """The error where something stands that is not ours to replace."""
    return DataError(f"{path}: dicap did not write this, or it was changed since; move it away, or give another place")
