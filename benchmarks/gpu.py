"""Whether the program does on a GPU what it does on a processor, and what it costs there: one command, at most ten minutes.

    python benchmarks/gpu.py [--device cuda] [--amp auto] [--steps 150]

1. Every method's last stage takes one epoch of a few steps on the GPU and on the processor, in float32, from the same network on
   the same made-up images: losses, shares of the pseudo-labels and scores of the test images are compared.
2. DiCaP's main step at the published sizes (ResNet-50, ML-Decoder, 4 + 60 images of COCO's size) against the bare network, as in
   benchmarks/step.py, in mixed precision, with the peak of the GPU's memory.
3. An epoch of COCO's size: its steps at the measured seconds, and its scores at the measured images a second.

Please send gpu.json, which it writes to the folder of results. Without a GPU nothing is run. Ends with
`gpu ratio=R target=0.92`, R: images/s of the main step over those of the bare network. Exits 1 below the target, or where the two
devices differ.
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch
from common import Parser, finish
from made_up import opened, settings
from step import GPU_TARGET, PRESETS, measure

from dicap.machine.runtime import Runtime
from dicap.settings.catalogue import OWN_HEAD
from dicap.settings.methods import METHODS
from dicap.training.checkpoint.state import RunState, StopSignal
from dicap.training.loops.table import loop_of
from dicap.training.loops.warmup import initial_network
from dicap.training.trainer import Trainer

LOSS, SHARE, SCORE = (
    1e-2,
    0.02,
    1e-2,
)  # largest differences of devices that sum in another order: relative, and of numbers in [0, 1]
COCO_STEPS, COCO_SCORED = 1314, 82081  # of an epoch at 5 % labelled; images that its refresh scores
SMALL = {"backbone": "test_resnet", "image_size": 32, "network.stride": 16, "network.dropout": 0.0, "optimiser.lr": 1e-4}
SMALL |= {"network.decoder_dim": 16, "network.decoder_ffn": 16, "network.decoder_heads": 2, "loss.reduction": "sum"}
SMALL |= {"dataset": "coco2014", "data_root": ".", "backbone_weights": "random", "ratio": 0.2, "train.batch_size": 16}
SMALL |= {"warmup.epochs": 1, "train.epochs": 1, "train.eval_every": 1, "drml.rounds": 1, "drml.iterations": 3, "pclp.epochs": 1}


def epoch_of(method: str, runtime: Runtime, place: Path) -> tuple[dict[str, float], np.ndarray]:
    """The history's row and the scores (n, C) of the test images after an epoch of a method's last stage."""
    place.mkdir(parents=True)
    head = METHODS[method].head
    s = settings(place, SMALL | {"method": method, "head": None if head == OWN_HEAD else head})
    experiment = opened(place, s, runtime, images=80, tests=16, classes=6)
    stage = "train" if METHODS[method].unlabelled else "warmup"
    with RunState(place, stage, "benchmark") as state:
        network = experiment.place(initial_network(experiment))
        loop_of(stage, s)(Trainer(experiment, stage, state, StopSignal(), lambda lines: None), network)
        row = pd.read_csv(state.products / "history.csv").iloc[-1]
        scores = experiment.predict(network, experiment.roles.test).cpu().numpy()
    return row.drop(["epoch", "lr", "steps"]).dropna().astype(float).to_dict(), scores


def compare(methods: list[str], device: str) -> dict[str, dict[str, float]]:
    """The largest differences of the two devices, by method."""
    found = {}
    for method in methods:
        with tempfile.TemporaryDirectory() as folder:
            both = [
                epoch_of(method, Runtime.choose(name, "off", 0), Path(folder) / str(i)) for i, name in enumerate(("cpu", device))
            ]
        (one, p), (other, q) = both
        losses = [abs(one[key] - other[key]) / max(abs(one[key]), 1e-9) for key in one if key.startswith("loss")]
        shares = [abs(one[key] - other[key]) for key in one if key.startswith("share")]
        found[method] = {"loss": max(losses), "shares": max(shares, default=0.0), "scores": float(np.abs(p - q).max())}
    return found


def scored_a_second(preset: str, runtime: Runtime) -> float:
    """Images a second of a refresh's scores."""
    changes, classes = PRESETS[preset]
    with tempfile.TemporaryDirectory() as folder:
        experiment = opened(Path(folder), settings(Path(folder), changes), runtime, images=2048, tests=16, classes=classes)
        network = experiment.place(initial_network(experiment))
        rows = np.arange(512 if runtime.device.type == "cuda" else 16)
        seconds = []
        for _ in range(3):
            begin = time.perf_counter()
            experiment.predict(network, rows).cpu()  # waits for the device
            seconds.append(time.perf_counter() - begin)
    return len(rows) / min(seconds)


def main() -> int:
    options = Parser(__doc__, "gpu", preset="digits", steps=2, device="cpu")
    options.add_argument("--preset", choices=list(PRESETS), default="coco")
    options.add_argument("--device", default="cuda")
    options.add_argument("--amp", default="auto")
    options.add_argument("--steps", type=int, default=150, help="steps of each of two epochs, of which the second counts")
    options = options.options()
    if options.device != "cpu" and not torch.cuda.is_available():
        print("Error: torch sees no GPU here; `--smoke` tries this script on the processor", file=sys.stderr)
        return 2
    if options.device == "cpu" and not options.smoke:
        print("Error: --device cpu compares a processor with itself; leave it out, or use --smoke", file=sys.stderr)
        return 2
    differences = compare(["dicap", "bce", "drml"] if options.smoke else list(METHODS), options.device)
    same = all(row["loss"] <= LOSS and row["shares"] <= SHARE and row["scores"] <= SCORE for row in differences.values())
    print(f"{'method':<8}{'loss':>10}{'shares':>10}{'scores':>10}   largest differences from the processor")
    for method, row in differences.items():
        print(f"{method:<8}" + "".join(f"{value:>10.1e}" for value in row.values()))
    runtime = Runtime.choose(options.device, options.amp)
    on_gpu = runtime.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    step = measure(options.preset, options.steps, runtime, None)
    peak = torch.cuda.max_memory_allocated() / 1e9 if on_gpu else None
    images = scored_a_second(options.preset, runtime)
    epoch = (COCO_STEPS * step["seconds_main"] + COCO_SCORED / images) / 60
    print(f"step: {step['seconds_main']:.4f} s, the bare network {step['seconds_bare']:.4f} s, in {step['amp']}")
    print(f"scores: {images:.0f} images/s")
    print(f"an epoch of COCO's size: {epoch:.2f} minutes (the paper, RTX 3090: 18.29)")
    if peak is not None:
        print(f"peak memory, with the bare network's: {peak:.2f} GB (the paper: 4.44; on paper: gpu_paper.py)")
    result = {"differences": differences, "step": step, "images_scored_a_second": images}
    result |= {"minutes_an_epoch": epoch, "peak_gb": peak}
    return finish("gpu", result, step["ratio_median"], GPU_TARGET, options, same=same)


if __name__ == "__main__":
    sys.exit(main())
