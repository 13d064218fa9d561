"""What labelling a few photographs costs: conversion and features of a set of which all, or nearly all, is known already.

    python benchmarks/known.py [--photographs 2000] [--size 64]

Made-up photographs of 400 x 300 pixels are converted and their features computed by a network of a few layers (six views), with
a store: for the first time, again with the list the other way round, and again with one in a hundred added. The last two must
decode and compute exactly what was never seen, and give the features of the first. Also the memory that each needs beyond what
the process held.

Prints seconds and counts, writes benchmarks/results/known.json, and ends with `known ratio=R target=4`
(R: the seconds of the first time over those of the list the other way round).
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import Parser, finish, highest_above
from made_up import settings

from dicap.data.convert import convert
from dicap.data.sources.base import FileImages, Item, RawSet
from dicap.data.store import Store
from dicap.frozen.features.compute import fill
from dicap.frozen.features.recipe import Recipe, pretrained_network


class Counted(FileImages):
    """Counts what is decoded."""

    decoded = 0

    def read(self, i: int) -> Image.Image:
        Counted.decoded += 1
        return super().read(i)


def photographs(folder: Path, n: int) -> list[str]:
    """Names of n made-up photographs."""
    for i in range(n):
        pixels = np.random.default_rng(i).integers(0, 256, (6, 8, 3), np.uint8)
        Image.fromarray(pixels).resize((400, 300), Image.Resampling.BICUBIC).save(folder / f"{i:06d}.jpg", quality=90)
    return [f"{i:06d}.jpg" for i in range(n)]


def pass_over(place: Path, names: list[str], size: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Seconds, counts and memory of converting the named photographs and their features; the plain features by name."""
    items = [Item(name, name, "test" if int(Path(name).stem) % 5 == 0 else "train", (i % 3,)) for i, name in enumerate(names)]
    raw = RawSet("made-up", ["a", "b", "c"], items, Counted(place / "photographs", names))
    small = {"dataset": "table", "data_root": ".", "backbone": "test_resnet", "backbone_weights": "random", "head": "linear"}
    s = settings(place, small | {"image_size": size, "features.views": 4})
    network, found = pretrained_network(s), {"computed": 0}
    Counted.decoded = 0

    def work() -> None:
        convert(raw, place / "set", image_size=size, workers=0, known=place / "known-images")
        store = Store.open(place / "set")
        recipe, known = Recipe.of(s, store, network), place / "known-features"
        found["computed"] = fill(place / "bank", recipe, store, network, workers=0, known=known)

    begin = time.perf_counter()
    memory = highest_above(work)
    seconds = round(time.perf_counter() - begin, 2)
    features = [row.tobytes() for row in np.load(place / "bank" / "plain.npy", mmap_mode="r")]
    report = {"photographs": len(names), "seconds": seconds, "decoded": Counted.decoded, **found, "memory_mib": memory >> 20}
    return report, dict(zip(names, features, strict=True))


def main() -> int:
    given = Parser(__doc__, "known", photographs=40, size=32)
    given.add_argument("--photographs", type=int, default=2000)
    given.add_argument("--size", type=int, default=64)
    options = given.options()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "photographs").mkdir()
        more = max(options.photographs // 100, 1)
        names = photographs(place / "photographs", options.photographs + more)
        asked = {"first": names[:-more], "other way round": names[:-more][::-1], "some added": names}
        found = {title: pass_over(place, some, options.size) for title, some in asked.items()}
    reports = {title: report for title, (report, _) in found.items()}
    for title, report in reports.items():
        print(f"{title:16} {report}")
    counts = [(report["decoded"], report["computed"]) for report in reports.values()]
    exact = counts == [(options.photographs, options.photographs), (0, 0), (more, more)]
    same = exact and all(found["first"][1].items() <= features.items() for _, features in found.values())
    ratio = reports["first"]["seconds"] / reports["other way round"]["seconds"]
    return finish("known", {"size": options.size, **reports}, ratio, 4.0, options, same=same)


if __name__ == "__main__":
    sys.exit(main())
