"""Places that a person chooses (`--out`): what a command wrote there it notes in the folder, and replaces nothing else.

Files and whole folders are noted apart: a folder that is replaced as a whole may hold no file that was written for itself.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dicap.errors import DataError
from dicap.files.atomic import alone, lock_of, make_room, replacing, replacing_folder
from dicap.files.json_files import read_json, write_json

# {file below this folder: [size, time of change in ns]}; of files written one by one, and of a folder written as a whole
NOTES = NOTE, FOLDER_NOTE = ".dicap-written.json", ".dicap-written-folder.json"


def check_own(*paths: Path) -> None:
    """Ask this before the work is done.

    Raises:
        DataError: at one of these places there is something that no command wrote, or that was changed since; or its name is
            too long.
    """
    for path in map(Path, paths):
        if os.path.lexists(path) and (path.is_dir() or _noted(path.parent / NOTE).get(path.name) != _mark(path)):
            raise not_own(path)
        lock_of(path)


def check_own_folder(path: Path) -> None:
    """The same for a folder that is replaced as a whole: absent, empty, or as a command left it. Raises DataError."""
    path = Path(path).resolve()
    if Path.cwd().is_relative_to(path):
        raise DataError(f"{path}: this folder is worked in and cannot be replaced; name one in it")
    lock_of(path)
    make_room(path, folder=True)
    if not path.exists():
        return
    noted, marks = _noted(path / FOLDER_NOTE), _marks(path)
    if strange := [name for name, mark in marks.items() if noted.get(name) != mark]:
        raise not_own(path / strange[0])


def written_below(folder: Path) -> set[str]:
    """The files that commands wrote into a folder, relative to it; not one of another size by now, which somebody else wrote.

    A copy of the folder has other times of change.
    """
    noted = _noted(folder / NOTE) | _noted(folder / FOLDER_NOTE)
    return {name for name, mark in noted.items() if os.path.lexists(folder / name) and _mark(folder / name)[0] == mark[0]}


@contextmanager
def replacing_own(path: Path) -> Iterator[Path]:
    """`replacing`, of nothing but what was written so before.

    Raises DataError: see `check_own`; another process is writing it.
    """
    check_own(path)
    make_room(path, folder=False)
    with alone(path):
        with replacing(path) as temporary:
            yield temporary
        with alone(path.parent / NOTE, wait=True):
            marks = {name: mark for name, mark in _noted(path.parent / NOTE).items() if (path.parent / name).exists()}
            write_json(marks | {path.name: _mark(path)}, path.parent / NOTE)


@contextmanager
def replacing_own_folder(path: Path) -> Iterator[Path]:
    """`replacing_folder`, of nothing but what the same command wrote before. Raises DataError as `replacing_own`."""
    check_own_folder(path)
    path = Path(path).resolve()
    with replacing_folder(path) as temporary:
        yield temporary
        write_json(_marks(temporary), temporary / FOLDER_NOTE)
        lost = {one.name for one in path.glob("*")} - set(os.listdir(temporary))
        if lost:  # another command's, which this one would remove
            raise not_own(path / min(lost))


def _noted(note: Path) -> dict[str, Any]:
    try:
        return read_json(note)
    except (DataError, OSError):  # none, or damaged: then nothing is known to be ours
        return {}


def _mark(path: Path) -> list[int]:
    info = path.lstat()
    return [info.st_size, info.st_mtime_ns]


def _marks(folder: Path) -> dict[str, list[int]]:
    """Marks of all files below a folder except the note, links to folders included."""
    files = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(folder).as_posix(): _mark(path) for path in files if path.parent != folder or path.name not in NOTES}


def not_own(path: Path) -> DataError:
    """The error where something stands that is not ours to replace."""
    return DataError(f"{path}: dicap did not write this, or it was changed since; move it away, or give another place")
