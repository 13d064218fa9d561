"""Small pictures for the page, as data addresses: the page needs no other file to show them."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

SIDE = 128  # pixels; shown at half of it, so that they are sharp on a phone


def thumbnails(dataset: Path, ids: Sequence[str]) -> dict[str, str]:
    """`data:` addresses of the images `ids` of a converted set, as they lie in it: square, JPEG of quality 85.

    Ids that the set does not have are left out. Raises DataError if the set is damaged.
    """
    from dicap.data.store import Store  # imports torch

    store = Store.open(dataset)
    rows = {name: row for row, name in enumerate(store.ids)}
    found = {}
    for name in dict.fromkeys(ids):
        if name in rows:
            picture = Image.fromarray(store.image(rows[name]))
            if picture.width != SIDE:
                smooth = Image.Resampling.LANCZOS if picture.width > SIDE else Image.Resampling.NEAREST
                picture = picture.resize((SIDE, SIDE), smooth)
            stream = io.BytesIO()
            picture.save(stream, format="JPEG", quality=85)
            found[name] = "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
    return found
