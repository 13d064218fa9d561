"""Views made in batches of tensors against Pillow's, operation by operation and draw by draw.

Tolerance: equal, except for the colour operation and what follows it (at most one level in under 0.2 % of the values).
"""

import numpy as np
import pytest
import torch
from PIL import Image

from data.raw import photo
from dicap.data import augment, device_views
from dicap.data.augment import View
from dicap.data.policy import COLUMNS, KINDS, POLICIES, Plan, draw

RNG = np.random.default_rng(5)
IMAGES = np.stack(
    [
        np.asarray(photo(1, 48, 48)),
        RNG.integers(0, 256, (48, 48, 3), dtype=np.uint8),  # noise: every level, steep edges
        np.asarray(photo(2, 48, 48)) // 4 + 30,  # low contrast
        np.full((48, 48, 3), 77, np.uint8),  # one level: nothing to stretch or equalise
        np.tile(np.array([0, 255], np.uint8).repeat(24)[None, :, None], (48, 1, 3)),  # two levels
    ]
).astype(np.uint8)


def tensor(images):
    return torch.from_numpy(images.copy()).permute(0, 3, 1, 2).contiguous()


def single(kind, value, centre, n=5):
    """A plan of one operation for every image."""
    return Plan(
        flip=np.zeros(n, bool),
        hole=np.full((n, 4), -1),
        colour=np.zeros((n, 3), np.uint8),
        kind=np.array([[KINDS.index(kind), 0]] * n),
        value=np.array([[value, 0.0]] * n),
        centre=np.array([[centre, (0, 0)]] * n),
    )


def by_pillow(images, plan, policy):
    images = images.copy()
    for i in range(len(images)):
        augment.apply_plan(images[i], plan, i, policy)
    return images


OPERATIONS = [(name, operation) for name, policy in POLICIES.items() for operation in policy.operations]


@pytest.mark.parametrize(("name", "operation"), OPERATIONS, ids=lambda value: getattr(value, "kind", value))
def test_operation_agrees_with_pillow_at_every_level(name, operation):
    policy = POLICIES[name]
    tolerance = 1 if operation.kind == "color" else 0
    for value in sorted(set(operation.values)):
        for sign in (1, -1) if operation.signed else (1,):
            for centre in ((0, 0), (20, 40), (47, 3)) if operation.kind == "cutout" else ((0, 0),):
                plan = single(operation.kind, sign * value, centre)
                ours = device_views.apply_plan(tensor(IMAGES), plan, policy).permute(0, 2, 3, 1).numpy()
                difference = np.abs(ours.astype(int) - by_pillow(IMAGES, plan, policy))
                assert difference.max() <= tolerance, (value * sign, centre)
                assert (difference > 0).mean() < 0.002


@pytest.mark.parametrize("size", [(33, 48), (48, 33)])
@pytest.mark.parametrize("kind", ["shear_x", "shear_y", "translate_x", "translate_y", "rotate"])
def test_geometry_agrees_on_images_that_are_not_square(kind, size):
    images = RNG.integers(0, 256, (3, *size, 3), dtype=np.uint8)
    for value in (0.05, 0.3, -0.3) if kind != "rotate" else (3.3, 30.0):
        plan = single(kind, value, (0, 0), 3)
        ours = device_views.apply_plan(tensor(images), plan, POLICIES["published"]).permute(0, 2, 3, 1).numpy()
        assert (ours == by_pillow(images, plan, POLICIES["published"])).all()


@pytest.mark.parametrize(
    "view",
    [View("test"), View("weak"), View("strong"), View("strong", cutout=0.5), View("strong", policy="torchvision"),
     View("test", tiles=2), View("weak", tiles=2), View("strong", cutout=0.5, tiles=2)],
    ids=str,
)  # fmt: skip
def test_whole_views_agree_draw_by_draw(view):
    n = 60
    images = np.concatenate([IMAGES] * (n // len(IMAGES)))
    uniforms = np.random.default_rng(1).random((n, view.parts, COLUMNS))
    rows = np.random.default_rng(2).permutation(n)
    pillow = augment.render_batch(images[rows].copy(), view, uniforms)
    ours = device_views.render_on_device(torch.from_numpy(images), torch.from_numpy(rows), view, uniforms)
    assert ours.is_contiguous() and ours.dtype == torch.uint8
    difference = np.abs(np.moveaxis(ours.numpy(), -3, -1).astype(int) - pillow)
    assert difference.max() <= (2 if view.name == "strong" else 0)
    assert (difference > 0).mean() < 0.002


def test_the_resident_set_is_not_changed():
    whole = torch.from_numpy(IMAGES.copy())
    for seed in range(5):
        uniforms = np.random.default_rng(seed).random((5, 1, COLUMNS))
        device_views.render_on_device(whole, torch.arange(5), View("strong", cutout=0.5), uniforms)
    assert (whole.numpy() == IMAGES).all()


def test_a_batch_of_none_is_fine():
    uniforms = np.zeros((0, 1, COLUMNS))
    none = torch.zeros(0, dtype=torch.int64)
    views = device_views.render_on_device(torch.from_numpy(IMAGES), none, View("strong", 0.5), uniforms)
    assert views.shape == (0, 3, 48, 48)


def test_frequencies_of_10000_drawn_views_match_the_published_policy_on_both_paths():
    # What was drawn is read off the result: each operation leaves its own mark on this image, by either path.
    image = np.asarray(Image.fromarray(IMAGES[0]).resize((12, 12)))
    n = 10_000
    uniforms = np.random.default_rng(9).random((n, 1, COLUMNS))
    plan = draw(uniforms[:, 0], POLICIES["published"], (12, 12), 0.0)
    batch = np.broadcast_to(image, (n, 12, 12, 3)).copy()
    pillow = augment.render_batch(batch.copy(), View("strong"), uniforms)
    ours = device_views.render_on_device(torch.from_numpy(batch), torch.arange(n), View("strong"), uniforms)
    ours = ours.permute(0, 2, 3, 1).numpy()
    assert (np.abs(pillow.astype(int) - ours) <= 2).all()
    for views in (pillow, ours):
        untouched = ((views == image).all((1, 2, 3)) | (views == image[:, ::-1]).all((1, 2, 3))).mean()
        # a quarter fires nothing; some operations leave the image alone (8 bits, autocontrast of a full range, small cutouts)
        assert 0.25 <= untouched < 0.40
    assert np.bincount(plan.kind[:, 0], minlength=16)[1:] == pytest.approx(n / 30, abs=85)
