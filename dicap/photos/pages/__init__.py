"""Pages that show photographs: the gallery of predictions and the page for labelling."""

import io
from pathlib import Path

from PIL import Image

TEMPLATES = Path(__file__).with_name("templates")
CHANCE = {True: "measured chance that the class is present", False: "network's confidence (no chance was measured)"}


def jpeg(image: Image.Image, side: int, quality: int = 85) -> bytes:
    """The image as a JPEG file within `side` pixels each way, its proportions kept; a smaller one stays as it is."""
    small, stream = image.copy(), io.BytesIO()
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    small.save(stream, format="JPEG", quality=quality)
    return stream.getvalue()
