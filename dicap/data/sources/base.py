"""The output of a source and the input of `convert`: a list of images with split and labels, and a reader of the images."""

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

INTERPRETATION, WHITE_IS_ZERO = 262, 0  # a TIFF tag and its value; Pillow respects it only in grey images of up to 8 bits


@dataclass(frozen=True, slots=True)
class Item:
    """One image of a raw set.

    Attributes:
        path: relative to the raw set's folder, with forward slashes.
        split: train, test or unlabeled.
        labels: sorted class indices; None: unlabelled.
        absent: sorted class indices that are known to be absent; classes in neither list are unknown. None: every class that is
            not in `labels` is absent.
        added: the image's split before its labels were given later: `train` (its labels were perhaps hidden) or `unlabeled`.
        group: name of a group of images that must be on one side of every split and fold; None: no group.
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
        """A string that changes if item i would be read differently, for a file: its path, size and times, not its content.

        By default it is the item's number, for pictures that are drawn from their number.
        """
        return str(i)


@dataclass(frozen=True)
class RawSet:
    """A raw data set, listed.

    Attributes:
        items: the images, in the order of the rows of the converted set.
        source: facts about its origin, for meta.json (no absolute paths).
        notes: lines for the user.
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
        root: base of relative paths.
        paths: one per item.
        below: for each of the first `len(below)` files a folder that it must not leave by `..` or by a link. None: the file may
            link anywhere, because some people label by linking a photograph into the folder of its label. Default: `root`.
    """

    def __init__(
        self, root: Path, paths: Iterable[str | Path], below: Sequence[Path | None] | None = None, *, upright: bool = False
    ) -> None:
        self.paths = [root / path for path in paths]
        self.below = [root] * len(self.paths) if below is None else [*below, *[None] * (len(self.paths) - len(below))]
        self._upright = upright

    def leads_out(self, i: int) -> bool:
        """Whether image i lies outside its folder (`below`) and is not a file of DVC's cache."""
        path, folder = self.paths[i], self.below[i]
        return folder is not None and not stays_below(path, folder) and not is_cached(path)

    def read(self, i: int) -> Image.Image:
        """Image i. Raises Rejected if it leads out of its folder or is damaged."""
        if self.leads_out(i):
            raise Rejected(LEADS_OUT)
        return read_rgb(self.paths[i], upright=self._upright)

    def mark(self, i: int) -> str:
        """The path, size, mtime and ctime of the file, its folder (`below`), and whether EXIF orientation is applied.

        Programs cannot set the ctime, so a replaced file is noticed even if its size and mtime are equal.
        """
        try:
            info = os.stat(self.paths[i])
            file = f"{os.path.abspath(self.paths[i])} {info.st_size} {info.st_mtime_ns} {info.st_ctime_ns}"
        except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
            file = type(error).__name__
        return f"{file} {self.below[i]} {self._upright}"


def decoders() -> dict[str, Any]:
    """The versions of the decoders: another version may decode the same file differently."""
    return {"pillow": PIL.__version__, "jpeg": features.version("jpg"), "heic": _know_heic()}


def read_rgb(path: Path, *, upright: bool = False) -> Image.Image:
    """Decode an image file to RGB. Raises Rejected with the reason.

    Truncated files are rejected, because Pillow would fill the missing part with grey.

    Args:
        upright: apply the EXIF orientation of cameras and telephones. The published code does not, so benchmark sets are read
            without it.
    """
    try:
        info = os.stat(path)
    except FileNotFoundError:
        raise Rejected("broken link" if path.is_symlink() else "missing") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise Rejected(f"not readable: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(info.st_mode):  # opening a pipe could block for ever
        raise Rejected("a folder" if stat.S_ISDIR(info.st_mode) else "not a regular file")
    if info.st_size == 0:
        raise Rejected("empty (0 bytes)")
    _know_heic()
    PngImagePlugin.MAX_TEXT_CHUNK = PngImagePlugin.MAX_TEXT_MEMORY  # allow long text chunks, which are not used anyway
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings are about unusual metadata; undecodable files raise exceptions
            # Given a path, Pillow would memory-map the file, which scrambles a rotated grey TIFF.
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
    """Register the package that reads HEIC with Pillow, if it is installed (the extra `heic`); returns whether it is."""
    try:
        from pi_heif import register_heif_opener  # type: ignore[import-not-found]
    except ImportError:
        return False
    register_heif_opener()
    return True


def _without_plugin(path: Path) -> str | None:
    """Why a HEIC or AVIF photograph cannot be read, by its content and not its name; None for any other file."""
    with path.open("rb") as file:
        head = file.read(12)
    brand = head[8:12] if head[4:8] == b"ftyp" else b""
    if brand in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1") and not _know_heic():
        return "HEIC, which needs one more package: pip install 'dicap[heic]'"
    if brand in (b"avif", b"avis"):
        return "AVIF, which this Pillow was built without: pip install --upgrade pillow"
    return None


def to_rgb(image: Image.Image, *, upright: bool = False) -> Image.Image:
    """An open image as RGB, as viewers show it: 16-bit grey becomes 8-bit, transparency becomes white.

    Raises:
        Rejected: grey values of 32 bits or floats, which have no defined black and white.
    """
    image.load()  # before reading the orientation, because loading a TIFF already rotates it
    if image.mode == "I" and image.format == "TIFF":
        raise Rejected("grey values of 32 bits; save it as an 8-bit or 16-bit image")
    negative = image.mode.startswith("I") and getattr(image, "tag_v2", {}).get(INTERPRETATION) == WHITE_IS_ZERO
    image = ImageOps.exif_transpose(image) if upright else image  # the result has no `format` any more
    if image.mode.startswith("I"):
        image = ImageOps.invert(_to_8_bits(image)) if negative else _to_8_bits(image)
    elif image.mode == "F":
        raise Rejected("grey values that are floats; save it as an 8-bit or 16-bit image")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _to_8_bits(image: Image.Image) -> Image.Image:
    """16-bit grey as 8-bit grey. Pillow would clip values at 255, which gives a white image.

    Raises:
        Rejected: values of more than 16 bits; or no value above 4095 (8, 10 or 12 bits of data), which would look almost black.
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
    """`path` if it exists. Else raises DataError, which says where the data set is published."""
    if not path.exists():
        kind = "file" if path.suffix else "folder"
        raise DataError(f"{path}: no such {kind} ({what}); data_root must hold the {published}")
    return path


def inside(root: Path, relative: str) -> bool:
    """Whether a relative path stays below `root`, by its text alone, without looking at files."""
    full = os.path.normpath(os.path.join(root, relative))
    return full.startswith(os.path.join(os.path.normpath(root), ""))


def stays_below(path: Path, root: Path) -> bool:
    """Whether a path is below `root` after following all links; true for an invalid name, which the reader rejects."""
    try:
        return os.path.realpath(path).startswith(os.path.join(os.path.realpath(root), ""))
    except ValueError:
        return True


def is_cached(path: Path) -> bool:
    """Whether a path links into a DVC cache (`files/md5/ab/cdef...`), as tracked files may."""
    return re.search(r"/files/md5/[0-9a-f]{2}/[0-9a-f]{30}$", os.path.realpath(path)) is not None


def words_of(path: Path, fits: Callable[[list[str], int], bool], expected: str) -> list[list[str]]:
    """The words of each non-empty line of a list. Raises DataError for a malformed line.

    Args:
        fits: (words of a line, its number among the non-empty lines, from 1) -> whether the line is well-formed.
        expected: the expected content of a line, for the error.
    """
    rows: list[list[str]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split()
        if words and not fits(words, len(rows) + 1):
            shown = line if len(line) <= 60 else line[:57] + "..."
            raise DataError(f"{path}: line {number}: found {shown!r}, expected {expected}; unpack the archive again")
        rows += [words] if words else []
    return rows
