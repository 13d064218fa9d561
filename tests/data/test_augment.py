"""Views by Pillow against the published pipeline written out."""

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

from data.raw import photo
from dicap.data.augment import CUTOUT_COLOUR, View, cut_tiles, operate, render_batch
from dicap.data.policy import COLUMNS, OPERATIONS, SIGNED, draw

PICTURE = photo(3, 64, 64)


def published(picture, kind, value, centre):
    """The published operations, straight from their description (docs/methods.md 2.4)."""
    grey = (128, 128, 128)
    affine, bicubic = Image.Transform.AFFINE, Image.Resampling.BICUBIC
    width, height = picture.size
    if kind == "rotate":
        turned = picture.convert("RGBA").rotate(value)
        return Image.composite(turned, Image.new("RGBA", turned.size, (128,) * 4), turned).convert("RGB")
    if kind == "cutout":
        picture, half = picture.copy(), int(value) // 2
        for x in range(max(0, centre[0] - half), min(width, centre[0] + half)):
            for y in range(max(0, centre[1] - half), min(height, centre[1] + half)):
                picture.putpixel((x, y), CUTOUT_COLOUR)
        return picture
    return {
        "shear_x": lambda: picture.transform(picture.size, affine, (1, value, 0, 0, 1, 0), bicubic, fillcolor=grey),
        "shear_y": lambda: picture.transform(picture.size, affine, (1, 0, 0, value, 1, 0), bicubic, fillcolor=grey),
        "translate_x": lambda: picture.transform(picture.size, affine, (1, 0, value * width, 0, 1, 0), fillcolor=grey),
        "translate_y": lambda: picture.transform(picture.size, affine, (1, 0, 0, 0, 1, value * height), fillcolor=grey),
        "color": lambda: ImageEnhance.Color(picture).enhance(1 + value),
        "contrast": lambda: ImageEnhance.Contrast(picture).enhance(1 + value),
        "brightness": lambda: ImageEnhance.Brightness(picture).enhance(1 + value),
        "sharpness": lambda: ImageEnhance.Sharpness(picture).enhance(1 + value),
        "posterize": lambda: ImageOps.posterize(picture, int(value)),
        "solarize": lambda: ImageOps.solarize(picture, value),
        "autocontrast": lambda: ImageOps.autocontrast(picture),
        "equalize": lambda: ImageOps.equalize(picture),
        "invert": lambda: ImageOps.invert(picture),
    }[kind]()


@pytest.mark.parametrize("kind", OPERATIONS)
def test_each_operation_is_the_published_one_at_every_level(kind):
    for value in OPERATIONS[kind]:
        for signed in (value, -value) if kind in SIGNED else (value,):
            ours, theirs = (carry_out(PICTURE, kind, signed, (60, 5)) for carry_out in (operate, published))
            assert ours.tobytes() == theirs.tobytes(), value


def test_a_strong_view_is_flip_then_hole_then_the_two_operations():
    uniforms = np.random.default_rng(11).random((60, 1, COLUMNS))
    views = render_batch(np.stack([np.asarray(PICTURE)] * 60), View("strong", cutout=0.5), uniforms)
    for view, numbers in zip(views, uniforms[:, 0].tolist(), strict=True):
        plan = draw(numbers, (64, 64), 0.5)
        expected = PICTURE.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if plan.flip else PICTURE.copy()
        ImageDraw.Draw(expected).rectangle(plan.hole, fill=plan.colour)
        for operation in plan.operations:
            expected = published(expected, *operation)
        assert (view == np.asarray(expected)).all()


def render(image, view, rng):
    return render_batch(image[None].copy(), view, rng.random((1, view.parts, COLUMNS)))[0]


def test_weak_view_mirrors_half_and_nothing_else():
    image = np.asarray(PICTURE)
    seen = {render(image, View("weak"), np.random.default_rng(seed)).tobytes() for seed in range(30)}
    assert seen == {image.tobytes(), np.ascontiguousarray(image[:, ::-1]).tobytes()}


def test_tiles_are_quarters_resized_each_with_its_own_draw():
    image = np.asarray(PICTURE)
    tiles = cut_tiles(image[None], 2)[0]
    expected = PICTURE.crop((32, 0, 64, 32)).resize((64, 64), Image.Resampling.BILINEAR)
    assert tiles.shape == (4, 64, 64, 3) and (tiles[1] == np.asarray(expected)).all()
    views = [render(image, View("weak", tiles=2), np.random.default_rng(seed)) for seed in range(20)]
    flips = {tuple(bool((view[i] != tiles[i]).any()) for i in range(4)) for view in views}
    assert len(flips) > 4
