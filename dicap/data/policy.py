"""What the strong view does to an image: the table of RandAugment's operations, and drawing from it.

Drawing is apart from doing: `draw` turns uniform random numbers into a `Plan`, which `dicap.data.augment` carries out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

SLOTS = 2  # operations applied one after the other
COLUMNS = 4 + 3 * SLOTS  # random numbers of one view: flip, colour and centre of the hole; per slot: choice, centre
LEVELS = 9


def _levels(first: float, last: float) -> tuple[float, ...]:
    """Levels 1 to 9 of ten equally spaced ones; level 0 is never drawn."""
    return tuple(float(value) for value in np.linspace(first, last, LEVELS + 1)[1:])


# PyPI randaugment 1.0.2, which the published code imports (docs/methods.md 2.4): 15 operations x 9 levels, all equally likely,
# ordered pairs. What an operation is given, per level: shear as a slope, translation as a share of the side, rotation in degrees
# (one direction only), enhancement as a distance from factor 1, bits, threshold, or pixels.
OPERATIONS: dict[str, tuple[float, ...]] = {
    "invert": (0.0,) * LEVELS,
    "cutout": tuple(float(round(v)) for v in _levels(0, 20)),
    "sharpness": _levels(0, 0.9),
    "autocontrast": (0.0,) * LEVELS,
    "posterize": tuple(float(round(v)) for v in _levels(8, 4)),
    "shear_x": _levels(0, 0.3),
    "translate_x": _levels(0, 150 / 331),
    "translate_y": _levels(0, 150 / 331),
    "shear_y": _levels(0, 0.3),
    "rotate": _levels(0, 30),
    "equalize": (0.0,) * LEVELS,
    "contrast": _levels(0, 0.9),
    "color": _levels(0, 0.9),
    "solarize": _levels(256, 0),
    "brightness": _levels(0, 0.9),
}
KINDS = tuple(OPERATIONS)
ENHANCEMENTS = ("sharpness", "contrast", "color", "brightness")
SIGNED = (*ENHANCEMENTS, "shear_x", "shear_y", "translate_x", "translate_y")  # the sign is drawn too, both equally likely
PROBABILITY = 0.5  # with which each of the two drawn operations happens


class Plan(NamedTuple):
    """What is to be done to an image.

    Attributes:
        flip: mirror left and right.
        hole: left, top, right, bottom (right and bottom included, and past the image's edge where it is cut off), or None.
        colour: what the hole is filled with.
        operations: kind, signed value, and centre (x, y) of the cutout operation, of each that happens.
    """

    flip: bool
    hole: tuple[int, int, int, int] | None
    colour: tuple[int, int, int]
    operations: list[tuple[str, float, tuple[int, int]]]


def draw(uniforms: Sequence[float], size: tuple[int, int], cutout: float, flip: float = 0.5) -> Plan:
    """Turn random numbers into the plan for one strong view.

    Args:
        uniforms: COLUMNS numbers in [0, 1).
        size: height and width of the image in pixels.
        cutout: side of the published Cutout's hole over the side of the image; 0 for none (docs/methods.md 2.4). The published
            code draws it as a rectangle whose last row and column belong to it, so 112 means up to 113 pixels.
    """
    height, width = size
    mirrored, shade, x, y = uniforms[:4]
    half = int(cutout * width + 0.5) // 2, int(cutout * height + 0.5) // 2
    hole = box((int(x * width), int(y * height)), half, size) if cutout > 0 else None
    digits = int(shade * 2**24)
    operations = []
    for slot in range(4, COLUMNS, 3):
        choice, x, y = uniforms[slot : slot + 3]
        if (chosen := _choose(choice)) is not None:
            operations.append((*chosen, (int(x * width), int(y * height))))
    return Plan(mirrored < flip, hole, (digits >> 16, digits >> 8 & 255, digits & 255), operations)


def _choose(u: float) -> tuple[str, float] | None:
    """Operation and signed value, or None where it does not happen, from one number: 53 bits are plenty for the 9 needed.

    Each digit of u leaves a number that is again uniform on [0, 1).
    """
    operation, u = divmod(u * len(OPERATIONS), 1)
    level, u = divmod(u * LEVELS, 1)
    negative, u = divmod(u * 2, 1)
    if u >= PROBABILITY:
        return None
    kind = KINDS[int(operation)]
    value = OPERATIONS[kind][int(level)]
    return kind, -value if negative and kind in SIGNED else value


def box(centre: tuple[int, int], half: tuple[int, int], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of the box that reaches half a side from its centre, cut at the image's edge.

    Args:
        centre, half: x and y, in pixels.
        size: height and width of the image.
    """
    (x, y), (half_x, half_y), (height, width) = centre, half, size
    return max(0, x - half_x), max(0, y - half_y), min(width, x + half_x), min(height, y + half_y)
