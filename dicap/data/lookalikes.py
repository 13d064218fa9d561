"""Test images that look like others: mirrored, re-saved or taken by a camera at rest, which no name and no checksum tells."""

import numpy as np
from PIL import Image

SIDE = 12  # of a thumbnail, in pixels
ALIKE = 0.98  # correlation; of two photographs of Corel5k at most 0.97
CONTRAST = 100.0  # length of a thumbnail without its mean colour, below which it shows too little to compare: it stays shorter


def thumbnail(image: Image.Image) -> np.ndarray:
    """(SIDE, SIDE, 3) float32 without its mean colour and of length 1: brightness does not count."""
    small = np.asarray(image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BOX), np.float32)
    small = small - small.mean((0, 1))
    return small / max(np.linalg.norm(small), CONTRAST)


def note_of_lookalikes(ids: list[str], splits: list[str], thumbnails: np.ndarray) -> list[str]:
    """A note if test images look like other images, (N,) each and thumbnails (N, SIDE, SIDE, 3)."""
    is_test = np.array(splits) == "test"
    others = np.flatnonzero(~is_test)
    flat = thumbnails[others].reshape(len(others), 3 * SIDE**2)  # copied once, not for each test image
    pairs = []
    for row in np.flatnonzero(is_test) if len(others) else ():
        seen = np.stack([thumbnails[row], thumbnails[row][:, ::-1]]).reshape(2, -1)  # mirrored, too
        alike = (flat @ seen.T).max(1)
        pairs += [f"{ids[row]} ~ {ids[others[alike.argmax()]]}"] * bool(alike.max() > ALIKE)
    text = "test images that look like others, as mirrored copies and bursts do, by which the score is too good"
    return [f"{text}: {len(pairs)} (the first: {pairs[0]}); leave them out (--ignore), or write a column group"] if pairs else []
