"""What the strong view does to an image: the table of RandAugment's operations, and drawing from it.

Drawing is apart from doing: `draw` turns uniform random numbers into a `Plan`, which `dicap.data.augment` carries out.
"""

from dataclasses import dataclass

import numpy as np

SLOTS = 2  # operations applied one after the other
COLUMNS = 4 + 3 * SLOTS  # random numbers of one view: flip, colour and centre of the hole; per slot: choice, centre


@dataclass(frozen=True)
class Operation:
    """One line of the table.

    Attributes:
        kind: its name.
        values: what the operation is given, per level: shear as a slope, translation as a share of the side, rotation
            in degrees, enhancement as a distance from factor 1, bits, threshold, or pixels.
        signed: whether the value's sign is drawn too (both equally likely).
    """

    kind: str
    values: tuple[float, ...]
    signed: bool = False


def _levels(first: float, last: float) -> tuple[float, ...]:
    """Levels 1 to 9 of ten equally spaced ones; level 0 is never drawn."""
    return tuple(float(value) for value in np.linspace(first, last, 10)[1:])


# PyPI randaugment 1.0.2, which the published code imports (docs/methods.md 2.4): 15 operations x 9 levels, all equally likely,
# ordered pairs. Rotation has one direction only.
OPERATIONS = (
    Operation("invert", (0.0,) * 9),
    Operation("cutout", tuple(float(round(v)) for v in _levels(0, 20))),
    Operation("sharpness", _levels(0, 0.9), signed=True),
    Operation("autocontrast", (0.0,) * 9),
    Operation("posterize", tuple(float(round(v)) for v in _levels(8, 4))),
    Operation("shear_x", _levels(0, 0.3), signed=True),
    Operation("translate_x", _levels(0, 150 / 331), signed=True),
    Operation("translate_y", _levels(0, 150 / 331), signed=True),
    Operation("shear_y", _levels(0, 0.3), signed=True),
    Operation("rotate", _levels(0, 30)),
    Operation("equalize", (0.0,) * 9),
    Operation("contrast", _levels(0, 0.9), signed=True),
    Operation("color", _levels(0, 0.9), signed=True),
    Operation("solarize", _levels(256, 0)),
    Operation("brightness", _levels(0, 0.9), signed=True),
)
KINDS = ("identity", *(operation.kind for operation in OPERATIONS))
PROBABILITY = 0.5  # with which each of the two drawn operations happens


@dataclass(frozen=True)
class Plan:
    """What is to be done to n images; every array has one row an image.

    Attributes:
        flip: (n,) bool, mirror left and right.
        hole: (n, 4) int: left, top, right, bottom (right and bottom included, and past the image's edge where it is
            cut off), all -1 for none.
        colour: (n, 3) uint8, what the hole is filled with.
        kind: (n, SLOTS) index into KINDS; identity where the operation does not happen.
        value: (n, SLOTS) float, signed.
        centre: (n, SLOTS, 2) int: x and y of the cutout operation's centre.
    """

    flip: np.ndarray
    hole: np.ndarray
    colour: np.ndarray
    kind: np.ndarray
    value: np.ndarray
    centre: np.ndarray


def draw(uniforms: np.ndarray, size: tuple[int, int], cutout: float, flip: float = 0.5) -> Plan:
    """Turn random numbers into plans for strong views.

    Args:
        uniforms: (n, COLUMNS) in [0, 1).
        size: height and width of the images in pixels.
        cutout: side of the hole over the side of the image; 0 for none (docs/methods.md 2.4).
        flip: probability of mirroring.
    """
    n = len(uniforms)
    height, width = size
    hole, colour = np.full((n, 4), -1, dtype=np.int64), np.zeros((n, 3), dtype=np.uint8)
    if cutout > 0:
        hole = _holes(uniforms[:, 2:4], size, cutout)
        digits = np.floor(uniforms[:, 1] * 2**24).astype(np.int64)
        colour = np.stack([digits >> 16, digits >> 8 & 255, digits & 255], axis=1).astype(np.uint8)
    kind = np.zeros((n, SLOTS), dtype=np.int64)
    value = np.zeros((n, SLOTS))
    centre = np.zeros((n, SLOTS, 2), dtype=np.int64)
    for slot in range(SLOTS):
        choice, x, y = uniforms[:, 4 + 3 * slot : 7 + 3 * slot].T
        kind[:, slot], value[:, slot] = _choose(choice)
        centre[:, slot, 0] = x * width
        centre[:, slot, 1] = y * height
    return Plan(uniforms[:, 0] < flip, hole, colour, kind, value, centre)


def _choose(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Operation, level, sign and whether it happens, all from one number: 53 bits are plenty for the 9 needed."""
    values = np.array([operation.values for operation in OPERATIONS])
    signed = np.array([operation.signed for operation in OPERATIONS])
    operation, u = _digit(u, len(OPERATIONS))
    level, u = _digit(u, values.shape[1])
    negative, u = _digit(u, 2)
    happens = u < PROBABILITY
    value = values[operation, level] * np.where(signed[operation] & (negative == 1), -1.0, 1.0)
    return np.where(happens, operation + 1, 0), np.where(happens, value, 0.0)


def _digit(u: np.ndarray, base: int) -> tuple[np.ndarray, np.ndarray]:
    """The first digit of u in `base`, and what is left, again uniform on [0, 1)."""
    scaled = u * base
    digit = np.floor(scaled).astype(np.int64)
    return digit, scaled - digit


def _holes(u: np.ndarray, size: tuple[int, int], cutout: float) -> np.ndarray:
    """Boxes of the published Cutout, (n, 4).

    Side int(cutout * side + 0.5), centre a uniform pixel, corners at centre -+ half a side cut at the image's edge. The
    published code draws them as a rectangle whose last row and column belong to it, so 112 means up to 113 pixels.
    """
    height, width = size
    half_x, half_y = int(cutout * width + 0.5) // 2, int(cutout * height + 0.5) // 2
    x, y = np.floor(u[:, 0] * width).astype(np.int64), np.floor(u[:, 1] * height).astype(np.int64)
    left, right = np.clip(x - half_x, 0, width), np.clip(x + half_x, 0, width)
    top, bottom = np.clip(y - half_y, 0, height), np.clip(y + half_y, 0, height)
    return np.stack([left, top, right, bottom], axis=1)


def affine(kind: str, value: float, size: tuple[int, int]) -> tuple[float, float, float, float, float, float]:
    """The map (a, b, c, d, e, f) from a pixel of the result to one of the source: x' = a x + b y + c, y' = d x + e y + f.

    Args:
        kind: shear_x, shear_y, translate_x, translate_y or rotate.
        value: slope, share of the side, or degrees (anticlockwise).
        size: height and width in pixels.
    """
    height, width = size
    if kind == "shear_x":
        return (1.0, value, 0.0, 0.0, 1.0, 0.0)
    if kind == "shear_y":
        return (1.0, 0.0, 0.0, value, 1.0, 0.0)
    if kind in ("translate_x", "translate_y"):
        shift = value * (width if kind == "translate_x" else height)
        return (1.0, 0.0, shift, 0.0, 1.0, 0.0) if kind == "translate_x" else (1.0, 0.0, 0.0, 0.0, 1.0, shift)
    assert kind == "rotate", kind
    angle = -np.deg2rad(value)
    cos, sin = round(float(np.cos(angle)), 15), round(float(np.sin(angle)), 15)
    x, y = width / 2, height / 2
    return (cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y)
