"""RandAugment's operations, and drawing the operations of a strong view.

`draw` turns uniform random numbers into a `Plan`, which `dicap.data.augment` applies to an image.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

SLOTS = 2  # operations applied one after the other
COLUMNS = 4 + 3 * SLOTS  # random numbers of one view: flip, colour and centre of the hole; per slot: choice, centre
LEVELS = 9


def _levels(first: float, last: float) -> tuple[float, ...]:
    """Levels 1 to 9 of ten equally spaced levels; level 0 is never drawn."""
    return tuple(float(value) for value in np.linspace(first, last, LEVELS + 1)[1:])


# The published code imports randaugment 1.0.2 from PyPI (docs/methods.md 2.4): 15 operations x 9 levels, all equally likely,
# ordered pairs. The values per level are a slope for shear, a share of the side for translation, degrees for rotation (in one
# direction only), the distance from factor 1 for enhancements, and else bits, a threshold, or pixels.
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
PROBABILITY = 0.5  # of applying each of the two drawn operations


class Plan(NamedTuple):
    """The operations of one strong view.

    Attributes:
        flip: mirror left and right.
        hole: left, top, right, bottom (right and bottom are inside the hole and may be just outside the image), or None.
        colour: colour of the hole.
        operations: kind, signed value, and centre (x, y) for cutout, of each operation to apply.
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
        cutout: side of Cutout's hole divided by the side of the image; 0: no hole (docs/methods.md 2.4). The published code
            includes the rectangle's last row and column, so a hole of 112 has up to 113 pixels per side.
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
    """An operation and its signed value, or None to apply none, from one uniform number (9 of its 53 bits would suffice).

    After each division the remainder is again uniform on [0, 1).
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
    """Left, top, right and bottom of a box, clipped at the image's edge.

    Args:
        centre, half: x and y of the centre, and half the sides, in pixels.
        size: height and width of the image.
    """
    (x, y), (half_x, half_y), (height, width) = centre, half, size
    return max(0, x - half_x), max(0, y - half_y), min(width, x + half_x), min(height, y + half_y)
