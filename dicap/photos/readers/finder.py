"""Find the files that annotations name, even if the annotations give other folders."""

import os
import re
import unicodedata
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from dicap.data.sources.files import list_images, readable
from dicap.errors import DataError

LONGEST = 255  # bytes of a file's name, on most disks
Wanted = Iterable[tuple[str, tuple[Path, ...]]]
NO_NAME = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")  # half of a surrogate pair, which JSON can hold, is no letter


class Finder:
    """Finds files by their names.

    A name means the file in its place, below one of the folders or the root; surrounding blanks and backslashes do not matter.
    If no file there is spelled so, capitals, composed or decomposed accents and a missing ending do not matter either. If no file
    of the list is in its place, the folders are taken for those of another machine: a name then means the only image below the
    root of which one of the two paths ends with the other. If some files are in place, the other files are missing: an image of
    one name in another folder may be another photograph.

    Args:
        root: the folder of the data set.
        wanted: the names, each with the folders that it may be relative to, beside the root.
        ignored: files (`own.ignore`) that a name means only with all of its path.
    """

    def __init__(self, root: Path, wanted: Wanted = (), ignored: Iterable[str] | None = None) -> None:
        self._root, self._ignored = root, ignored
        self.elsewhere: dict[str, str] = {}  # by name, the images in other folders or under other names
        self._moved = not any(self._in_place(name, folders) for name, folders in wanted)

    def find(self, name: str, *folders: Path) -> Path:
        """The file `name` below one of the folders or the root; for a missing file, the path that the name means.

        Raises DataError if `name` cannot be the name of a file, or if it could mean several files.
        """
        if NO_NAME.search(name) or len(os.fsencode(name.rpartition("/")[2])) > LONGEST:
            raise DataError(f"{name[:60]!r} cannot be the name of a file; correct it")
        simple = _simple(name)
        in_place = self._in_place(name, folders)
        images = in_place or (self._ending(simple) if self._moved else [])
        if len(images) > 1:
            way = "write its folder and ending too, or leave one of the two out (init-data --ignore)"
            raise DataError(f"{name!r} could be {readable(images[0])} or {readable(images[1])}; {way}")
        if not images:
            return (folders[0] if folders and ".." in simple.split("/") else self._root) / simple
        file = self._root / images[0]
        if not in_place or not file.as_posix().endswith((name, name.replace("\\", "/"))):
            self.elsewhere[name] = images[0]
        return file

    def notes(self) -> list[str]:
        """A line if images were found under other names than the labels say."""
        found = [f"{name} is {readable(image)}" for name, image in self.elsewhere.items()]
        return [f"images found under another name: {len(found)} ({found[0]})"] if found else []

    def _in_place(self, name: str, folders: tuple[Path, ...]) -> list[str]:
        """The images at a name's path: below the first folder, which is the usual one, else below the others or the root."""
        if os.path.isabs(name) and os.path.isfile(name):  # the path may lead through a link
            file = Path(os.path.realpath(Path(name).parent), Path(name).name)
            return [os.path.relpath(file, os.path.realpath(self._root))]
        first, *others = folders or (self._root,)
        images = self._at(first, name) or [image for folder in others for image in self._at(folder, name)]
        if not images and (at_root := self._at(self._root, name)):  # a namesake in a folder could be meant, too
            images = [*at_root, *self.tails.get(_plain(_simple(name)), ())]
        return list(dict.fromkeys(images))

    def _at(self, folder: Path, name: str) -> list[str]:
        """The image at this path below a folder; if none is spelled so, those in any other spelling."""
        for spelled in (name, _simple(name)):
            if os.path.isfile(folder / spelled):
                return [os.path.relpath(folder / spelled, self._root)]
        path = _plain(os.path.relpath(folder / _simple(name), self._root))
        return [image for image in self.tails.get(path, ()) if image.count("/") == path.count("/")]

    def _ending(self, name: str) -> list[str]:
        """The images whose path ends with a name; else those with whose path it ends, the longest first."""
        parts = _plain(name).split("/")
        for k in range(len(parts)):
            end = "/".join(parts[k:])
            if images := [image for image in self.tails.get(end, ()) if k == 0 or image.count("/") == end.count("/")]:
                return images
        return []

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


def _simple(name: str) -> str:
    return name.strip().replace("\\", "/").lstrip("/")


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
