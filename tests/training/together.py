"""All training stages and the evaluation on a converted set, as one process or as one of several: what test_distributed runs."""

import os
import sys
from pathlib import Path
from typing import Any

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


# Every method whose losses are sums (drml and pclp run in one process only); and DiCaP where few entries are contrasted, so that
# a process often has none.
CASES: dict[str, dict[str, Any]] = {
    name: {"method": name} | ({} if facts.head == OWN_HEAD else {"head": facts.head})
    for name, facts in METHODS.items()
    if name not in ("drml", "pclp")
}
FEW = {"thresholds.rule": "quota", "cap.eta_neg": 0.8}
CASES["few"] = {"method": "dicap"} | FEW
RUNTIME = Runtime(torch.device("cpu"), workers=0)


def stage_of(method: str) -> str:
    """The last stage that a method has before fine-tuning."""
    return "train" if METHODS[method].unlabelled else "warmup"


def joined() -> ProcessGroup | None:
    """The other processes of the run; None where there are none."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return None
    from dicap.training.parallel.distributed import join

    return join(torch.device("cpu"))


def run(folder: Path, split: Path, place: Path) -> None:
    """Warm-up, main stage, fine-tuning and evaluation to `place`; an epoch of each of CASES to `place`/<name>."""
    group = joined()
    experiment = Experiment.open(tiny.settings(CHANGES), RUNTIME, folder, split, group)
    source = None
    for stage in ("warmup", "train", "finetune"):
        source = tiny.run_stage(experiment, stage, source, place) / "model.safetensors"
        experiment.group.any(False)  # the main process has written it
    evaluate(experiment, source, place / "evaluate")
    for name, changes in CASES.items():
        experiment = Experiment.open(tiny.settings(CHANGES | {"train.epochs": 1} | changes), RUNTIME, folder, split, group)
        tiny.run_stage(experiment, stage_of(changes["method"]), None, place / name)
    experiment.group.close()


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(*map(Path, sys.argv[1:4]))
