"""Photographs made to fit a page."""

import base64
import io
from collections.abc import Iterable
from pathlib import Path

from PIL import Image

SQUARE = 128  # pixels; shown at half of it, so that they are sharp on a phone


def fitted(image: Image.Image, side: int) -> Image.Image:
    """The image within `side` pixels each way, its proportions kept; a smaller one stays as it is."""
    if max(image.size) <= side:
        return image
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    return small


def jpeg(image: Image.Image, quality: int = 85) -> bytes:
    """The image as a JPEG file."""
    stream = io.BytesIO()
    image.save(stream, format="JPEG", quality=quality)
    return stream.getvalue()


def address(content: bytes) -> str:
    """A JPEG file as an address of itself."""
    return "data:image/jpeg;base64," + base64.b64encode(content).decode("ascii")


def squares(dataset: Path, ids: Iterable[str]) -> dict[str, str]:
    """Addresses of images of a converted set as they lie in it, square, by id; ids that the set does not have are left out.

    Raises DataError if the set is damaged.
    """
    from dicap.data.store import Store  # imports torch

    store = Store.open(dataset)
    rows = {name: row for row, name in enumerate(store.ids)}
    addresses = {}
    for name in rows.keys() & set(ids):
        picture = Image.fromarray(store.image(rows[name]))
        smooth = Image.Resampling.LANCZOS if picture.width > SQUARE else Image.Resampling.NEAREST
        addresses[name] = address(jpeg(picture.resize((SQUARE, SQUARE), smooth)))
    return addresses
