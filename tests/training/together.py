"""All training stages and the evaluation on a converted set, as one process or as one of several: what test_distributed runs."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import tiny
import torch

from dicap.evaluation.evaluate import evaluate
from dicap.machine.runtime import Runtime
from dicap.settings.catalogue import OWN_HEAD
from dicap.settings.methods import METHODS
from dicap.training.experiment import Experiment
from dicap.training.parallel.process_group import ProcessGroup

# No BatchNorm and no dropout: two processes normalise by the statistics of their own images and drop other entries than one
# process does, so with either the losses differ, and should.
CHANGES = {
    "backbone": "test_convnext",
    "network.stride": 32,
    "network.dropout": 0.0,
    "warmup.epochs": 1,
    "train.batch_size": 9,  # 2 + 7 images: neither divides
    "finetune.epochs": 1,  # of 2 or 3 images a step, which two processes do not share
}


SUMMING = [name for name in METHODS if name not in ("drml", "pclp")]  # those two run in one process only
RUNTIME = Runtime(torch.device("cpu"), workers=0)


def joined() -> ProcessGroup | None:
    """The other processes of the run; None where there are none."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return None
    from dicap.training.parallel.distributed import join

    return join(torch.device("cpu"))


def each(folder: Path, split: Path, place: Path) -> None:
    """An epoch of the last stage of every method whose losses are sums, from one new network, to `place`/<method>."""
    group = joined()
    for method in SUMMING:
        changes = CHANGES | {"method": method, "head": METHODS[method].head, "train.epochs": 1}
        if METHODS[method].head == OWN_HEAD:
            del changes["head"]
        experiment = Experiment.open(tiny.settings(changes), RUNTIME, folder, split, group)
        tiny.run_stage(experiment, "train" if METHODS[method].unlabelled else "warmup", None, place / method)
    experiment.group.close()


def run(folder: Path, split: Path, place: Path) -> None:
    """Warm-up, main stage, fine-tuning and evaluation to `place`."""
    group, runtime = joined(), RUNTIME
    experiment = Experiment.open(tiny.settings(CHANGES), runtime, folder, split, group)
    source = None
    for stage in ("warmup", "train", "finetune"):
        source = tiny.run_stage(experiment, stage, source, place) / "model.safetensors"
        experiment.group.any(False)  # the main process has written it
    evaluate(experiment, source, place, place / "evaluate")
    experiment.group.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    (each if "each" in sys.argv else run)(*map(Path, sys.argv[1:4]))
