"""No step of any stage waits for the device: also on a processor it reads no value, and no shape depends on one.

Outside of steps the host waits: a refresh and an epoch's end read scores and means for NumPy and the history. On which device
tensors lie, and what is copied between host and device, a real GPU tells (tests/training/test_cuda.py, benchmarks/gpu_day.py).
"""

import sys

import pytest
import tiny
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dicap.settings.catalogue import OWN_HEAD
from dicap.settings.methods import METHODS
from dicap.training.trainer import Trainer

SMALL = {"warmup.epochs": 1, "train.epochs": 1, "finetune.epochs": 1, "warmup.batch_size": 7, "train.batch_size": 12}
SMALL |= {"pclp.warmup_epochs": 1, "pclp.warmup_unlabelled": 14, "pclp.adversary_size": 8}
SMALL |= {"drml.rounds": 4, "drml.iterations": 1, "drml.features": "warmup"}
EACH = {
    method: {"method": method} | ({} if facts.head == OWN_HEAD else {"head": facts.head}) for method, facts in METHODS.items()
}
EACH |= {
    "both views": {"warmup.wcl": True, "contrastive.weak_gradient": True, "head": "linear"},
    "means, soft": {"loss.reduction": "mean", "calibration.target": "soft", "calibration.policy": "optimal"},
    "matched": {"method": "iat", "iat.rule": "matched", "head": "linear"},
    "on features": tiny.FROZEN | {"head": "linear"},
}
READS = {"_local_scalar_dense", "equal", "is_nonzero", "_linalg_check_errors"}
LOADER = ("_local_scalar_dense", "load")  # torch's loader draws a seed on the host
SHAPED = {"nonzero", "masked_select", "bincount", "_unique2", "unique_dim", "unique_consecutive", "histc"}


class Watch(TorchDispatchMode):
    """Notes the operations that wait for the values of a tensor, and the function of `dicap` that calls them."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        is_index = name in ("index", "index_put", "index_put_")
        masks = [i for i in args[1] if i is not None and i.dtype == torch.bool] if is_index else []
        filled = is_index and name != "index" and args[2].numel() == 1  # a mask filled with one value
        if name in READS | SHAPED or (masks and not filled):
            frame = sys._getframe(1)
            while frame is not None and "/dicap/" not in frame.f_code.co_filename:
                frame = frame.f_back
            self.seen.add((name, frame and frame.f_code.co_qualname))
        return func(*args, **(kwargs or {}))


def stages_of(method):
    return ["warmup"] + ["train"] * METHODS[method].unlabelled + ["finetune"] * METHODS[method].finetunes


@pytest.mark.parametrize("name", EACH)
def test_no_step_of_any_stage_waits(tiny_experiment, frozen_experiment, monkeypatch, tmp_path, name):
    seen, batches = set(), Trainer.batches

    def watched(run, source):
        with Watch(seen):
            yield from batches(run, source)

    monkeypatch.setattr(Trainer, "batches", watched)
    monkeypatch.setattr(Trainer, "_check_finite", lambda run: None)  # on a GPU every CHECK_EVERY steps
    experiment = (frozen_experiment if name == "on features" else tiny_experiment)(SMALL | EACH[name])
    tiny.run_stages([(stage, experiment) for stage in stages_of(experiment.settings.method)], tmp_path)
    assert not seen - {LOADER}
