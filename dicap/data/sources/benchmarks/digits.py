"""`digits`: scenes composed from scikit-learn's bundled handwritten digits.

One to four digits are on a textured background, with random colours, sizes and angles. The label is the set of digits in the
scene. Only files of scikit-learn are read, and the scenes are the same on every machine.
"""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dicap.data.sources.base import Images, Item, RawSet

SEED = 2026  # of the data set; the experiment's seed only chooses the visible labels
TRAIN, TEST = 4000, 1000
COUNTS = (0.4, 0.3, 0.2, 0.1)  # probabilities of 1, 2, 3, 4 digits in a scene
# Probability of each class: the most frequent class is about three times as frequent as the rarest.
FREQUENCIES = np.array([0.16, 0.14, 0.13, 0.115, 0.10, 0.09, 0.08, 0.07, 0.065, 0.05])
FREQUENCIES = FREQUENCIES / FREQUENCIES.sum()
CLASSES = [str(digit) for digit in range(10)]
GRID = 64  # scenes are composed at this size and then resized to image_size


def read(dataset: str, root: Path) -> RawSet:
    """List the scenes; no folder is read."""
    scenes = Scenes()
    items = [
        Item(f"{split}-{i:04d}", f"{split}/{i:04d}", split, tuple(sorted(set(scenes.layout(split, i)[0].tolist()))))
        for split, count in (("train", TRAIN), ("test", TEST))
        for i in range(count)
    ]
    return RawSet(dataset, CLASSES, items, scenes, source={"digits": "scikit-learn load_digits", "seed": SEED})


class Scenes(Images):
    """Draws scene i: the training scenes first, then the test scenes."""

    def __init__(self) -> None:
        from sklearn.datasets import load_digits

        data: Any = load_digits()
        self._glyphs = (data.images / 16).astype(np.float32)  # (1797, 8, 8), ink in [0, 1]
        order = np.random.default_rng(SEED).permutation(len(self._glyphs))
        cut = len(order) * 4 // 5
        # No handwritten digit is in both training and test scenes.
        self._sources = {
            split: [chosen[data.target[chosen] == digit] for digit in range(10)]
            for split, chosen in (("train", order[:cut]), ("test", order[cut:]))
        }

    def layout(self, split: str, i: int) -> tuple[np.ndarray, np.random.Generator]:
        """The digits of a scene, (k,) int, and the generator for its remaining random numbers."""
        rng = np.random.default_rng([SEED, split == "test", i])
        count = 1 + int(np.searchsorted(np.cumsum(COUNTS), rng.random()))
        return rng.choice(10, size=count, p=FREQUENCIES), rng

    def read(self, i: int) -> Image.Image:
        """Scene i as an RGB picture of GRID x GRID pixels."""
        split, i = ("train", i) if i < TRAIN else ("test", i - TRAIN)
        digits, rng = self.layout(split, i)
        scene = _ground(rng)
        sizes = rng.uniform(27, 31, len(digits))
        for digit, size, (x, y) in zip(digits, sizes, _places(sizes, rng), strict=True):
            glyph = self._glyphs[rng.choice(self._sources[split][digit])]
            scene = _paint(scene, _slant(glyph, size, rng), x, y, rng)
        scene += rng.normal(0, rng.uniform(2, 8), scene.shape)
        return Image.fromarray(np.clip(scene, 0, 255).astype(np.uint8))


def _ground(rng: np.random.Generator) -> np.ndarray:
    """A blotchy background in muted colours, (GRID, GRID, 3) float in 0..255."""
    cells = int(rng.integers(3, 9))
    coarse = rng.uniform(0, 255, (cells, cells, 3)) * 0.08 + rng.uniform(0, 60, 3) * 0.92
    blotches = Image.fromarray(coarse.astype(np.uint8)).resize((GRID, GRID), Image.Resampling.BICUBIC)
    return np.asarray(blotches, dtype=np.float64)


def _places(sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Centres of the digits, (k, 2), far enough apart that no digit hides another. Three or four digits get a quarter each."""
    half = GRID // 2
    if len(sizes) > 2:
        quarters = rng.permutation([(x, y) for x in (half / 2, half * 1.5) for y in (half / 2, half * 1.5)])
        return quarters[: len(sizes)] + rng.uniform(-3, 3, (len(sizes), 2))
    centres = rng.uniform(sizes[:, None] * 0.45, GRID - sizes[:, None] * 0.45, (len(sizes), 2))
    while len(sizes) == 2 and np.abs(centres[0] - centres[1]).max() < sizes.mean():
        centres = rng.uniform(sizes[:, None] * 0.45, GRID - sizes[:, None] * 0.45, (2, 2))
    return centres


def _slant(glyph: np.ndarray, size: float, rng: np.random.Generator) -> Image.Image:
    """The glyph scaled to about `size` pixels and rotated by up to 5 degrees, with ink values from 0 to 255."""
    width = max(8, round(size * rng.uniform(0.9, 1.0)))
    ink = Image.fromarray((glyph * 255).astype(np.uint8)).resize((width, round(size)), Image.Resampling.BICUBIC)
    return ink.rotate(rng.uniform(-5, 5), Image.Resampling.BICUBIC, expand=True)


def _paint(scene: np.ndarray, ink: Image.Image, x: float, y: float, rng: np.random.Generator) -> np.ndarray:
    """The scene with one more digit, in a colour brighter than the background there."""
    whole = Image.new("L", (GRID, GRID))
    whole.paste(ink, (round(x - ink.width / 2), round(y - ink.height / 2)))
    mask = np.asarray(whole)[..., None] / 255  # (GRID, GRID, 1)
    below = (scene * mask).sum((0, 1)) / max(mask.sum(), 1e-9)
    colour = below + (255 - below) * rng.uniform(0.85, 1.0) + rng.uniform(-20, 20, 3)
    return scene * (1 - mask) + np.clip(colour, 0, 255) * mask
