"""Images that look like others: mirrored, re-saved, resized or taken by a camera at rest, which no name and no checksum tells."""

from collections.abc import Collection, Sequence

import numpy as np
from PIL import Image

SIDE = 12  # of a thumbnail, in pixels
ALIKE = 0.98  # correlation; of two photographs of Corel5k at most 0.97
CONTRAST = 100.0  # length of a thumbnail without its mean colour, below which it shows too little to compare: it stays shorter
FEW = 3  # of a class of fewer images nothing is said
SAMPLE = 40  # images of a class that are compared with all others
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


def classes_of_copies(labels: Sequence[Collection[int]], thumbnails: np.ndarray) -> dict[int, set[int]]:
    """Classes almost all of whose images look like images of other classes and not like one another, as resized copies do.

    (N,) labels of each image and thumbnails (N, SIDE, SIDE, 3). Returns these others by class. Each of them looks like no third
    class: pictures of a camera at rest all look alike.
    """
    flat = thumbnails.reshape(len(labels), 3 * SIDE**2)
    seen: dict[int, list[set[int]]] = {}  # by class, the classes of what each image of a sample looks like
    for c in sorted({c for own in labels for c in own}):
        rows = [i for i, own in enumerate(labels) if c in own]
        rows = rows[:: -(-len(rows) // SAMPLE)]
        alike = flat[rows] @ flat.T > ALIKE  # (R, N)
        seen[c] = [
            {d for j in np.flatnonzero(row).tolist() if j != i for d in labels[j]} for i, row in zip(rows, alike, strict=True)
        ]
    found = {}
    for c, classes in seen.items():
        if len(classes) >= FEW and np.mean([bool(others) and c not in others for others in classes]) >= ALMOST_ALL:
            of_third = [bool(others - {c, d}) for d, of_class in seen.items() if d != c for others in of_class]
            if sum(of_third) <= (1 - ALMOST_ALL) * len(of_third):
                found[c] = set().union(*classes)
    return found
