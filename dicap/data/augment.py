"""Weak and strong views of an image, with Pillow (docs/methods.md 2.4).

Images in a converted set are already resized. The remaining steps of the published pipeline are
weak: flip; strong: flip, Cutout (main stage), RandAugment; test: none.
"""

from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps

from dicap.data.policy import COLUMNS, ENHANCEMENTS, Plan, box, draw

CUTOUT_COLOUR = (125, 122, 113)  # of RandAugment's own small cutout
FILL = (128, 128, 128)  # colour of the area that a geometric operation uncovers


@dataclass(frozen=True)
class View:
    """A kind of augmentation.

    Attributes:
        name: test (as stored), weak (mirrored or not) or strong.
        cutout: side of the hole divided by the side of the image, in the strong view; 0: no hole.
        flip: probability of mirroring, in the weak and the strong view.
        tiles: 2 for D2L's 2 x 2 grid (docs/methods.md 4.9): each tile is augmented separately and resized to the image's size.
    """

    name: str
    cutout: float = 0.0
    tiles: int = 1
    flip: float = 0.5

    def __post_init__(self) -> None:
        assert self.name in ("test", "weak", "strong"), self.name

    @property
    def parts(self) -> int:
        """Number of output images per image."""
        return self.tiles**2


def render_batch(images: np.ndarray, view: View, uniforms: np.ndarray) -> np.ndarray:
    """Views of several images.

    Args:
        images: (B, H, W, 3) uint8; may be overwritten.
        uniforms: (B, parts, COLUMNS) random numbers in [0, 1).

    Returns:
        (B, H, W, 3) uint8, or (B, 4, H, W, 3) with tiles.
    """
    if view.tiles > 1:
        images = cut_tiles(images, view.tiles)  # (B, 4, H, W, 3)
    flat = images.reshape(-1, *images.shape[-3:])
    for image, numbers in zip(flat, uniforms.reshape(-1, COLUMNS).tolist(), strict=True):
        if view.name == "strong":
            _apply(draw(numbers, image.shape[:2], view.cutout, view.flip), image)
        elif view.name == "weak" and numbers[0] < view.flip:
            mirror(image)
    return flat.reshape(images.shape)


def cut_tiles(images: np.ndarray, grid: int) -> np.ndarray:
    """Cut (B, H, W, 3) images into a grid and resize each tile to H x W (bilinear): (B, grid**2, H, W, 3).

    D2L cuts a bicubically resized image; this function cuts the stored image, which was resized bilinearly. Flip and resize
    commute, so resizing first agrees with the published order.
    """
    b, height, width, _ = images.shape
    edges_y = [height * i // grid for i in range(grid + 1)]
    edges_x = [width * i // grid for i in range(grid + 1)]
    out = np.empty((b, grid**2, height, width, 3), dtype=np.uint8)
    for i, image in enumerate(images):
        whole = Image.fromarray(image)
        for part in range(grid**2):
            row, column = divmod(part, grid)
            area = (edges_x[column], edges_y[row], edges_x[column + 1], edges_y[row + 1])
            out[i, part] = np.asarray(whole.crop(area).resize((width, height), Image.Resampling.BILINEAR))
    return out


def _apply(plan: Plan, image: np.ndarray) -> None:
    """Turn `image`, (H, W, 3) uint8, into its strong view, in place."""
    if plan.flip:
        mirror(image)
    if plan.hole is not None:
        left, top, right, bottom = plan.hole
        image[top : bottom + 1, left : right + 1] = plan.colour
    if not plan.operations:  # a quarter of the published views
        return
    picture = Image.fromarray(image)
    for operation in plan.operations:
        picture = operate(picture, *operation)
    image[:] = np.asarray(picture)


def mirror(image: np.ndarray) -> None:
    """Mirror (H, W, 3) left to right in place, with torch, which is six times as fast as NumPy."""
    pixels = torch.from_numpy(image)
    pixels.copy_(pixels.flip(1))


def operate(picture: Image.Image, kind: str, value: float, centre: tuple[int, int]) -> Image.Image:
    """Apply one operation to an RGB picture."""
    height, width = size = picture.height, picture.width
    if kind in ENHANCEMENTS:
        return getattr(ImageEnhance, kind.capitalize())(picture).enhance(1 + value)
    if kind == "posterize":
        return ImageOps.posterize(picture, int(value))
    if kind == "solarize":
        return ImageOps.solarize(picture, value)  # type: ignore[arg-type]  # thresholds between integers are meant
    if kind in ("autocontrast", "equalize", "invert"):
        return getattr(ImageOps, kind)(picture)
    if kind == "cutout":
        half = int(value) // 2
        picture = picture.copy()
        picture.paste(CUTOUT_COLOUR, box(centre, (half, half), size))  # without the box's right column and bottom row
        return picture
    if kind == "rotate":
        return picture.rotate(value, fillcolor=FILL)
    # (a, b, c, d, e, f) maps a pixel of the result to a pixel of the source: x' = a x + b y + c, y' = d x + e y + f.
    numbers = {
        "shear_x": (1.0, value, 0.0, 0.0, 1.0, 0.0),
        "shear_y": (1.0, 0.0, 0.0, value, 1.0, 0.0),
        "translate_x": (1.0, 0.0, value * width, 0.0, 1.0, 0.0),
        "translate_y": (1.0, 0.0, 0.0, 0.0, 1.0, value * height),
    }[kind]
    filter_ = Image.Resampling.BICUBIC if kind.startswith("shear") else Image.Resampling.NEAREST
    return picture.transform(picture.size, Image.Transform.AFFINE, numbers, filter_, fillcolor=FILL)
