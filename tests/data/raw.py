"""Small raw data sets, generated: what the tests of the data side share."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dicap.data.convert import convert
from dicap.data.sources.base import FileImages, Item, RawSet

SHARED = Path(__file__).parents[3] / "shared" / "data"


def shared(name: str) -> Path:
    """A folder of ../shared/data; the test is skipped where there is none."""
    if not (SHARED / name).exists():
        pytest.skip(f"../shared/data/{name} is not on this machine")
    return SHARED / name


def photo(seed: int, width: int = 40, height: int = 30) -> Image.Image:
    """A smooth random picture."""
    small = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def save(path: Path, seed: int, **options) -> Path:
    """A picture as a file; the ending gives the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    photo(seed).save(path, **options)
    return path


def raw_set(root: Path, n_train: int = 8, n_test: int = 4, n_unlabelled: int = 0, classes: int = 3) -> RawSet:
    """A raw set of PNG files with random labels."""
    rng = np.random.default_rng(0)
    items = []
    for split, count in (("train", n_train), ("test", n_test), ("unlabeled", n_unlabelled)):
        for i in range(count):
            name = f"{split}-{i:03d}.png"
            save(root / name, len(items))
            labels = None if split == "unlabeled" else tuple(np.flatnonzero(rng.random(classes) < 0.5).tolist())
            items.append(Item(name[:-4], name, split, labels))
    return RawSet("table", [f"c{i}" for i in range(classes)], items, FileImages(root, [item.path for item in items]))


def small_set(tmp_path: Path, *, size: int = 24, **counts: int) -> Path:
    """The same, converted."""
    folder = tmp_path / "set"
    convert(raw_set(tmp_path / "raw", **counts), folder, image_size=size, workers=0)
    return folder
