"""Several processes that share each step against one, in one run.

    python benchmarks/scaling.py [--processes 2] [--preset table]

Both train the pipeline's main stage on the same made-up set with the same batch of the whole step, each process on one core
(one thread) or one GPU. They take turns; of two epochs the second counts, loader and communication included.

Writes benchmarks/results/scaling.json and ends with `scaling ratio=R target=T`, R: images/s of N processes over those of one,
T: 0.75 N (one machine, gloo) or 0.9 N (GPUs). Exits 1 below the target.
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import Parser, finish, run_apart
from made_up import opened, settings
from step import PRESETS

from dicap.machine.runtime import Runtime
from dicap.settings.batch_sizes import labelled_batch
from dicap.training.checkpoint.state import RunState, StopSignal
from dicap.training.loops.main import train
from dicap.training.loops.warmup import initial_network
from dicap.training.trainer import Trainer
from stages.support.launch import launch

EFFICIENCY = {"cpu": 0.75, "cuda": 0.9}


def work(preset: str, steps: int, answer: Path) -> None:
    """Train two short epochs as this process of several (or the only one); the first writes images/s to `answer`."""
    import pandas as pd

    torch.set_num_threads(1)
    runtime, group = Runtime.choose(), None
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        from dicap.training.parallel.distributed import join

        group = join(runtime.device)
    changes, classes = PRESETS[preset]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        s = settings(place, changes | {"train.epochs": 2, "train.eval_every": 2})
        labelled = labelled_batch(s.train.batch_labelled, s.ratio, s.train.batch_size)
        images = max(int(steps * (s.train.batch_size - labelled) / 0.96), 400)
        experiment = opened(place, s, runtime, images=images, tests=16, classes=classes, group=group)
        with RunState(place, "train", "benchmark") as state:  # each process has a folder of its own
            train(Trainer(experiment, "train", state, StopSignal(), lambda lines: None), initial_network(experiment))
            if experiment.group.is_main:
                last = pd.read_csv(state.cost).iloc[-1]
                minutes = last["minutes_data"] + last["minutes_step"]
                answer.write_text(str(len(experiment.roles.unsup) / (60 * minutes)))
        experiment.group.close()


def main() -> int:
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]))
        return 0
    gpus = torch.cuda.device_count()
    options = Parser(__doc__, "scaling", preset="digits", steps=2)
    options.add_argument("--processes", type=int, default=gpus if gpus > 1 else 2)
    options.add_argument("--preset", choices=list(PRESETS), default="coco" if gpus > 1 else "table")
    options.add_argument("--steps", type=int, default=200 if gpus > 1 else 6)
    options = options.options()
    os.environ["OMP_NUM_THREADS"] = "1"
    rates: dict[str, list[float]] = {"one": [], "several": []}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "rate"
        arguments = ["--work", options.preset, str(options.steps), str(answer)]
        for _ in range(options.rounds):
            run_apart(Path(__file__), *arguments)
            rates["one"].append(float(answer.read_text()))
            if launch(options.processes, [sys.executable, __file__, *arguments]):
                sys.exit("the processes did not finish; their messages are above")
            rates["several"].append(float(answer.read_text()))
    ratio = statistics.median(b / a for a, b in zip(rates["one"], rates["several"], strict=True))
    kind = "cuda" if gpus else "cpu"
    for name, values in rates.items():
        print(f"{name:10}{statistics.median(values):>10.1f} unlabelled images/s")
    result = {
        "processes": options.processes,
        "preset": options.preset,
        "device": kind,
        "images_per_s": {name: [round(value, 1) for value in values] for name, values in rates.items()},
        "efficiency": round(ratio / options.processes, 3),
    }
    return finish("scaling", result, ratio, EFFICIENCY[kind] * options.processes, options)


if __name__ == "__main__":
    sys.exit(main())
