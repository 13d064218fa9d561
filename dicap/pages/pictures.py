"""Photographs made to fit a page."""

import base64
import io

from PIL import Image


def fitted(image: Image.Image, side: int) -> Image.Image:
    """The image within `side` pixels each way, its proportions kept; a smaller one stays as it is."""
    small = image.copy()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    return small


def jpeg(image: Image.Image, quality: int = 85) -> bytes:
    """The image as a JPEG file."""
    stream = io.BytesIO()
    image.save(stream, format="JPEG", quality=quality)
    return stream.getvalue()


def address(content: bytes, kind: str = "image/jpeg") -> str:
    """A file as an address of itself."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
