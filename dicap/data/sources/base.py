"""What a source hands to `convert`: a list of images with split and labels, and a way to read each."""

import functools
import os
import re
import stat
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import PIL
from PIL import Image, ImageOps, PngImagePlugin, UnidentifiedImageError, features

from dicap.errors import DataError, first_line

INTERPRETATION, WHITE_IS_ZERO = 262, 0  # a TIFF's tag and its value; Pillow heeds it in grey of up to 8 bits alone


@dataclass(frozen=True, slots=True)
class Item:
    """One image of a raw set.

    Attributes:
        path: relative to the raw set's folder, with forward slashes.
        split: train, test or unlabeled.
        labels: sorted class indices; None for truly unlabelled.
        absent: sorted class indices that are known not to be there, where nothing is known of the classes in neither list;
            None: every class that is not in `labels` is absent.
        added: what the image was before its labels were given later (`train`, its labels perhaps hidden, or `unlabeled`).
        group: what it has in common with others that belong on the same side of every split and fold; None: nothing.
    """

    id: str
    path: str
    split: str
    labels: tuple[int, ...] | None
    added: str | None = None
    absent: tuple[int, ...] | None = None
    group: str | None = None


class Rejected(Exception):
    """An image that cannot be used; the text is the reason."""


LEADS_OUT = "leads out of the data set's folder; copy the file there"


class Images(Protocol):
    """Reads the images of a raw set; travels to worker processes."""

    def read(self, i: int) -> Image.Image:
        """Item i as an RGB picture of any size. Raises Rejected with the reason."""
        ...

    def mark(self, i: int) -> str:
        """What differs where item i would be read differently: of a file its place, size and times of change, not its content.

        A picture that is drawn, as here, is drawn from its number alone.
        """
        return str(i)


@dataclass(frozen=True)
class RawSet:
    """A raw data set, listed.

    Attributes:
        items: the images, in the order of the rows of the converted set.
        source: facts about where it came from, for meta.json (no absolute paths).
        notes: lines a user should know.
    """

    dataset: str
    classes: list[str]
    items: Sequence[Item]
    images: Images
    source: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def set_of_files(dataset: str, root: Path, classes: Sequence[str], items: Sequence[Item], source: dict[str, Any]) -> RawSet:
    """A raw set whose images are the files that its items name below `root`."""
    return RawSet(dataset, list(classes), items, FileImages(root, [item.path for item in items]), source)


def unknown_entries(classes: int, items: Iterable[Item]) -> int:
    """Number of unknown entries (image, class) of labelled images."""
    return sum(classes - len(item.labels or ()) - len(item.absent) for item in items if item.absent is not None)


class FileImages:
    """Images in files.

    Args:
        root: what the paths are relative to, unless they are absolute.
        paths: one an item.
        below: the folder that the first `len(below)` files must not leave, by `..` or by a link, or None for each that may be a
            link to anywhere: linking a photograph into the folder of its label is how some people label. By default `root`.
    """

    def __init__(
        self, root: Path, paths: Iterable[str | Path], below: Sequence[Path | None] | None = None, *, upright: bool = False
    ) -> None:
        self.paths = [root / path for path in paths]
        self.below = [root] * len(self.paths) if below is None else [*below, *[None] * (len(self.paths) - len(below))]
        self._upright = upright

    def leads_out(self, i: int) -> bool:
        """Whether image i lies outside the folder that it must not leave, and is no file of DVC's cache."""
        path, folder = self.paths[i], self.below[i]
        return folder is not None and not stays_below(path, folder) and not is_cached(path)

    def read(self, i: int) -> Image.Image:
        """Image i. Raises Rejected where it lies elsewhere or is damaged."""
        if self.leads_out(i):
            raise Rejected(LEADS_OUT)
        return read_rgb(self.paths[i], upright=self._upright)

    def mark(self, i: int) -> str:
        """Place, size and times of change of its file, the folder that it must not leave, and whether it is turned.

        The second time, of the change of its entry, is one that no program can set: a file that took the place of another of its
        size with an older file's date is another one.
        """
        try:
            info = os.stat(self.paths[i])
            file = f"{os.path.abspath(self.paths[i])} {info.st_size} {info.st_mtime_ns} {info.st_ctime_ns}"
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            file = type(error).__name__
        return f"{file} {self.below[i]} {self._upright}"


def decoders() -> dict[str, Any]:
    """What turns files into pixels beside this project's code: the same file may be read otherwise by another version."""
    return {"pillow": PIL.__version__, "jpeg": features.version("jpg"), "heic": _know_heic()}


def read_rgb(path: Path, *, upright: bool = False) -> Image.Image:
    """Decode an image file to RGB. Raises Rejected with the reason.

    Truncated files are refused: Pillow would otherwise fill the missing part with grey.

    Args:
        upright: turn the image as its EXIF orientation says, as cameras and telephones mean it. The published code does not,
            so the benchmark sets are read without.
    """
    try:
        info = os.stat(path)
    except FileNotFoundError:
        raise Rejected("broken link" if path.is_symlink() else "missing") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise Rejected(f"not readable: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(info.st_mode):  # opening a pipe would wait for ever
        raise Rejected("a folder" if stat.S_ISDIR(info.st_mode) else "not a regular file")
    if info.st_size == 0:
        raise Rejected("empty (0 bytes)")
    _know_heic()
    PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY  # texts are never read: a megabyte does no harm
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of unusual metadata; what cannot be decoded raises
            # By its name Pillow would map the file into memory, which scrambles a grey TIFF that lies on its side.
            with path.open("rb") as file, Image.open(file) as image:
                return to_rgb(image, upright=upright)
    except UnidentifiedImageError:
        raise Rejected(_without_plugin(path) or "not an image") from None
    except Image.DecompressionBombError:
        raise Rejected("more pixels than Pillow's limit") from None
    except MemoryError:
        raise Rejected("not decodable: out of memory") from None
    except Exception as error:  # Pillow's decoders raise OSError, ValueError, SyntaxError, struct.error and more
        raise Rejected(f"not decodable: {first_line(error)}") from None


@functools.cache
def _know_heic() -> bool:
    """Tell Pillow of the package that reads HEIC, if it is installed (the extra `heic`)."""
    try:
        from pi_heif import register_heif_opener  # type: ignore[import-not-found]
    except ImportError:
        return False
    register_heif_opener()
    return True


def _without_plugin(path: Path) -> str | None:
    """Why a photograph of a telephone cannot be read, whatever its name ends in; None for any other file."""
    with path.open("rb") as file:
        head = file.read(12)
    brand = head[8:12] if head[4:8] == b"ftyp" else b""
    if brand in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1") and not _know_heic():
        return "HEIC, which needs one more package: pip install 'dicap[heic]'"
    if brand in (b"avif", b"avis"):
        return "AVIF, which this Pillow was built without: pip install --upgrade pillow"
    return None


def to_rgb(image: Image.Image, *, upright: bool = False) -> Image.Image:
    """An open image as RGB, as a person sees it: grey of 16 bits as 8 bits, what is transparent on white, perhaps upright.

    Raises:
        Rejected: grey values of 32 bits or floats, for which black and white are not defined.
    """
    image.load()  # before the orientation is looked at: a TIFF is turned by loading it
    if image.mode == "I" and image.format == "TIFF":
        raise Rejected("grey values of 32 bits; save it as an 8-bit or 16-bit image")
    negative = image.mode.startswith("I") and getattr(image, "tag_v2", {}).get(INTERPRETATION) == WHITE_IS_ZERO
    image = ImageOps.exif_transpose(image) if upright else image  # which forgets what kind of file it was
    if image.mode.startswith("I"):
        image = ImageOps.invert(_to_8_bits(image)) if negative else _to_8_bits(image)
    elif image.mode == "F":
        raise Rejected("grey values that are floats; save it as an 8-bit or 16-bit image")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _to_8_bits(image: Image.Image) -> Image.Image:
    """Grey of 16 bits as 8 bits: Pillow would clip it at 255, which leaves a white image.

    Raises:
        Rejected: larger values, or none above 4095, which would be almost black: they are of 8, 10 or 12 bits.
    """
    import numpy as np

    grey = np.asarray(image)
    if grey.min() < 0 or grey.max() > 0xFFFF:
        raise Rejected("grey values of 32 bits; save it as an 8-bit or 16-bit image")
    if grey.max() <= 0xFFF:  # of 8, 10 or 12 bits: a camera's, a microscope's, an X-ray's
        bound = 1 << int(grey.max()).bit_length()
        raise Rejected(f"grey values of 16 bits, all of them below {bound} and so almost black; save it as an 8-bit image")
    return Image.fromarray((grey.astype(np.uint16) >> 8).astype(np.uint8))


def require(path: Path, what: str, published: str) -> Path:
    """`path` if it exists. Raises DataError that names it and says where the data set is published."""
    if not path.exists():
        kind = "file" if path.suffix else "folder"
        raise DataError(f"{path}: no such {kind} ({what}); data_root must hold the {published}")
    return path


def inside(root: Path, relative: str) -> bool:
    """Whether a relative path stays below `root`, by its words alone; no file is looked at."""
    full = os.path.normpath(os.path.join(root, relative))
    return full.startswith(os.path.join(os.path.normpath(root), ""))


def stays_below(path: Path, root: Path) -> bool:
    """Whether a path is below `root` when all links are followed; a name that is no name is left to the reader."""
    try:
        return os.path.realpath(path).startswith(os.path.join(os.path.realpath(root), ""))
    except ValueError:
        return True


def is_cached(path: Path) -> bool:
    """Whether a link leads into a cache of DVC, which may link what it tracks: to `files/md5/ab/cdef...`."""
    return re.search(r"/files/md5/[0-9a-f]{2}/[0-9a-f]{30}$", os.path.realpath(path)) is not None


def words_of(path: Path, fits: Callable[[list[str], int], bool], expected: str) -> list[list[str]]:
    """The words of each line of a list, empty lines left out. Raises DataError where a line does not fit.

    Args:
        fits: whether these are the words of a line, which is number 1, 2, ... of them.
        expected: what such a line holds, for the error.
    """
    rows: list[list[str]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split()
        if words and not fits(words, len(rows) + 1):
            shown = line if len(line) <= 60 else line[:57] + "..."
            raise DataError(f"{path}: line {number}: found {shown!r}, expected {expected}; unpack the archive again")
        rows += [words] if words else []
    return rows
