"""A converted set of random pixels, and an experiment on it: for time, what the images show does not matter."""

from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from dicap.data import format as files
from dicap.data.split import split_index, split_roles
from dicap.files.artifacts import write_split
from dicap.machine.runtime import Runtime
from dicap.settings import Settings, load_settings
from dicap.training.experiment import Experiment

ROOT = Path(__file__).parents[1]


def settings(folder: Path, changes: dict[str, Any]) -> Settings:
    """The project's settings with dotted keys changed, the published protocol where they name none; writes `folder`/params.yaml.

    What `init-data` wrote to the project's params.yaml is not measured by accident.
    """
    yaml = YAML(typ="safe", pure=True)
    values = yaml.load((ROOT / "params.yaml").read_text())
    for key, value in ({"protocol": "published"} | changes).items():
        *parents, name = key.split(".")
        target = values
        for parent in parents:
            target = target[parent]
        target[name] = value
    with open(folder / "params.yaml", "w") as handle:
        yaml.dump(values, handle)
    return load_settings(folder / "params.yaml")


def converted(folder: Path, images: int, tests: int, classes: int, side: int, *, distinct: int = 4096) -> Path:
    """A set of `images` training and `tests` test images; beyond `distinct` of them pixels repeat. Two labels per image."""
    folder.mkdir(parents=True)
    n, rng = images + tests, np.random.default_rng(0)
    pixels = rng.integers(0, 256, (min(n, distinct), side, side, 3), dtype=np.uint8)
    array = np.lib.format.open_memmap(folder / files.ARRAY, mode="w+", dtype=np.uint8, shape=(n, side, side, 3))
    for start in range(0, n, len(pixels)):
        array[start : start + len(pixels)] = pixels[: n - start]
    array.flush()
    names = [f"{i:08d}.jpg" for i in range(n)]
    labels = [sorted({int(a), int(b)}) for a, b in rng.integers(0, classes, (n, 2))]
    columns = {"id": names, "path": names, "width": [side] * n, "height": [side] * n}
    columns |= {"split": ["train"] * images + ["test"] * tests, "labels": labels}
    files.write_index(folder / files.INDEX, columns)
    meta = {
        "schema": files.SCHEMA,
        "dataset": "made-up",
        "image_size": side,
        "classes": [f"class {c}" for c in range(classes)],
        "counts": {"train": images, "test": tests, "unlabeled": 0},
        "rejected": [],
        "checksums": dict.fromkeys((files.ARRAY, files.INDEX), "0" * 64),
        "notes": [],
        "source": {},
    }
    files.write_meta(folder, meta)
    return folder


def opened(place: Path, s: Settings, runtime: Runtime, *, images: int, tests: int, classes: int) -> Experiment:
    """An experiment on such a set, converted and split below `place`."""
    folder = converted(place / "set", images, tests, classes, s.image_size)
    ids, *more = split_index(folder)
    roles = split_roles(ids, *more, ratio=s.ratio, seed=s.seed, est_fraction=s.split.est_fraction)
    write_split(ids, roles, place / "split.parquet")
    return Experiment.open(s, runtime, folder, place / "split.parquet")
