"""DiCaP's main step against the bare network, in one run.

    python benchmarks/step.py [--preset table] [--steps 20]

The main step is the pipeline's own (`dicap.training.loops.main.train`): loader, labelled and unlabelled strong views, weak views
of the images with uncertain entries and their forward pass, the three losses, backward, AdamW, EMA, finite check, clean-stop
check. The bare network does, on a batch already in memory, forward, backward and AdamW for as many images as the step has
strong views, and a forward pass without gradient for as many as it has weak ones: with the same network and precision. On a
processor the two take turns step by step, on a GPU block by block, the device waited for at both ends of a block.

Presets: `table` is the configuration for own photographs (EfficientNet-Lite0, 128 px), `digits` the default run's, `coco` the
published one (ResNet-50, 224 px, 80 classes, 4 + 60 images), which is the default on a GPU.

Writes benchmarks/results/step.json and ends with `step ratio=R target=T`, R: images/s of the main step over those of the bare
network (T 0.85, on a GPU 0.92). Exits 1 below the target.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import Parser, finish
from made_up import opened, settings

from dicap.machine.processes import keep_freed_memory
from dicap.machine.runtime import Runtime
from dicap.settings.batch_sizes import labelled_batch
from dicap.training import inputs
from dicap.training.checkpoint.state import RunState
from dicap.training.loops.main import train
from dicap.training.loops.warmup import initial_network
from dicap.training.trainer import Trainer

TARGET, GPU_TARGET = 0.85, 0.92
BLOCK = 20  # steps of a turn on a GPU
PRESETS = {
    "table": ({"dataset": "table", "data_root": ".", "backbone_weights": "random"}, 20),
    "digits": ({"dataset": "digits"}, 10),
    "coco": ({"dataset": "coco2014", "data_root": ".", "backbone_weights": "random"}, 80),
}


class Bare:
    """The bare network, in the place of a stop signal: a run looks at it after each step, and then it takes one itself."""

    def __init__(self, network: torch.nn.Module, runtime: Runtime, side: int) -> None:
        self.network, self.runtime, self.side = network.to(runtime.device).train(), runtime, side
        self.optimiser = torch.optim.AdamW(network.parameters(), lr=1e-4, weight_decay=1e-4, fused=True)
        self.wanted: list[tuple[int, int]] = []  # strong and weak views of each step
        self.at, self.pending = 0, 0
        self.done: list[tuple[int, float, float]] = []  # steps of a turn, seconds of the main step, of the bare network
        self.since: float | None = None
        self.pool = torch.empty(0)

    def expect(self, requests) -> None:
        """The steps that will follow."""
        self.wanted = [
            tuple(sum(len(r.rows) for r in step if (r.key == "weak") == weak) for weak in (False, True)) for step in requests
        ]
        most = max(strong + weak for strong, weak in self.wanted)
        pixels = torch.randint(0, 256, (most, self.side, self.side, 3), dtype=torch.uint8)
        self.pool = pixels.to(self.runtime.device).permute(0, 3, 1, 2)
        self.at, self.pending = 0, 0
        self.since = None

    def __bool__(self) -> bool:
        if not self.wanted or self.at + self.pending == len(self.wanted):  # between epochs
            return False
        self.pending += 1
        block = 1 if self.runtime.device.type == "cpu" else BLOCK
        if self.pending < block and self.at + self.pending < len(self.wanted):
            return False
        self._wait()
        now = time.perf_counter()
        main = None if self.since is None else now - self.since
        for strong, weak in self.wanted[self.at : self.at + self.pending]:
            self.step(strong, weak)
        self._wait()
        after = time.perf_counter()
        if main is not None:  # the first turn has no beginning
            self.done.append((self.pending, main, after - now))
        self.at, self.pending = self.at + self.pending, 0
        self.since = time.perf_counter()
        return False

    def step(self, strong: int, weak: int) -> None:
        """Forward, backward and AdamW on `strong` images, forward on `weak`."""
        self.optimiser.zero_grad(set_to_none=True)
        with self.runtime.autocast():
            logits, z = self.network(self.pool[:strong])
            if weak:
                with torch.no_grad():
                    self.network(self.pool[strong : strong + weak])
        (logits.float().square().mean() + z.float().square().mean()).backward()
        self.optimiser.step()

    def _wait(self) -> None:
        if self.runtime.device.type == "cuda":
            torch.cuda.synchronize()


def measure(preset: str, count: int, runtime: Runtime, batch: int | None) -> dict:
    """Seconds of both, step by step."""
    changes, classes = PRESETS[preset]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        more = {"train.batch_size": batch} if batch else {}
        s = settings(place, changes | more | {"ratio": 0.05, "train.epochs": 2, "train.eval_every": 2})
        unlabelled = s.train.batch_size - labelled_batch(s, s.ratio)
        images = max(int(count * unlabelled / 0.96), 100)
        experiment = opened(place, s, runtime, images=images, tests=16, classes=classes)
        bare = Bare(initial_network(experiment), runtime, s.image_size)
        load = inputs.load

        def watched(store, requests, **options):
            bare.expect(requests)
            return load(store, requests, **options)

        inputs.load = watched
        try:
            with RunState(place, "train", "benchmark") as state:
                train(Trainer(experiment, "train", state, bare, lambda lines: None), initial_network(experiment))  # type: ignore[arg-type]
        finally:
            inputs.load = load
        every = len(bare.done) // 2  # of two epochs the first warms up
        turns = bare.done[every:]
        strong = [wanted[0] for wanted in bare.wanted]
        weak = [wanted[1] for wanted in bare.wanted]
    ratios = [b / a for _, a, b in turns]
    return {
        "preset": preset,
        "device": str(runtime.device),
        "amp": str(runtime.amp),
        "backbone": s.backbone,
        "image_size": s.image_size,
        "batch": [s.train.batch_size - unlabelled, unlabelled],
        "steps": sum(n for n, _, _ in turns),
        "strong_views_a_step": statistics.mean(strong),
        "weak_views_a_step": statistics.mean(weak),
        "seconds_main": round(statistics.median(a / n for n, a, _ in turns), 5),
        "seconds_bare": round(statistics.median(b / n for n, _, b in turns), 5),
        "ratio_of_turns": [round(value, 3) for value in ratios],
        "ratio_median": statistics.median(ratios),
        "ratio_total": sum(b for _, _, b in turns) / sum(a for _, a, _ in turns),
    }


def main() -> int:
    gpu = torch.cuda.is_available()
    options = Parser(__doc__, "step", preset="digits", steps=2)
    options.add_argument("--preset", choices=list(PRESETS), default="coco" if gpu else "table")
    options.add_argument("--steps", type=int, default=400 if gpu else 12, help="steps per epoch; of two epochs the second counts")
    options.add_argument("--batch", type=int, help="images per step, for a quick try")
    options.add_argument("--workers", type=int)
    options = options.options()
    keep_freed_memory()  # as a stage that trains, for both
    runtime = Runtime.choose(workers=options.workers)
    result = measure(options.preset, options.steps, runtime, options.batch)
    images = result["strong_views_a_step"] + result["weak_views_a_step"]
    print(f"{options.preset} on {result['device']}: {result['backbone']} at {result['image_size']} px, ", end="")
    print(f"{result['strong_views_a_step']:.0f} strong and {result['weak_views_a_step']:.0f} weak views per step")
    for name in ("main", "bare"):
        print(
            f"{name:6}{1000 * result[f'seconds_{name}']:>10.1f} ms per step{images / result[f'seconds_{name}']:>10.1f} images/s"
        )
    return finish("step", result, result["ratio_median"], GPU_TARGET if gpu else TARGET, options)


if __name__ == "__main__":
    sys.exit(main())
