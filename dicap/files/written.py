"""Outputs at paths that a user chooses (`--out`): a command replaces only files that a command wrote.

A note in the folder lists the written files. Single files and whole folders have separate notes: a folder that is replaced as a
whole must not contain a file that was written as a single file.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dicap.errors import DataError
from dicap.files.atomic import alone, lock_of, make_room, replacing, replacing_folder
from dicap.files.checksum import sha256
from dicap.files.json_files import read_json, write_json

# The notes hold {file: [size, checksum]}: of files written one by one, and of a folder written as a whole.
NOTES = NOTE, FOLDER_NOTE = ".dicap-written.json", ".dicap-written-folder.json"


def check_own(*paths: Path) -> None:
    """Check output paths before the work starts.

    Raises:
        DataError: one of the paths exists and was not written by a command, or was changed since, or its name is too long.
    """
    for path in map(Path, paths):
        if os.path.lexists(path) and (path.is_dir() or _noted(path.parent / NOTE).get(path.name) != _mark(path)):
            raise not_own(path)
        lock_of(path)


def check_own_folder(path: Path) -> None:
    """Check a folder that will be replaced as a whole: DataError unless it is absent, empty, or as a command left it."""
    path = Path(path).resolve()
    if Path.cwd().is_relative_to(path):
        raise DataError(f"{path}: this is the current folder (or contains it) and cannot be replaced; name a folder in it")
    lock_of(path)
    make_room(path, folder=True)
    if not path.exists():
        return
    noted, marks = _noted(path / FOLDER_NOTE), _marks(path)
    if foreign := [name for name, mark in marks.items() if noted.get(name) != mark]:
        raise not_own(path / foreign[0])


def written_below(folder: Path) -> set[str]:
    """The files that commands wrote into a folder, relative to it, except files whose size has changed since."""
    noted = _noted(folder / NOTE) | _noted(folder / FOLDER_NOTE)
    return {name for name, mark in noted.items() if os.path.lexists(folder / name) and (folder / name).lstat().st_size == mark[0]}


@contextmanager
def replacing_own(path: Path) -> Iterator[Path]:
    """`replacing`, but only for a file that `replacing_own` wrote.

    Raises DataError as `check_own` does, or if another process is writing the file.
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
    """`replacing_folder`, but only for a folder that the same command wrote. Raises DataError as `replacing_own` does."""
    check_own_folder(path)
    path = Path(path).resolve()
    with replacing_folder(path) as temporary:
        yield temporary
        write_json(_marks(temporary), temporary / FOLDER_NOTE)
        lost = {file.name for file in path.glob("*")} - set(os.listdir(temporary))
        if lost:  # files of another command, which this command would remove
            raise not_own(path / min(lost))


def _noted(note: Path) -> dict[str, Any]:
    try:
        return read_json(note)
    except (DataError, OSError):  # without a readable note no file counts as ours
        return {}


def _mark(path: Path) -> list[int | str]:
    """Size and checksum; of a link its target. No times: Git and DVC give a file that they write back another one."""
    size = path.lstat().st_size
    return [size, os.readlink(path) if path.is_symlink() else sha256(path)]


def _marks(folder: Path) -> dict[str, list[int | str]]:
    """Marks of all files below a folder except the note, links to folders included."""
    files = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {path.relative_to(folder).as_posix(): _mark(path) for path in files if path.parent != folder or path.name not in NOTES}


def not_own(path: Path) -> DataError:
    """The error for a file or folder that no command wrote."""
    return DataError(f"{path}: dicap did not write this, or it was changed since; move it away, or give another path")
