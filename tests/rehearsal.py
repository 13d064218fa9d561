"""The paper's main table and figures on made-up archives: what somebody with the real ones will see, short of the numbers.

    python tests/rehearsal.py FOLDER                  # all methods, ratios and sets: 384 cells of about 10 s of processor time
    python tests/rehearsal.py FOLDER --sets voc2012 --methods asl,dicap --ratios 0.05 --seeds 1

VOC 2012, COCO 2014, NUS-WIDE and AWA2 are made up in their published layout below FOLDER/archives, as generated photographs that
show a patch of its own place and colour for each label. In a clone of this checkout, FOLDER/clone, a network of three layers and
short stages take the place of the published ones; the commands are those of docs/paper.md. It fails unless every
cell, every number of the table and both figures are there, and nothing runs when the sweep is asked again.
"""

import argparse
import colorsys
import csv
import io
import json
import re
from collections.abc import Sequence
from inspect import signature
from pathlib import Path

import numpy as np
from PIL import Image
from repository.test_pipeline import checkout

from dicap.data.sources.benchmarks import voc
from dicap.data.sources.benchmarks.nuswide import CONCEPTS

PIXELS = 60
SHORT = {
    "backbone": "test_resnet", "backbone_weights": "random", "image_size": 32, "network.stride": 8,
    "network.decoder_dim": 32, "network.decoder_ffn": 32, "network.decoder_heads": 2, "optimiser.lr": 3.0e-3,
    "optimiser.ema_decay": 0.9, "warmup.epochs": 8, "warmup.batch_size": 4, "warmup.eval_every": 8, "train.epochs": 2,
    "train.cycle_epochs": 0, "finetune.epochs": 1, "pclp.warmup_epochs": 1, "pclp.epochs": 1, "pclp.adversary_width": 2,
    "drml.rounds": 4, "drml.iterations": 4, "drml.start": 0,
}  # fmt: skip


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


def coco2014(root: Path, counts: tuple[int, int]) -> None:
    """One file of annotations a phase; the ids of the categories have gaps."""
    (root / "annotations").mkdir(parents=True)
    categories = [{"id": c + 1 + c // 10, "name": f"thing {c}"} for c in range(80)]
    for number, (phase, count) in enumerate(zip(("train", "val"), counts, strict=True)):
        images, annotations = [], []
        for i, labels in enumerate(drawn(80, count, number)):
            image = {"id": 7 * i + number, "file_name": f"COCO_{phase}2014_{7 * i + number:012d}.jpg"}
            images.append(image)
            annotations += [{"image_id": image["id"], "category_id": categories[c]["id"], "iscrowd": 0} for c in labels]
            save(root / f"{phase}2014" / image["file_name"], scene(labels, 80, 10_000 * number + i))
        content = {"images": images, "annotations": annotations, "categories": categories}
        (root / f"annotations/instances_{phase}2014.json").write_text(json.dumps(content))


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


ARCHIVES = {"voc2012": voc2012, "coco2014": coco2014, "nuswide": nuswide, "awa2": awa2}
METHODS = "bce,asl,mld,top1,topk,iat,drml,cap,pclp,bbam,d2l,dicap"


def rehearse(
    place: Path,
    sets: str = ",".join(ARCHIVES),
    methods: str = METHODS,
    ratios: str = "0.05,0.1,0.15,0.2",
    seeds: str = "1,2",
    counts: tuple[int, int] = (200, 80),
) -> str:
    """Table 1, as it is printed, after Figures 1c and 3 of each data set.

    Args:
        sets, methods, ratios, seeds: divided by commas.
        counts: of training and test images.
    """
    clone, runs = checkout(place / "clone", SHORT), len(seeds.split(","))
    cells = len(methods.split(",")) * len(ratios.split(","))
    for dataset in sets.split(","):
        root = place / "archives" / dataset
        ARCHIVES[dataset](root, counts)
        axes = [f"data_root={root}", f"method={methods}", f"ratio={ratios}", f"seed={seeds}"]
        sweep = ["dicap-stage", "sweep", "experiments/paper.yaml", "--dataset", dataset]
        sweep += [word for axis in axes for word in ("-S", axis)]
        clone.run(*sweep)
        assert f": {cells * runs} cells, {cells * runs} finished, 0 to run" in clone.run(*sweep)
        for panel in ("1c", "3") if "dicap" in methods.split(",") else ():
            ratio, out = ratios.split(",")[0], f"figures/{dataset}"
            clone.run("dicap-stage", "figures", panel, "--dataset", dataset, "--ratio", ratio, "--out", out)
            assert all((clone.folder / out / f"figure{panel}.{ending}").stat().st_size for ending in ("svg", "pdf"))
    shown = clone.run("dicap-stage", "table", "main")
    table = (clone.folder / "tables" / "main.csv").read_text()
    parts = [csv.DictReader(io.StringIO(part)) for part in re.split("(?m)^(?=dataset,)", table)[1:]]
    lines = [line for part in parts for line in part if line["mean"]]
    assert len(lines) == cells * len(sets.split(",")) and all(int(line["n"]) == runs for line in lines), table
    return shown


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", type=Path)
    for name in ("sets", "methods", "ratios", "seeds"):
        parser.add_argument(f"--{name}", default=signature(rehearse).parameters[name].default)
    given = vars(parser.parse_args())
    print(rehearse(given.pop("place").resolve(), **given))
