"""Find the files that annotations name, even if the annotations give other folders."""

import os
import re
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from dicap.data.sources.files import list_images, readable, same_file
from dicap.errors import DataError

LONGEST = 255  # bytes of a file's name, on most disks
Wanted = Iterable[tuple[str, tuple[Path, ...]]]
NO_NAME = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")  # half of a surrogate pair, which JSON can hold, is no letter


class Finder:
    """Finds files by their names.

    Capitals, composed or decomposed accents, surrounding blanks, backslashes and a missing ending do not matter. If no file of
    the list is in its place, the folders are taken for those of another machine. A name then matches an image below the root if
    one of the two paths ends with the other. If some files are in place, the other files are missing: an image of one name in
    another folder may be another photograph.

    Args:
        root: the folder of the data set.
        wanted: the names, each with the folders that it may be relative to, beside the root.
        ignored: files (`own.ignore`) that a name means only with all of its path.
        moved: whether the folders are those of another machine even if some files are in place.
    """

    def __init__(self, root: Path, wanted: Wanted = (), ignored: Iterable[str] | None = None, moved: bool = False) -> None:
        self._root, self._ignored = root, ignored
        self.elsewhere: dict[str, str] = {}  # by name, the images that match only in the end of their paths
        self._moved = True
        with suppress(DataError):  # `find` raises the error again, and its caller adds the row
            self._moved = moved or not any(self._in_place(name, folders) for name, folders in wanted)

    def find(self, name: str, *folders: Path) -> Path:
        """The file `name` below one of the folders or the root; for a missing file, the path that the name means.

        Raises DataError if `name` cannot be the name of a file, or if it could mean several files.
        """
        if (file := self._in_place(name, folders)) is not None:
            return file
        meant = name.strip().replace("\\", "/")
        parts = _plain(meant).split("/")
        if ".." in parts:
            return (folders or (self._root,))[0] / meant
        ends = (self._whole("/".join(parts[k:])) for k in range(1, len(parts)))
        images = self._moved and (self.tails.get("/".join(parts)) or next(filter(None, ends), None))
        if not images:
            return self._root / meant.lstrip("/")
        self.elsewhere[name] = self._only(name, images)
        return self._root / self.elsewhere[name]

    def notes(self) -> list[str]:
        """A line if images were found in other places than the labels say."""
        found = [f"{name} is {readable(image)}" for name, image in self.elsewhere.items()]
        return [f"images found under another name: {len(found)} ({found[0]})"] if found else []

    def _in_place(self, name: str, folders: Iterable[Path]) -> Path | None:
        if NO_NAME.search(name) or len(os.fsencode(name.rpartition("/")[2])) > LONGEST:
            raise DataError(f"{name[:60]!r} cannot be the name of a file; correct it")
        simple = name.strip().replace("\\", "/").lstrip("/")
        if ".." in simple.split("/"):
            return None
        if os.path.isabs(name) and os.path.isfile(name):  # the path may lead through a link
            file = Path(os.path.realpath(Path(name).parent), Path(name).name)
            return self._root / os.path.relpath(file, os.path.realpath(self._root))
        places = [*folders, self._root]
        if (file := _file_at(places[0], name, simple)) is not None:  # the usual folder for this format
            return file
        files = [file for place in places[1:] if (file := _file_at(place, name, simple)) is not None]
        images = [os.path.relpath(file, self._root) for file in {same_file(file): file for file in files}.values()]
        if files and files[0].parent == (self._root / simple).parent:
            images += [image for image in self.tails.get(_plain(simple), ()) if image not in images]
        for place in places:
            images = images or self._whole(_plain(os.path.relpath(place / simple, self._root)))
        return self._root / self._only(name, images) if images else None

    def _only(self, name: str, images: list[str]) -> str:
        if len(images) > 1:
            way = "write its folder and ending too, or leave one of the two out (init-data --ignore)"
            raise DataError(f"{name!r} could be {readable(images[0])} or {readable(images[1])}; {way}")
        return images[0]

    def _whole(self, path: str) -> list[str]:
        """The images with this path, in any spelling."""
        return [image for image in self.tails.get(path, ()) if image.count("/") == path.count("/")]

    @cached_property
    def tails(self) -> dict[str, list[str]]:
        """The images below the root by each end of their paths: `a/b/c.jpg` by `b/c.jpg`, `b/c` and others."""
        images: dict[str, list[str]] = {}
        for image in list_images(self._root, required=False):
            parts = [] if is_ignored(image, self._ignored) else _plain(image).split("/")
            for k in range(len(parts)):
                tail = "/".join(parts[k:])
                for spelled in {tail, tail.removesuffix(Path(tail).suffix)}:
                    images.setdefault(spelled, []).append(image)
        return images


def is_ignored(name: str, ignored: Iterable[str] | None) -> bool:
    """Whether `own.ignore` names a file: by path, by a folder above, by ending (`.`: none), or by a pattern as `*_mask.png`."""
    if not ignored:
        return False
    path = Path(name)
    ways = {name, path.suffix.lower() or ".", *map(str, path.parents)} - ({"."} if path.suffix else set())
    return any(one.rstrip("/") in ways or one.lower() in ways or fnmatchcase(name, one) for one in ignored)


def _file_at(folder: Path, name: str, simple: str) -> Path | None:
    """The file in a folder by its name, or by its name without surrounding blanks or with slashes."""
    return next((folder / one for one in (name, name.strip(), simple) if os.path.isfile(folder / one)), None)


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
