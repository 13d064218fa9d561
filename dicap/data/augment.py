"""Weak and strong views of an image, by Pillow (docs/methods.md 2.4).

Images in a converted set are already resized, so what is left of the published pipeline is
weak: flip; strong: flip, Cutout (main stage), RandAugment; test: nothing.
"""

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps

from dicap.data.policy import COLUMNS, KINDS, SLOTS, Plan, affine, draw

CUTOUT_COLOUR = (125, 122, 113)  # of RandAugment's own small cutout
FILL = (128, 128, 128)  # what a geometric operation uncovers


@dataclass(frozen=True)
class View:
    """A way of looking at images.

    Attributes:
        name: test (as stored), weak (mirrored or not) or strong.
        cutout: side of the hole over the side of the image, in the strong view; 0 for none.
        flip: probability of mirroring, in the weak and the strong view.
        tiles: 2 for D2L's 2 x 2 grid (docs/methods.md 4.9): each tile is seen on its own and resized to the image's size.
    """

    name: str
    cutout: float = 0.0
    tiles: int = 1
    flip: float = 0.5

    def __post_init__(self) -> None:
        assert self.name in ("test", "weak", "strong"), self.name

    @property
    def parts(self) -> int:
        """Images made of one image."""
        return self.tiles**2


def render_batch(images: np.ndarray, view: View, uniforms: np.ndarray) -> np.ndarray:
    """Views of several images.

    Args:
        images: (B, H, W, 3) uint8; may be overwritten.
        view: how to look at them.
        uniforms: (B, parts, COLUMNS) in [0, 1), the randomness.

    Returns:
        (B, H, W, 3) uint8, or (B, 4, H, W, 3) with tiles.
    """
    if view.tiles == 1:
        return _render(images, view, uniforms[:, 0])
    tiles = cut_tiles(images, view.tiles)  # (B, 4, H, W, 3)
    flat = tiles.reshape(-1, *tiles.shape[2:])
    return _render(flat, view, uniforms.reshape(-1, COLUMNS)).reshape(tiles.shape)


def cut_tiles(images: np.ndarray, grid: int) -> np.ndarray:
    """Cut (B, H, W, 3) images into a grid and resize each tile to H x W (bilinear): (B, grid**2, H, W, 3).

    D2L cuts an image that was resized by a bicubic filter; here it is the stored, bilinear one. Flip and resize
    commute, so resizing first is the published order.
    """
    b, height, width, _ = images.shape
    edges_y = [height * i // grid for i in range(grid + 1)]
    edges_x = [width * i // grid for i in range(grid + 1)]
    out = np.empty((b, grid**2, height, width, 3), dtype=np.uint8)
    for i, image in enumerate(images):
        whole = Image.fromarray(image)
        for part in range(grid**2):
            row, column = divmod(part, grid)
            box = (edges_x[column], edges_y[row], edges_x[column + 1], edges_y[row + 1])
            out[i, part] = np.asarray(whole.crop(box).resize((width, height), Image.Resampling.BILINEAR))
    return out


def _render(images: np.ndarray, view: View, uniforms: np.ndarray) -> np.ndarray:
    if view.name == "test":
        return images
    if view.name == "weak":
        for i in np.flatnonzero(uniforms[:, 0] < view.flip):
            mirror(images[i])
        return images
    plan = draw(uniforms, images.shape[1:3], view.cutout, view.flip)
    for i in range(len(images)):
        apply_plan(images[i], plan, i)
    return images


def apply_plan(image: np.ndarray, plan: Plan, i: int) -> None:
    """Turn `image`, (H, W, 3) uint8, into its strong view by row `i` of the plan, in place."""
    if plan.flip[i]:
        mirror(image)
    left, top, right, bottom = plan.hole[i]
    if left >= 0:
        image[top : bottom + 1, left : right + 1] = plan.colour[i]
    if not plan.kind[i].any():  # a quarter of the published views has neither operation
        return
    picture = Image.fromarray(image)
    for slot in range(SLOTS):
        kind = KINDS[plan.kind[i, slot]]
        if kind != "identity":
            picture = operate(picture, kind, float(plan.value[i, slot]), tuple(plan.centre[i, slot].tolist()))
    image[:] = np.asarray(picture)


def mirror(image: np.ndarray) -> None:
    """Swap left and right of (H, W, 3) in place. Torch does it six times quicker than NumPy."""
    pixels = torch.from_numpy(image)
    pixels.copy_(pixels.flip(1))


def operate(picture: Image.Image, kind: str, value: float, centre: tuple[int, int]) -> Image.Image:
    """Carry out one operation on an RGB picture."""
    if kind in _ENHANCERS:
        return _ENHANCERS[kind](picture).enhance(1 + value)
    if kind == "posterize":
        return ImageOps.posterize(picture, int(value))
    if kind == "solarize":
        return ImageOps.solarize(picture, value)  # type: ignore[arg-type]  # thresholds between integers are meant
    if kind in ("autocontrast", "equalize", "invert"):
        return getattr(ImageOps, kind)(picture)
    if kind == "cutout":
        picture = picture.copy()
        picture.paste(CUTOUT_COLOUR, small_hole(centre, int(value), picture.size))
        return picture
    return picture.transform(
        picture.size,
        Image.Transform.AFFINE,
        affine(kind, value, (picture.height, picture.width)),
        Image.Resampling.BICUBIC if kind in ("shear_x", "shear_y") else Image.Resampling.NEAREST,
        fillcolor=FILL,
    )


def small_hole(centre: tuple[int, int], pixels: int, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """Box of RandAugment's own cutout: left, top, right, bottom; right and bottom do not belong to it."""
    (x, y), half, (width, height) = centre, pixels // 2, size
    return max(0, x - half), max(0, y - half), min(width, x + half), min(height, y + half)


_ENHANCERS = {
    "color": ImageEnhance.Color,
    "contrast": ImageEnhance.Contrast,
    "brightness": ImageEnhance.Brightness,
    "sharpness": ImageEnhance.Sharpness,
}
