"""On a GPU no step waits for the device: its memory holds what the host says later, and the host runs ahead."""

import dataclasses

import pytest
import tiny
import torch

from dicap.machine.runtime import Runtime
from dicap.training.checkpoint.state import RunState
from dicap.training.loops.main import train
from dicap.training.trainer import Trainer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Watch:
    """A stop signal that never comes, and that lets nothing wait for the device from one step's end to the next one's."""

    def __init__(self, steps):
        self.steps, self.looks = steps, 0

    def __bool__(self):
        self.looks += 1
        torch.cuda.set_sync_debug_mode("error" if 1 <= self.looks % (self.steps + 1) < self.steps else "default")
        return False


@pytest.mark.parametrize("amp", ["off", "auto", "fp16"])
def test_no_step_waits_for_the_device(tiny_experiment, trained, tmp_path, amp):
    runtime = Runtime.choose("cuda", amp=amp, workers=0)
    experiment = dataclasses.replace(tiny_experiment({"train.epochs": 2}), runtime=runtime)
    network = tiny.network_of(experiment, trained / "warmup" / "model.safetensors")()
    phase = experiment.method.main(experiment.roles)
    pieces, rest = divmod(len(phase.unlabelled), phase.batch_unlabelled)
    watch = Watch(pieces + (rest > 1))
    try:
        with RunState(tmp_path, "train", "watched") as state:
            train(Trainer(experiment, "train", state, watch, lambda lines: None), network)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert watch.looks == 2 * (watch.steps + 1)
