"""Images that look like others: mirrored, re-saved, resized or taken by a camera at rest, which no name and no checksum tells."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

SIDE = 12  # of a thumbnail, in pixels
ALIKE = 0.98  # correlation; of two photographs of Corel5k at most 0.97
CONTRAST = 100.0  # length of a thumbnail without its mean colour, below which it shows too little to compare: it stays shorter
FEW = 3  # of a folder of fewer images nothing is said
SAMPLE = 40  # images of a folder that are compared with all others
ALMOST_ALL = 0.9


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


def folders_of_copies(folders: Sequence[str], thumbnails: np.ndarray) -> list[str]:
    """Folders almost all of whose images look like images of other folders and not like one another, as resized copies do.

    The folder of each image (N), and thumbnails (N, SIDE, SIDE, 3). The folders that were copied are among these folders, too.
    """
    flat, names = thumbnails.reshape(len(folders), 3 * SIDE**2), np.array(folders)
    found = []
    for name in sorted({*folders}):
        is_inside = names == name
        rows = np.flatnonzero(is_inside)
        some = rows[:: -(-len(rows) // SAMPLE)]
        alike = flat[some] @ flat.T > ALIKE  # (some, N)
        alike[np.arange(len(some)), some] = False  # of itself
        are_copies = alike[:, ~is_inside].any(1) & ~alike[:, is_inside].any(1)
        if len(rows) >= FEW and are_copies.mean() >= ALMOST_ALL:
            found.append(name)
    return found
