"""Images that look like others: mirrored, re-saved, resized or taken by a camera at rest, which no name and no checksum tells."""

from collections.abc import Collection, Sequence
from functools import cache

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


def folders_of_copies(folders: Sequence[Collection[str]], thumbnails: np.ndarray) -> dict[str, set[str]]:
    """Folders almost all of whose images look like images of other folders and not like one another, as resized copies do.

    The folders around each image (N), and thumbnails (N, SIDE, SIDE, 3). Returns these others by folder. Each of them looks like
    no third folder: pictures of a camera at rest all look alike.
    """
    flat = thumbnails.reshape(len(folders), 3 * SIDE**2)
    rows_of: dict[str, list[int]] = {}
    for i, around in enumerate(folders):
        for name in around:
            rows_of.setdefault(name, []).append(i)

    @cache  # a folder of few images is looked at only if another one may hold copies
    def seen(name: str) -> list[set[str]]:  # of each image of a sample, the folders of what it looks like
        rows = rows_of[name][:: -(-len(rows_of[name]) // SAMPLE)]
        alike = flat[rows] @ flat.T > ALIKE  # (R, N)
        alike[np.arange(len(rows)), rows] = False  # of itself
        return [set().union(*(folders[j] for j in np.flatnonzero(row).tolist())) for row in alike]

    found = {}
    for name in sorted(name for name, rows in rows_of.items() if len(rows) >= FEW):
        if np.mean([bool(others) and name not in others for others in seen(name)]) >= ALMOST_ALL:
            beside = {one: {name}.union(*(folders[i] for i in rows)) for one, rows in rows_of.items() if one != name}
            third = [bool(others - known) for one, known in beside.items() for others in seen(one)]
            if sum(third) <= (1 - ALMOST_ALL) * len(third):
                found[name] = set().union(*seen(name))
    return found
