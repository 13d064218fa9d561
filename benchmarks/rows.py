"""How processor time and memory of each part grow with the rows of a set, on made-up arrays.

    python benchmarks/rows.py [--rows 1000 10000] [--only PART ...]

Parts: conversion and features of images never seen (`new`) and seen before (`known`), averages with neighbours, the linear head,
the refresh and its Parquet, scores of the test images, the gallery of predictions. Images are 32 x 32 pixels, of 64 features and
20 classes. Memory is what a part needs at its peak beyond what the process held before. An exponent is the slope in logarithms
between the smallest and the largest number of rows: 1 is proportional, 2 quadratic. Parts that another needs run before it,
unmeasured where they were not asked for.

Writes rows.json among the results, what other numbers of rows found is kept there; its last line is `rows ratio=R target=0.9`,
R: 2 over the largest exponent of time.
"""

import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch
from common import Parser, finish, highest_above
from made_up import settings
from PIL import Image
from refresh import ours, scores

from dicap.calibration.evidence import Evidence
from dicap.data.convert import convert
from dicap.data.sources.base import Item, RawSet
from dicap.data.store import Store
from dicap.evaluation.answers import Answers
from dicap.evaluation.evaluate import metrics
from dicap.frozen.features.compute import fill
from dicap.frozen.features.recipe import Recipe, pretrained_network
from dicap.frozen.neighbours import averaged
from dicap.frozen.solver import rotate, solve
from dicap.photos.pages.gallery import write_gallery

SIDE, FEATURES, CLASSES, DISTINCT = 32, 64, 20, 500
# The parts, and those that have to run before them.
PARTS = {
    "convert, new": [],
    "convert, known": ["convert, new"],
    "features, new": ["convert, new"],
    "features, known": ["convert, new", "features, new"],
    "neighbours": [],
    "linear head": [],
    "refresh and Parquet": [],
    "evaluate": [],
    "gallery": [],
}
SMALL = {"dataset": "table", "data_root": ".", "backbone": "test_resnet", "backbone_weights": "random", "head": "linear"}


class MadeUp:
    """Images of random pixels without files."""

    def read(self, i: int) -> Image.Image:
        """Image i."""
        return Image.fromarray(np.random.default_rng(i).integers(0, 256, (SIDE, SIDE, 3), np.uint8))

    def mark(self, i: int) -> str:
        """Its number."""
        return str(i)


def arrays(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, D) float32 and labels (n, C) of 0 and 1."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, FEATURES)).astype(np.float32)
    return x, (x[:, :CLASSES] + rng.normal(size=(n, CLASSES)) > 1).astype(np.float32)


@cache
def network() -> tuple[Any, Any]:
    """Settings and network of the features."""
    with tempfile.TemporaryDirectory() as place:
        made = settings(Path(place), SMALL | {"image_size": SIDE, "features.views": 1})
    return made, pretrained_network(made)


def parts(n: int, place: Path, only: list[str]) -> dict[str, Callable[[], Any]]:
    """What is measured at n rows."""
    (x, y), (s, net) = arrays(n), network()
    p, truth, n_sup, n_est = scores(n, CLASSES)
    ids = np.array([f"{i:07d}.jpg" for i in range(n)], dtype=object)
    items = [Item(name, name, "test" if i % 5 == 0 else "train", (i % 3,)) for i, name in enumerate(ids)]
    raw = RawSet("made-up", ["a", "b", "c"], items, MadeUp())

    def converted() -> None:
        convert(raw, place / "set", image_size=SIDE, workers=0, known=place / "images")

    def filled() -> None:
        store = Store.open(place / "set")
        fill(place / "bank", Recipe.of(s, store, net), store, net, place / "features", workers=0)

    names = [f"class {c}" for c in range(CLASSES)]
    if "gallery" in only:
        predictions(place, ids, p.numpy(), names)
    answers = Answers.of(Evidence.none(np.full(CLASSES, np.nan), "made up"))
    files = {name: place / "photos" / name for name in ids}
    return {
        "convert, new": converted,
        "convert, known": converted,
        "features, new": filled,
        "features, known": filled,
        "neighbours": lambda: averaged(rotate(x), 10),
        "linear head": lambda: solve(x, y, loss_weight=0.01),
        "refresh and Parquet": lambda: ours(p, truth, n_sup, n_est, ids[n_sup:], place),
        "evaluate": lambda: metrics(p.numpy(), truth.numpy()),
        "gallery": lambda: write_gallery(place / "predictions.parquet", names, answers, place / "gallery", files),
    }


def predictions(place: Path, ids: np.ndarray, p: np.ndarray, names: list[str]) -> None:
    """A file of predictions, and the photographs that it names: links to some."""
    (place / "photos").mkdir(exist_ok=True)
    for i, name in enumerate(ids):
        if i < DISTINCT:
            MadeUp().read(i).save(place / "photos" / name)
        elif not (place / "photos" / name).exists():
            (place / "photos" / name).hardlink_to(place / "photos" / ids[i % DISTINCT])
    columns = {"image": np.repeat(ids, len(names)), "class": np.tile(names, len(ids)), "probability": p.ravel()}
    frame = pd.DataFrame(columns | {"decision": np.where(p.ravel() > 0.5, "yes", "no")})
    frame.assign(chance=0.9, chance_low=0.8, chance_high=0.95).to_parquet(place / "predictions.parquet")


def main() -> int:
    """Measure each number of rows, then the exponents."""
    given = Parser(__doc__, "rows", rows=[40, 80])
    given.add_argument("--rows", type=int, nargs="+", default=[1000, 10_000])
    given.add_argument("--only", nargs="+", metavar="PART", choices=PARTS, default=list(PARTS), help="parts by name")
    options = given.options()
    torch.set_num_threads(1)
    found: dict[str, dict[str, list[float]]] = {}
    if options.out.exists():
        found = json.loads(options.out.read_text())["parts"]
    for n in sorted(options.rows):
        with tempfile.TemporaryDirectory() as place:
            works, ran = parts(n, Path(place), options.only), set()
            for name in [name for name in PARTS if name in options.only]:
                for needed in [part for part in PARTS[name] if part not in ran]:
                    works[needed]()
                    ran.add(needed)
                begin = time.process_time()
                memory = highest_above(works[name])
                ran.add(name)
                found.setdefault(name, {})[str(n)] = [round(time.process_time() - begin, 3), round(memory / 2**20, 1)]
                print(f"{n:>9} {name:24}{found[name][str(n)][0]:>9.2f} s{found[name][str(n)][1]:>9.0f} MiB", flush=True)
    exponents = {name: exponent({int(n): seconds for n, (seconds, _) in by.items()}) for name, by in found.items()}
    for name, slope in exponents.items():
        print(f"{name:34}{slope:>6.2f}")
    return finish("rows", {"parts": found, "exponents": exponents}, 2 / max(0.01, *exponents.values()), 0.9, options)


def exponent(seconds: dict[int, float]) -> float:
    """Slope of log seconds over log rows, from the smallest to the largest number of rows."""
    low, high = min(seconds), max(seconds)
    return round(math.log(max(seconds[high], 1e-3) / max(seconds[low], 1e-3)) / math.log(high / low), 2) if low < high else 0.0


if __name__ == "__main__":
    sys.exit(main())
