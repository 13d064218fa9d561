"""Views and scoring batches per second: this project's loader against the classic input path, in one run.

    python benchmarks/input.py [--photos FOLDER] [--workers N] [--size 224]

The classic path is a torch DataLoader that for every view opens the photograph, decodes it, and then flips, resizes,
draws RandAugment and Cutout, and makes a tensor (docs/methods.md 2.4). Both paths draw from the same policy, use the same
number of workers and the same number of images a batch. They take turns in rounds, so that a busy machine slows both; the
ratio is that of the median rounds. Training batches are counted as (weak, strong) pairs, scoring batches as images.

Prints a table, writes benchmarks/results/input.json, and ends with the line `input ratio=R target=T` (R: pairs); exits 1
if the ratio of pairs is below 4 or that of scoring below 50.
"""

import argparse
import json
import platform
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import PIL
import torch
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).parents[1]))

from dicap.data.augment import View, operate
from dicap.data.convert import convert
from dicap.data.format import read_index
from dicap.data.loader import Request, load, scoring_batches, worker_count
from dicap.data.policy import OPERATIONS
from dicap.data.sources.base import FileImages, Item, RawSet
from dicap.data.store import Store
from dicap.machine.processes import cores

TARGET_PAIRS, TARGET_SCORING = 4.0, 50.0
BATCH = 64
RESULT = Path(__file__).with_name("results") / "input.json"
COPIES = 4  # times a photograph occurs in the array, so that it does not fit in a processor's cache


class Classic(Dataset):
    """The published data set: everything from the file to the tensor, for every read of every view."""

    def __init__(self, paths: list[Path], size: int, scoring: bool) -> None:
        self.paths, self.size, self.scoring = paths, size, scoring

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, i: int):
        with Image.open(self.paths[i]) as image:
            picture = image.convert("RGB")
        if self.scoring:
            return self._tensor(picture.resize((self.size, self.size), Image.Resampling.BILINEAR))
        return self._tensor(self._weak(picture)), self._tensor(self._randaugment(self._cutout(self._weak(picture))))

    def _weak(self, picture: Image.Image) -> Image.Image:
        if random.random() < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return picture.resize((self.size, self.size), Image.Resampling.BILINEAR)

    def _cutout(self, picture: Image.Image) -> Image.Image:
        half = int(0.5 * self.size + 0.5) // 2
        y, x = random.randrange(self.size), random.randrange(self.size)
        box = [max(x - half, 0), max(y - half, 0), min(x + half, self.size), min(y + half, self.size)]
        ImageDraw.Draw(picture).rectangle(box, fill=(random.randrange(256), random.randrange(256), random.randrange(256)))
        return picture

    def _randaugment(self, picture: Image.Image) -> Image.Image:
        for _ in range(2):
            operation = random.choice(OPERATIONS)
            value = random.choice(operation.values) * (random.choice((-1, 1)) if operation.signed else 1)
            if random.random() < 0.5:
                centre = (random.randrange(self.size), random.randrange(self.size))
                picture = operate(picture, operation.kind, value, centre)
        return picture

    def _tensor(self, picture: Image.Image) -> torch.Tensor:
        # what torchvision's ToTensor does: channels first, float in [0, 1]
        pixels = torch.from_numpy(np.array(picture, copy=True)).permute(2, 0, 1).contiguous()
        return pixels.to(torch.float32).div(255)


def rate(batches, count) -> float:
    """Images per second of an iterator of batches; `count` gives a batch's images. Starting workers is included."""
    start = time.perf_counter()
    images = sum(count(batch) for batch in batches)
    return images / (time.perf_counter() - start)


def measure(photos: Path, workers: int, size: int, rounds: int, seconds: float) -> dict:
    paths = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if not paths:
        sys.exit(f"{photos}: no photographs there; give a folder with --photos")
    torch.set_num_threads(1)  # as in a worker: with more, a busy machine slows the classic path out of all proportion
    with tempfile.TemporaryDirectory() as place:
        store = converted(paths, Path(place) / "set", size)
        classic_loader = {"batch_size": BATCH, "num_workers": workers, "prefetch_factor": 4 if workers else None}
        mean_size = [round(value) for value in read_index(store.folder, ["width", "height"]).to_pandas().mean()]
        rows = np.resize(np.random.default_rng(0).permutation(store.n), 64 * BATCH)
        strong = View("strong", cutout=0.5)

        def classic(scoring: bool, images: int):
            chosen = [paths[i % len(paths)] for i in rows[:images]]
            return rate(DataLoader(Classic(chosen, size, scoring), **classic_loader), lambda b: len(b) if scoring else len(b[0]))

        def ours_pairs(images: int):
            parts = np.split(np.resize(rows, images), range(BATCH, images, BATCH))
            steps = [[Request("weak", part, View("weak")), Request("strong", part, strong)] for part in parts]
            batches = load(store, steps, seed=1, stage="train", epoch=0, workers=workers)
            return rate(batches, lambda batch: len(batch["weak"]))

        def ours_scoring(images: int):
            return rate(scoring_batches(store, np.resize(rows, images), BATCH), lambda batch: len(batch[0]))

        passes = {
            "classic pairs": lambda n: classic(False, n),
            "pairs": ours_pairs,
            "classic scoring": lambda n: classic(True, n),
            "scoring": ours_scoring,
        }
        # First pass of each: warms the page cache and says how many images take about `seconds`.
        sizes = {name: max(BATCH, int(run(2 * BATCH) * seconds) // BATCH * BATCH) for name, run in passes.items()}
        sizes |= {name: min(sizes[name], len(rows)) for name in ("classic pairs", "classic scoring")}
        found = {name: [] for name in passes}
        for _ in range(rounds):
            for name, run in passes.items():
                found[name].append(run(sizes[name]))
    medians = {name: statistics.median(values) for name, values in found.items()}
    return {
        "pairs_per_s": round(medians["pairs"], 1),
        "classic_pairs_per_s": round(medians["classic pairs"], 1),
        "ratio": round(medians["pairs"] / medians["classic pairs"], 2),
        "scoring_images_per_s": round(medians["scoring"], 1),
        "classic_scoring_images_per_s": round(medians["classic scoring"], 1),
        "scoring_ratio": round(medians["scoring"] / medians["classic scoring"], 1),
        "target": TARGET_PAIRS,
        "scoring_target": TARGET_SCORING,
        "rounds": {name: [round(value, 1) for value in values] for name, values in found.items()},
        "photographs": len(paths),
        "mean_size": mean_size,
        "image_size": size,
        "batch": BATCH,
        "workers": workers,
        "cores": cores(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "pillow": PIL.__version__,
    }


def converted(paths: list[Path], folder: Path, size: int) -> Store:
    """The photographs as a converted set, each several times."""
    repeated = paths * COPIES
    items = [Item(str(i), str(path), "test" if i == 0 else "train", ()) for i, path in enumerate(repeated)]
    raw = RawSet("table", ["any"], items, FileImages(Path("/"), [str(path.resolve()) for path in repeated]))
    convert(raw, folder, image_size=size, max_rejected=0.5)
    return Store.open(folder)


def smoke(out: Path) -> int:
    """A round on a few small made-up photographs."""
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for i in range(4):
            Image.fromarray(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(Path(folder) / f"{i}.jpg")
        result = measure(Path(folder), workers=0, size=32, rounds=1, seconds=0.01)
    if out != RESULT:
        out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"input ratio={result['ratio']} target={TARGET_PAIRS:g}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, default=Path(__file__).parents[1] / "../shared/data/coco_tiny", help="folder")
    parser.add_argument("--workers", type=int, help="of both paths; default: what the loader chooses")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="of a pass")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--smoke", action="store_true", help="toy size, to see that it runs; no result is overwritten")
    options = parser.parse_args()
    if options.smoke:
        return smoke(options.out)
    workers = worker_count() if options.workers is None else options.workers
    result = measure(options.photos, workers, options.size, options.rounds, options.seconds)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    width, height = result["mean_size"]
    photographs = f"{result['photographs']} photographs of {width} x {height}"
    print(f"{photographs}, {workers} workers, {result['cores']} cores, {options.size} px")
    print(f"{'':24}{'classic':>10}{'this':>10}{'ratio':>8}{'target':>8}")
    for name, key, ratio, target in (
        ("weak + strong pairs/s", "pairs_per_s", "ratio", TARGET_PAIRS),
        ("scoring images/s", "scoring_images_per_s", "scoring_ratio", TARGET_SCORING),
    ):
        print(f"{name:<24}{result['classic_' + key]:>10.0f}{result[key]:>10.0f}{result[ratio]:>8.1f}{target:>8.0f}")
    print(f"scoring ratio={result['scoring_ratio']} target={TARGET_SCORING:g}")
    print(f"input ratio={result['ratio']} target={TARGET_PAIRS:g}")
    return 0 if result["ratio"] >= TARGET_PAIRS and result["scoring_ratio"] >= TARGET_SCORING else 1


if __name__ == "__main__":
    sys.exit(main())
