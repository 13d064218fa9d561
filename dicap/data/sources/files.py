"""Lists the image files below a folder."""

import os
import re
from pathlib import Path

from dicap.errors import DataError
from dicap.files.written import written_below

ENDINGS = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".pnm"}
    | {".heic", ".heif", ".hif", ".avif"}
)
# Folders of thumbnails or deleted pictures: of a disk station, Lightroom, Picasa, or a macOS archive.
THUMBNAILS = re.compile(r"@eaDir|#recycle|__MACOSX|.+\.lrdata", re.IGNORECASE)
# Files that often lie beside photographs but hold no labels.
DESCRIBES = re.compile(
    r"(readme|licen[cs]e|citation|notice|changelog)\b.*|thumbs\.db|desktop\.ini|.+\.(md|dvc|lnk)", re.IGNORECASE
)


def is_image_name(text: str) -> bool:
    """Whether a name has the ending of an image file."""
    return Path(text).suffix.lower() in ENDINGS


def base_of(root: Path) -> Path:
    """The folder of a data set, given the folder or its file of labels; above annotations/ for a COCO file in it."""
    if root.is_dir():
        return root
    above = root.suffix.lower() == ".json" and root.parent.name.lower() in ("annotations", "labels")
    return root.parent.parent if above else root.parent


def list_images(folder: Path, *, required: bool = True, again: bool = False) -> list[str]:
    """Paths of the image files below a folder, relative to it, with forward slashes, sorted.

    Hidden files, thumbnails and files that our commands wrote are left out. Links are followed, but each folder is visited only
    once; with `again` it is visited through each link that is not inside the folder itself.

    Raises:
        DataError: there is no such folder, or it has no image although `required`.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; name a folder of images")
    names = [name for name in _files_below(folder, again) if is_image_name(name)]
    if not names and required:
        raise DataError(f"{folder}: no image files below it; known endings are {', '.join(sorted(ENDINGS))}")
    return sorted(names)


def list_others(folder: Path) -> list[str]:
    """Paths of the other files below a folder, as in `list_images`, without our projects and without files like a readme."""
    return sorted(
        name
        for name in _files_below(folder, again=False, projects=False)
        if not is_image_name(name) and not name.endswith("~") and not DESCRIBES.match(name.rpartition("/")[2])
    )


def _files_below(folder: Path, again: bool, projects: bool = True) -> list[str]:
    files, written, seen = [], set(), set()
    for directory, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(directory)
        above = Path(directory).parents
        visited = real in (map(os.path.realpath, above[: len(above) - len(folder.parents)]) if again else seen)
        if visited or (not projects and Path(directory) != folder and {"dvc.yaml", "params.yaml"} <= {*names}):
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith(".") and not THUMBNAILS.fullmatch(name))
        relative = Path(directory).relative_to(folder)
        written |= {(relative / name).as_posix() for name in written_below(Path(directory))}
        files += [(relative / name).as_posix() for name in names if not name.startswith(".")]
    return [name for name in files if name not in written]


def readable(name: str) -> str:
    """A file's name as writable text: bytes that are not UTF-8 become `\\xe9`, a carriage return becomes `\\r`."""
    name = name.replace("\r", "\\r")  # in a CSV file a carriage return would end the row
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def same_file(path: Path) -> tuple[int, int] | str:
    """The identity of a file, equal for all links to it: device and inode; its path if it is missing."""
    try:
        info = os.stat(path)
    except (OSError, ValueError):  # ValueError: a zero byte in the name
        return str(path)
    return info.st_dev, info.st_ino


def linked_folder(file: Path, root: Path) -> Path:
    """The folder that a file must not leave by a link: `root`, or a linked folder in `root` or in a folder of `root`.

    A linked folder of photographs is trusted as the user's intention. A link of a single file to elsewhere is not.
    """
    folder = root
    if file.is_relative_to(root):
        for part in file.relative_to(root).parts[:-1][:2]:
            folder = folder / part
            if folder.is_symlink():
                return folder
    return root
