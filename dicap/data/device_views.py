"""Weak and strong views made in batches where the images lie, for machines with an accelerator and few cores.

The plans are those of the Pillow path (`dicap.data.policy.draw`), so with the same random numbers the two paths give the
same views: exactly, but for the rounding of colour blends, where a pixel in a hundred thousand differs by one level. Images
are grouped by operation: all geometric ones share one resampling, all that map levels to levels share one table look-up.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from dicap.data.augment import CUTOUT_COLOUR, View, small_hole
from dicap.data.policy import COLUMNS, GEOMETRIC, KINDS, SLOTS, Plan, Policy, affine, draw, policy_named

LEVELWISE = ("brightness", "contrast", "posterize", "solarize", "autocontrast", "equalize", "invert")


def render_on_device(whole: Tensor, rows: Tensor, view: View, uniforms: np.ndarray) -> Tensor:
    """Views of the images at some rows.

    Args:
        whole: (N, H, W, 3) uint8, the resident set.
        rows: (B,) int64, on any device.
        view: how to look at them.
        uniforms: (B, parts, COLUMNS) in [0, 1), as `dicap.data.augment.render_batch` takes them.

    Returns:
        (B, 3, H, W) uint8 where `whole` lies, contiguous, or (B, 4, 3, H, W) with tiles.
    """
    picked = torch.index_select(whole, 0, rows.to(whole.device, non_blocking=True))
    images = picked.permute(0, 3, 1, 2).contiguous()  # (B, 3, H, W)
    if view.tiles == 1:
        return _render(images, view, uniforms[:, 0])
    tiles = cut_tiles(images, view.tiles)  # (B, 4, 3, H, W)
    flat = tiles.flatten(0, 1)
    return _render(flat, view, uniforms.reshape(-1, COLUMNS)).reshape(tiles.shape)


def cut_tiles(images: Tensor, grid: int) -> Tensor:
    """Cut (B, 3, H, W) into a grid and resize each tile to H x W (bilinear): (B, grid**2, 3, H, W)."""
    height, width = images.shape[2:]
    tiles = []
    for part in range(grid**2):
        row, column = divmod(part, grid)
        top, bottom = height * row // grid, height * (row + 1) // grid
        left, right = width * column // grid, width * (column + 1) // grid
        tile = images[:, :, top:bottom, left:right].float()
        # Pillow resizes the rows, rounds, and then resizes the columns.
        tile = _round_half_up(functional.interpolate(tile, (bottom - top, width), mode="bilinear"))
        tiles.append(_round_half_up(functional.interpolate(tile, (height, width), mode="bilinear")).to(torch.uint8))
    return torch.stack(tiles, 1)


def _round_half_up(values: Tensor) -> Tensor:
    return values.add_(0.5).floor_()


def apply_plan(images: Tensor, plan: Plan, policy: Policy) -> Tensor:
    """Strong views of (B, 3, H, W) uint8 images by a plan with B rows; overwrites `images` and returns it."""
    flipped = _where(plan.flip, images)
    if len(flipped):
        images[flipped] = images[flipped].flip(3)
    _fill_holes(images, plan)
    for slot in range(SLOTS):
        kinds = plan.kind[:, slot]
        _resample(images, plan, slot, policy)
        _look_up(images, plan, slot)
        for kind, operation in (("color", _color), ("sharpness", _sharpness)):
            chosen = kinds == KINDS.index(kind)
            index = _where(chosen, images)
            if len(index):
                images[index] = operation(images[index], _column(plan.value[chosen, slot], images))
        _fill_small_holes(images, plan, slot)
    return images


def _render(images: Tensor, view: View, uniforms: np.ndarray) -> Tensor:
    if view.name == "test":
        return images
    if view.name == "weak":
        flipped = _where(uniforms[:, 0] < view.flip, images)
        if len(flipped):
            images[flipped] = images[flipped].flip(3)
        return images
    policy = policy_named(view.policy)
    height, width = images.shape[2:]
    return apply_plan(images, draw(uniforms, policy, (height, width), view.cutout, view.flip), policy)


def _where(chosen: np.ndarray, images: Tensor) -> Tensor:
    """Positions of the chosen images, on their device. Plans stay on the processor: nothing waits for the device."""
    return torch.from_numpy(np.flatnonzero(chosen)).to(images.device, non_blocking=True)


def _column(values: np.ndarray, images: Tensor) -> Tensor:
    """One float32 per image, (b, 1, 1, 1). Rounded to float32 as Pillow rounds its factors."""
    return torch.from_numpy(values.astype(np.float32)).to(images.device, non_blocking=True).view(-1, 1, 1, 1)


def _fill_holes(images: Tensor, plan: Plan) -> None:
    chosen = plan.hole[:, 0] >= 0
    index = _where(chosen, images)
    if not len(index):
        return
    box = plan.hole[chosen] + np.array([0, 0, 1, 1])  # right and bottom belong to the hole
    colour = torch.from_numpy(plan.colour[chosen]).to(images.device, non_blocking=True)
    images[index] = torch.where(_inside(box, images), colour[:, :, None, None], images[index])


def _fill_small_holes(images: Tensor, plan: Plan, slot: int) -> None:
    chosen = plan.kind[:, slot] == KINDS.index("cutout")
    index = _where(chosen, images)
    if not len(index):
        return
    height, width = images.shape[2:]
    boxes = [
        small_hole(tuple(centre.tolist()), int(value), (width, height))
        for centre, value in zip(plan.centre[chosen, slot], plan.value[chosen, slot], strict=True)
    ]
    colour = torch.tensor(CUTOUT_COLOUR, dtype=torch.uint8, device=images.device).view(1, 3, 1, 1)
    images[index] = torch.where(_inside(np.array(boxes), images), colour, images[index])


def _inside(box: np.ndarray, images: Tensor) -> Tensor:
    """Mask (b, 1, H, W) of boxes (b, 4): left, top, right, bottom, the latter two not included."""
    left, top, right, bottom = torch.from_numpy(box).to(images.device, non_blocking=True).view(-1, 4, 1, 1).unbind(1)
    y = torch.arange(images.shape[2], device=images.device).view(1, -1, 1)
    x = torch.arange(images.shape[3], device=images.device).view(1, 1, -1)
    return ((x >= left) & (x < right) & (y >= top) & (y < bottom)).unsqueeze(1)


def _resample(images: Tensor, plan: Plan, slot: int, policy: Policy) -> None:
    """All geometric operations of a slot in one gather.

    A bicubic shear interpolates along one axis only, so four neighbours along that axis are enough; nearest-neighbour
    operations are the case whose fraction is 0. Pillow computes the former in floating point and the latter in 1/65536 of
    a pixel, and so does this.
    """
    chosen = np.isin(plan.kind[:, slot], [KINDS.index(kind) for kind in GEOMETRIC])
    index = _where(chosen, images)
    if not len(index):
        return
    height, width = images.shape[2:]
    names = [KINDS[kind] for kind in plan.kind[chosen, slot]]
    values = plan.value[chosen, slot].tolist()
    maps = np.array([affine(name, value, (height, width), policy) for name, value in zip(names, values, strict=True)])
    smooth_x = np.array([policy.smooth_shear and name == "shear_x" for name in names])
    smooth_y = np.array([policy.smooth_shear and name == "shear_y" for name in names])

    device = images.device
    a, b, c, d, e, f = torch.from_numpy(maps).to(device, non_blocking=True).view(-1, 6, 1, 1).unbind(1)  # each (b, 1, 1)
    along_x = torch.from_numpy(smooth_x).to(device, non_blocking=True).view(-1, 1, 1)
    along_y = torch.from_numpy(smooth_y).to(device, non_blocking=True).view(-1, 1, 1)
    y = torch.arange(height, device=device, dtype=torch.float64).view(1, -1, 1)
    x = torch.arange(width, device=device, dtype=torch.float64).view(1, 1, -1)

    exact_x, exact_y = a * (x + 0.5) + b * (y + 0.5) + c, d * (x + 0.5) + e * (y + 0.5) + f  # (b, H, W)
    fixed_x = (_fixed(c + 0.5 * a + 0.5 * b) + x * _fixed(a) + y * _fixed(b)) / 65536  # integers below 2**53: no rounding
    fixed_y = (_fixed(f + 0.5 * d + 0.5 * e) + x * _fixed(d) + y * _fixed(e)) / 65536
    source_x, source_y = torch.where(along_x, exact_x, fixed_x), torch.where(along_y, exact_y, fixed_y)
    outside = (source_x < 0) | (source_x >= width) | (source_y < 0) | (source_y >= height)

    centre_x, centre_y = source_x - 0.5 * along_x, source_y - 0.5 * along_y  # bicubic taps sit on pixel centres
    base_x, base_y = centre_x.floor(), centre_y.floor()
    t = torch.where(along_x, centre_x - base_x, torch.where(along_y, centre_y - base_y, 0)).unsqueeze(1)  # (b, 1, H, W)
    flat = images[index].flatten(2)  # (b, 3, H * W)
    taps = []
    for tap in (-1, 0, 1, 2):
        tap_x = (base_x + tap * along_x).clamp_(0, width - 1).long()
        tap_y = (base_y + tap * along_y).clamp_(0, height - 1).long()
        place = (tap_y * width + tap_x).flatten(1).unsqueeze(1).expand(-1, 3, -1)
        taps.append(torch.gather(flat, 2, place).view(-1, 3, height, width).double())
    out = _cubic(t, *taps)
    fill = torch.tensor(policy.fill, dtype=torch.float64, device=device).view(1, 3, 1, 1)
    out = torch.where(outside.unsqueeze(1), fill, out)
    images[index] = _to_levels(out)


def _fixed(value: Tensor) -> Tensor:
    """Round to 1/65536, as an integer count of it."""
    return torch.floor(value * 65536 + 0.5)


def _cubic(t: Tensor, before: Tensor, left: Tensor, right: Tensor, after: Tensor) -> Tensor:
    """Cubic with a = -1 at fraction t from `left` to `right`, in Pillow's order of operations: a flat image stays flat."""
    slope = right - before
    bend = 2 * (before - left) + right - after
    twist = left - before + after - right
    return left + t * (slope + t * (bend + t * twist))


def _to_levels(values: Tensor) -> Tensor:
    """Clip to 0..255 and cut to integers, as Pillow's blending and transforms do."""
    return values.clamp_(0, 255).to(torch.uint8)


def _look_up(images: Tensor, plan: Plan, slot: int) -> None:
    """All operations that map the levels of a channel to levels: a table of 256 each, and one gather."""
    chosen = np.isin(plan.kind[:, slot], [KINDS.index(kind) for kind in LEVELWISE])
    index = _where(chosen, images)
    if not len(index):
        return
    picked = images[index]  # (b, 3, H, W)
    kinds, values = plan.kind[chosen, slot], plan.value[chosen, slot]
    table = torch.empty((len(index), 3, 256), dtype=torch.uint8, device=images.device)
    for kind in np.unique(kinds).tolist():
        members = kinds == kind
        inner = _where(members, images)
        table[inner] = _TABLES[KINDS[kind]](picked[inner], values[members])
    # Gathering wants int64 positions; one channel at a time keeps them small.
    for channel in range(3):
        levels = picked[:, channel].flatten(1).long()
        images[index, channel] = torch.gather(table[:, channel], 1, levels).view_as(picked[:, channel])


def _levels(images: Tensor) -> Tensor:
    return torch.arange(256, device=images.device).view(1, 1, 256).expand(len(images), 3, 256)


def _invert(images: Tensor, values: np.ndarray) -> Tensor:
    return (255 - _levels(images)).to(torch.uint8)


def _posterize(images: Tensor, values: np.ndarray) -> Tensor:
    masks = 256 - 2 ** (8 - values.astype(np.int64))  # the upper bits of 8
    return (_levels(images) & torch.from_numpy(masks).to(images.device).view(-1, 1, 1)).to(torch.uint8)


def _solarize(images: Tensor, values: np.ndarray) -> Tensor:
    levels = _levels(images)
    threshold = torch.from_numpy(values).to(images.device).view(-1, 1, 1)
    return torch.where(levels < threshold, levels, 255 - levels).to(torch.uint8)


def _brightness(images: Tensor, values: np.ndarray) -> Tensor:
    return _blend(torch.zeros_like(_levels(images)), _levels(images), _column(1 + values, images)[:, :, 0])


def _contrast(images: Tensor, values: np.ndarray) -> Tensor:
    # Mean of the grey version, rounded: a sum of integers, so no order of adding changes it.
    grey = _grey(images)
    mean = (grey.flatten(1).sum(1).double() / grey[0].numel() + 0.5).floor().long().view(-1, 1, 1)
    return _blend(mean.expand(-1, 3, 256), _levels(images), _column(1 + values, images)[:, :, 0])


def _autocontrast(images: Tensor, values: np.ndarray) -> Tensor:
    flat = images.flatten(2)
    low, high = flat.amin(2, keepdim=True).double(), flat.amax(2, keepdim=True).double()  # (b, 3, 1)
    scale = 255 / (high - low).clamp(min=1)
    stretched = (_levels(images) * scale + -low * scale).clamp(0, 255).to(torch.uint8)
    return torch.where(high > low, stretched, _levels(images).to(torch.uint8))


def _equalize(images: Tensor, values: np.ndarray) -> Tensor:
    flat = images.flatten(2).flatten(0, 1).long()  # (3 b, H * W)
    counts = torch.zeros((len(flat), 256), dtype=torch.int64, device=images.device)
    counts.scatter_add_(1, flat, torch.ones_like(flat))
    last = counts.gather(1, flat.amax(1, keepdim=True))  # pixels at the highest level that occurs
    step = (flat.shape[1] - last) // 255
    before = counts.cumsum(1) - counts + step // 2
    table = torch.div(before, step.clamp(min=1), rounding_mode="floor").clamp_(max=255)
    table = torch.where(step > 0, table, torch.arange(256, device=images.device))
    return table.view(-1, 3, 256).to(torch.uint8)


_TABLES = {
    "brightness": _brightness,
    "contrast": _contrast,
    "posterize": _posterize,
    "solarize": _solarize,
    "autocontrast": _autocontrast,
    "equalize": _equalize,
    "invert": _invert,
}


def _grey(images: Tensor) -> Tensor:
    """Pillow's luminance of (b, 3, H, W): integer weights in 1/65536, (b, H, W) int32."""
    red, green, blue = images.to(torch.int32).unbind(1)
    return (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16


def _blend(start: Tensor, end: Tensor, factor: Tensor) -> Tensor:
    """start + factor * (end - start) in float32 as Pillow does it, cut to a level; factor may lie outside 0..1."""
    start = start.float()
    return _to_levels(start + factor * (end.float() - start))


def _color(images: Tensor, value: Tensor) -> Tensor:
    return _blend(_grey(images).unsqueeze(1), images, 1 + value)


def _sharpness(images: Tensor, value: Tensor) -> Tensor:
    """Blend with a smoothed version: weights 5 in the middle and 1 around, over 13; the border stays as it is."""
    wide = images.to(torch.int32)
    inner = wide[:, :, 1:-1, 1:-1]
    total = 4 * inner
    for dy in range(3):
        for dx in range(3):
            total = total + wide[:, :, dy : dy + inner.shape[2], dx : dx + inner.shape[3]]
    smooth = wide.clone()
    smooth[:, :, 1:-1, 1:-1] = (2 * total + 13) // 26  # to the nearest; a 13th is never half way
    return _blend(smooth, images, 1 + value)
