"""VOC 2012, NUS-WIDE and AWA2, made up in their published layout (COCO: tests/data/test_benchmark_sets.py).

A photograph shows a patch of its own place and colour for each label.
"""

import colorsys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from dicap.data.sources.benchmarks import voc
from dicap.data.sources.benchmarks.nuswide import CONCEPTS

PIXELS = 60


def scene(labels: Sequence[int], classes: int, seed: int) -> Image.Image:
    """A grey photograph with a coloured patch for every label, which stands at the label's place of a square grid."""
    side = int(np.ceil(np.sqrt(classes)))
    pixels, cell = np.random.default_rng(seed).integers(90, 140, (PIXELS, PIXELS, 3)).astype(np.uint8), PIXELS // side
    for label in labels:
        y, x = cell * (label // side), cell * (label % side)
        pixels[y : y + cell, x : x + cell] = [int(255 * part) for part in colorsys.hsv_to_rgb(label / classes, 1, 1)]
    return Image.fromarray(pixels)


def drawn(classes: int, count: int, seed: int) -> list[list[int]]:
    """One to three labels of each of `count` images, the first classes more often than the last."""
    rng, share = np.random.default_rng(seed), 1 / np.arange(2, classes + 2)
    return [sorted(rng.choice(classes, rng.integers(1, 4), replace=False, p=share / share.sum()).tolist()) for _ in range(count)]


def save(path: Path, image: Image.Image) -> None:
    """An image as a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def voc2012(root: Path, counts: tuple[int, int]) -> None:
    """Lists of each class and phase, as in the archive."""
    base = root / "VOCdevkit/VOC2012"
    (base / "ImageSets/Main").mkdir(parents=True)
    for number, (phase, count) in enumerate(zip(("train", "val"), counts, strict=True)):
        labels = drawn(len(voc.CLASSES), count, number)
        names = [f"2008_{number}{i:05d}" for i in range(count)]
        for i, name in enumerate(names):
            save(base / f"JPEGImages/{name}.jpg", scene(labels[i], len(voc.CLASSES), 10_000 * number + i))
        for c, title in enumerate(voc.CLASSES):
            lines = [f"{name} {1 if c in shown else -1:2d}\n" for name, shown in zip(names, labels, strict=True)]
            (base / f"ImageSets/Main/{title}_{phase}.txt").write_text("".join(lines))


def nuswide(root: Path, counts: tuple[int, int]) -> None:
    """The four npy files of Cole et al. beside `Flickr/`."""
    for number, (phase, count) in enumerate(zip(("train", "val"), counts, strict=True)):
        names, matrix = [], np.zeros((count, len(CONCEPTS)))
        for i, labels in enumerate(drawn(len(CONCEPTS), count, number)):
            names.append(f"actor/{number}{i:04d}.jpg")
            matrix[i, labels] = 1
            save(root / "Flickr" / names[-1], scene(labels, len(CONCEPTS), 10_000 * number + i))
        np.save(root / f"formatted_{phase}_images.npy", np.array(names))
        np.save(root / f"formatted_{phase}_labels.npy", matrix)


def awa2(root: Path, counts: tuple[int, int]) -> None:
    """40 species to train on and 10 others to test on, whose images share their 85 attributes."""
    base, rng = root / "Animals_with_Attributes2", np.random.default_rng(0)
    base.mkdir(parents=True)
    matrix, species = rng.random((50, 85)) < 0.35, [f"species+{i}" for i in range(50)]
    (base / "classes.txt").write_text("".join(f"{i + 1:>8}\t{name}\n" for i, name in enumerate(species)))
    (base / "predicates.txt").write_text("".join(f"{i + 1:>8}\tattribute{i}\n" for i in range(85)))
    (base / "predicate-matrix-binary.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in matrix.astype(int)))
    (base / "trainclasses.txt").write_text("\n".join(species[:40]) + "\n")
    (base / "testclasses.txt").write_text("\n".join(species[40:]) + "\n")
    for s, name in enumerate(species):
        for i in range(-(-counts[0] // 40) if s < 40 else -(-counts[1] // 10)):
            image = scene(np.flatnonzero(matrix[s]).tolist(), 85, 1000 * s + i)
            save(base / f"JPEGImages/{name}/{name}_{10001 + i}.jpg", image)


ARCHIVES = {"voc2012": voc2012, "nuswide": nuswide, "awa2": awa2}
