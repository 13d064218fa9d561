"""`pictograms`, the default data set: symbols of matplotlib's bundled typeface on scikit-learn's two bundled photographs.

A scene has one to four pictograms (an anchor, a cup, a pair of scissors ...) on a blurred part of a photograph, with random
positions, sizes, rotations, colours and slants; they may partly cover each other. The label is the set of kinds in the scene.
Most kinds have several drawings. A mirrored pictogram is of the same kind, so the published weak view preserves the label.
Training and test scenes share the photographs, which carry no information about the label. Only files of these two packages are
read, and the scenes are the same on every machine.
"""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from dicap.data.sources.base import Images, Item, RawSet

SEED = 2026  # of the data set; the experiment's seed only chooses the visible labels
TRAIN, TEST = 4000, 1000
COUNTS = (0.3, 0.35, 0.25, 0.1)  # probabilities of 1, 2, 3, 4 pictograms in a scene
KINDS = {  # kind: its drawings, from the most frequent to the rarest kind
    "star": "★☆✩✪✫✬✭✮✯✰",
    "face": "☹☺☻😀😎😐😍😛😢😱",
    "heart": "♥♡❤❥❣",
    "flower": "✿❀❁❃❋✾",
    "music": "♩♪♫♬",
    "chess piece": "♔♕♖♗♘♙♚♛♜♝♞♟",
    "hand": "☚☛☜☝☞☟✌",
    "snowflake": "❄❅❆",
    "scissors": "✁✂✃✄",
    "umbrella": "☂☔",
    "telephone": "☎☏✆",
    "die": "⚀⚁⚂⚃⚄⚅",
    "cup": "☕",
    "airplane": "✈",
    "anchor": "⚓",
}
CLASSES = list(KINDS)
FREQUENCIES = np.geomspace(3, 1, len(CLASSES))  # the most frequent kind is drawn three times as often as the rarest
FREQUENCIES = FREQUENCIES / FREQUENCIES.sum()
GRID = 160  # scenes are composed at this size and then resized to image_size
STENCIL = 96  # side of a pictogram in pixels before it is scaled
SIZES = (60, 92)  # range of a pictogram's size in a scene, in pixels
FOCUS = 12  # the background has a resolution of FOCUS x FOCUS, so it looks blurred
OVERLAP = 0.7  # minimum distance of two centres in units of their mean size, if there is room


def read(dataset: str, root: Path) -> RawSet:
    """List the scenes; no folder is read."""
    scenes = Scenes()
    items = [
        Item(f"{split}-{i:04d}", f"{split}/{i:04d}", split, tuple(sorted(scenes.layout(split, i)[0].tolist())))
        for split, count in (("train", TRAIN), ("test", TEST))
        for i in range(count)
    ]
    source = {"pictograms": "DejaVu Sans of matplotlib", "photographs": "scikit-learn load_sample_images", "seed": SEED}
    return RawSet(dataset, CLASSES, items, scenes, source=source)


class Scenes(Images):
    """Draws scene i: the training scenes first, then the test scenes."""

    def __init__(self) -> None:
        import matplotlib
        from sklearn.datasets import load_sample_images

        photographs: Any = load_sample_images()
        self._stencils = _stencils(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")
        self._photographs = [Image.fromarray(image) for image in photographs.images]

    def layout(self, split: str, i: int) -> tuple[np.ndarray, np.random.Generator]:
        """The kinds in a scene, (k,) distinct ints, and the generator for its remaining random numbers."""
        rng = np.random.default_rng([SEED, split == "test", i])
        count = 1 + int(np.searchsorted(np.cumsum(COUNTS), rng.random()))
        return rng.choice(len(CLASSES), size=min(count, len(COUNTS)), replace=False, p=FREQUENCIES), rng

    def read(self, i: int) -> Image.Image:
        """Scene i as an RGB picture of GRID x GRID pixels."""
        split, i = ("train", i) if i < TRAIN else ("test", i - TRAIN)
        kinds, rng = self.layout(split, i)
        scene = _ground(self._photographs, rng)
        sizes = rng.uniform(*SIZES, len(kinds))
        for kind, size, centre in zip(kinds, sizes, _places(sizes, rng), strict=True):
            drawings = self._stencils[kind]
            _paint(scene, _turned(drawings[rng.integers(len(drawings))], size, rng), centre, rng)
        noise = rng.normal(0, rng.uniform(0, 6), (GRID, GRID, 1))
        return Image.fromarray(np.clip(np.asarray(scene) + noise, 0, 255).astype(np.uint8))


def _stencils(typeface: Path) -> list[list[Image.Image]]:
    """The drawings of each kind, squares of STENCIL x STENCIL pixels with ink values from 0 to 255."""
    font = ImageFont.truetype(str(typeface), 2 * STENCIL, layout_engine=ImageFont.Layout.BASIC)
    return [[_stencil(sign, font) for sign in signs] for signs in KINDS.values()]


def _stencil(sign: str, font: ImageFont.FreeTypeFont) -> Image.Image:
    left, top, right, bottom = (int(edge) for edge in font.getbbox(sign))
    ink = Image.new("L", (right - left, bottom - top))
    ImageDraw.Draw(ink).text((-left, -top), sign, font=font, fill=255)
    scale = STENCIL / max(ink.size)
    width, height = (max(1, round(side * scale)) for side in ink.size)
    square = Image.new("L", (STENCIL, STENCIL))
    square.paste(ink.resize((width, height), Image.Resampling.BOX), ((STENCIL - width) // 2, (STENCIL - height) // 2))
    return square


def _ground(photographs: list[Image.Image], rng: np.random.Generator) -> Image.Image:
    """A blurred part of a photograph, mirrored or not, with random brightness, GRID x GRID pixels."""
    photograph = photographs[rng.integers(len(photographs))]
    side = rng.uniform(200, min(photograph.size))
    x, y = (rng.uniform(0, whole - side) for whole in photograph.size)
    coarse = photograph.resize((FOCUS, FOCUS), Image.Resampling.BOX, (x, y, x + side, y + side))
    piece = coarse.resize((GRID, GRID), Image.Resampling.BICUBIC)
    if rng.random() < 0.5:
        piece = piece.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    light = np.asarray(piece) * rng.uniform(0.5, 1.0, 3) + rng.uniform(0, 60)
    return Image.fromarray(np.clip(light, 0, 255).astype(np.uint8))


def _places(sizes: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Centres of the pictograms, (k, 2), each fully inside the scene; the best of 20 draws if none is far enough apart."""
    best, widest = np.empty(0), -np.inf
    apart = (sizes[:, None] + sizes) / 2 * OVERLAP
    for _ in range(20):
        centres = rng.uniform(sizes[:, None] / 2, GRID - sizes[:, None] / 2, (len(sizes), 2))
        gaps = np.hypot(*(centres[:, None] - centres).transpose(2, 0, 1)) / apart + np.diag(np.full(len(sizes), np.inf))
        if gaps.min() > widest:
            best, widest = centres, gaps.min()
        if widest >= 1:
            break
    return best


def _turned(stencil: Image.Image, size: float, rng: np.random.Generator) -> Image.Image:
    """The pictogram, mirrored or not, rotated by up to 15 degrees, slanted, and scaled to `size` pixels."""
    angle, slant, squeeze = np.deg2rad(rng.uniform(-15, 15)), rng.uniform(-0.2, 0.2), rng.uniform(0.8, 1.25)
    mirror = 1 if rng.random() < 0.5 else -1
    shape = np.array([[mirror * np.sqrt(squeeze), slant], [0, 1 / np.sqrt(squeeze)]])
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    side = round(size * 1.4)  # of the square that contains the rotated pictogram
    a, b, c, d = np.linalg.inv(turn @ shape * size / STENCIL).ravel()  # maps pixels of the scene to pixels of the stencil
    middle, half = STENCIL / 2, side / 2
    numbers = (a, b, middle - a * half - b * half, c, d, middle - c * half - d * half)
    return stencil.transform((side, side), Image.Transform.AFFINE, numbers, Image.Resampling.BILINEAR)


def _paint(scene: Image.Image, ink: Image.Image, centre: np.ndarray, rng: np.random.Generator) -> None:
    """Paint a pictogram onto the scene, in a colour brighter or darker than the background there."""
    left, top = (round(value - ink.width / 2) for value in centre)
    below = np.asarray(scene.crop((left, top, left + ink.width, top + ink.height)).resize((1, 1), Image.Resampling.BOX))
    bright = below.mean() < 128
    colour = np.clip(rng.uniform(190, 255, 3) if bright else rng.uniform(0, 65, 3), 0, 255).astype(int)
    strength = rng.uniform(0.8, 1.0)
    scene.paste(tuple(colour.tolist()), (left, top), ink.point([round(value * strength) for value in range(256)]))
