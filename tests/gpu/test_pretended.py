"""Every stage of every method on a pretended GPU: nothing lies on the wrong device, and no step waits for it.

Outside of steps the host waits: a refresh and an epoch's end read scores and means for NumPy and the history.

Not here: a solved head (`linear.solver` convex) and the folds of the recommended rule are fitted by SciPy on the processor, whose
values a pretended GPU does not have.
"""

from dataclasses import replace

import pytest
import torch

from dicap.machine.runtime import Runtime
from dicap.settings.catalogue import OWN_HEAD
from dicap.settings.methods import METHODS
from dicap.training.loops.table import loop_of

from .pretended import CUDA, Views, Watched, pretended, read_back

IN_TURN = ("machine/runtime:Runtime.put", "to device")  # only memory for a GPU is pinned, so on `meta` none is
SMALL = {"warmup.epochs": 1, "train.epochs": 1, "finetune.epochs": 1, "warmup.batch_size": 7, "train.batch_size": 12}
SMALL |= {
    "pclp.warmup_epochs": 1,
    "pclp.warmup_unlabelled": 14,
    "pclp.adversary_size": 8,
    "drml.rounds": 3,
    "drml.iterations": 1,
    "drml.features": "warmup",
}
EACH = [*((method, facts.head) for method, facts in METHODS.items()), ("dicap", "linear"), ("cap", "ml_decoder")]
MORE = {
    "optimal": {"calibration.policy": "optimal"},
    "both views": {"warmup.wcl": True, "contrastive.weak_gradient": True},
    "mean": {"loss.reduction": "mean", "calibration.target": "soft"},
    "matched": {"method": "iat", "iat.rule": "matched"},
    "distance": {"method": "drml", "drml.select": "distance"},
    "first_epoch": {"method": "bbam", "bbam.labelled_mask": "first_epoch", "bbam.transform": "hidden_labels", "train.epochs": 2},
}


def stages_of(method):
    return ["warmup"] + ["train"] * METHODS[method].unlabelled + ["finetune"] * METHODS[method].finetunes


def on_pretended_gpu(experiment, stage, amp=None, saved=None, inputs=None, device=CUDA):
    """The trainer after the stage's loop, from begin to publish, as the program runs it: no step of it has waited."""
    here = replace(experiment, runtime=Runtime(device, amp, 0), inputs=inputs or Views(experiment.settings.image_size))
    network = here.method.build_network(pretrained=False, stored=here.stored_backbone)
    with pretended(device) as watch:
        run = Watched(here, stage, watch, saved)
        loop_of(stage, here.settings)(run, here.place(network))
        assert run.published and run.optimisation.steps > 0
    assert not watch.in_steps - ({IN_TURN} if device != CUDA else set()), stage
    return run


@pytest.mark.parametrize(("method", "head"), EACH)
def test_every_stage_keeps_to_the_device_and_no_step_waits(tiny_experiment, method, head):
    experiment = tiny_experiment(SMALL | {"method": method} | ({} if head == OWN_HEAD else {"head": head}))
    for stage in stages_of(method):
        on_pretended_gpu(experiment, stage)


@pytest.mark.slow
@pytest.mark.parametrize("changes", MORE.values(), ids=MORE)
def test_so_do_the_other_rules(tiny_experiment, changes):
    experiment = tiny_experiment(SMALL | {"head": "linear"} | changes)
    for stage in ("warmup", "train") if "warmup.wcl" in changes else ("train",):
        on_pretended_gpu(experiment, stage)


def test_so_does_a_head_on_features(frozen_experiment):
    experiment = frozen_experiment(SMALL | {"head": "linear"})
    for stage in ("warmup", "train", "finetune"):
        on_pretended_gpu(experiment, stage, inputs=experiment.inputs)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["dicap", "d2l", "drml", "pclp", "bbam", "cap"])
def test_the_backward_pass_and_adamw_wait_for_nothing_either(tiny_experiment, method):
    experiment = tiny_experiment(SMALL | {"method": method})
    run = on_pretended_gpu(experiment, "train", device=torch.device("meta"))
    trained = [p for group in run.optimisation.param_groups.values() for p in group.parameters]
    assert all(p.grad is not None and p.grad.device.type == "meta" for p in trained)


@pytest.mark.slow
@pytest.mark.parametrize("amp", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize("method", ["dicap", "drml", "pclp"])
def test_so_do_mixed_precision_and_the_loss_scaler(tiny_experiment, method, amp):
    experiment = tiny_experiment(SMALL | {"method": method, "pclp.prior": "none"})
    run = on_pretended_gpu(experiment, "train", amp)
    assert run.optimisation.scaler.is_enabled() == (amp is torch.float16)


def test_a_state_of_the_host_goes_on_on_the_device(tiny_experiment):
    """The hand-over of a checkpoint, and of the model of one stage to the next: everything is where the network is."""
    experiment = tiny_experiment(SMALL)
    run = on_pretended_gpu(experiment, "train")
    again = on_pretended_gpu(experiment, "train", saved=read_back(run.state_then))
    assert again.optimisation.steps == run.optimisation.steps
    optimisation = again.optimisation
    tensors = [*optimisation.ema.state_dict().values(), *optimisation.network.state_dict().values()]
    tensors += [t for state in optimisation.optimiser.state.values() for t in state.values()]
    assert len(tensors) > 20 and {t.device.type for t in tensors} == {"cuda"}
