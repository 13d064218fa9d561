"""Every stage of every method on a pretended GPU: nothing lies on the wrong device, and no step waits for it.

What waits outside a step, and why, is the table `WAITS`; an entry that nothing needs any more is an error too.

Not here: a solved head (`linear.solver` convex) and the folds of `cross_fit` on it are fitted by SciPy on the processor, whose
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

# (part of an epoch, place) -> (kinds, why the host waits there). In a step: nothing.
WAITS = {
    ("check", "training/trainer:Trainer.batches"): ("reads", "the finite flag, each CHECK_EVERY steps and at an epoch's end"),
    ("state", "training/optimisation:Optimisation.state_dict"): ("reads", "the loss scale, each SAVE_SECONDS"),
    ("refresh", "training/teacher:EpochTeacher.labels"): ("to device", "the labels of D_l, once a refresh"),
    ("refresh", "methods/dicap:DiCaP.refresh"): (
        "reads, to device, to host, shape",
        "rows of D_est",
    ),
    ("refresh", "methods/rules:quota"): ("reads, to device, to host, shape", "the ranks of all scores, by NumPy"),
    ("refresh", "methods/rules:default_k"): ("reads", "k is a number of the host"),
    ("refresh", "methods/rules:matched_threshold"): ("reads, shape", "one threshold for all classes; the known entries"),
    ("refresh", "methods/bbam:BBAM._leaking_scores"): ("to device", "labels that the option is named after reading"),
    ("refresh", "frozen/estimators:estimate_curve"): ("to host", "the shares of the classes, by NumPy"),
    ("refresh", "frozen/estimators:fit_curve"): ("to host", "the curve is fitted by NumPy and SciPy"),
    ("refresh", "frozen/estimators:_mean_of_bins"): ("shape", "entries of each bin"),
    ("refresh", "calibration/curve:Curve.to"): ("to device", "a curve that was fitted on the processor"),
    ("refresh", "calibration/rates:Rates.cpu"): ("to host", "rates of the bins, for the history"),
    ("refresh", "training/diagnostics:Diagnostics._compared"): (
        "to host",
        "hidden labels stay on the host, scores come there",
    ),
    ("refresh", "training/diagnostics:Diagnostics.summary"): ("reads, to host", "the shares of the history; the bins' rates"),
    ("refresh", "training/diagnostics:_mean_and_deviation"): ("reads", "the weights of the history"),
    ("evaluation", "training/diagnostics:map_of_scores"): ("to host", "mAP is computed by NumPy"),
    ("else", "training/diagnostics:map_of_scores"): ("to host", "mAP of DRML's classifiers"),
    ("else", "training/batches:MainBatches.__init__"): ("to host", "the labels plan which images get weak views, once an epoch"),
    ("else", "training/loops/drml:train"): ("to host", "which images are adopted plans the round"),
    ("else", "training/trainer:Trainer.end_epoch"): ("reads", "the means of the losses, for the history"),
    ("else", "training/decisions:_scores"): ("to host", "the curve from before fine-tuning"),
}

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
    "class_score": {"calibration.estimator": "class_score"},
    "optimal": {"calibration.policy": "optimal"},
    "quota": {"thresholds.rule": "quota"},
    "both views": {"warmup.wcl": True, "contrastive.weak_gradient": True},
    "mean": {"loss.reduction": "mean", "calibration.target": "soft"},
    "matched": {"method": "iat", "iat.rule": "matched"},
    "distance": {"method": "drml", "drml.select": "distance"},
    "first_epoch": {"method": "bbam", "bbam.labelled_mask": "first_epoch", "bbam.transform": "hidden_labels", "train.epochs": 2},
}
found_anywhere: set[tuple[str, str]] = set()


def stages_of(method):
    return ["warmup"] + ["train"] * METHODS[method].unlabelled + ["finetune"] * METHODS[method].finetunes


def on_pretended_gpu(experiment, stage, amp=None, saved=None, inputs=None, device=CUDA):
    """The stage's loop, from begin to publish, as the program runs it; what it waited for, and the trainer."""
    here = replace(experiment, runtime=Runtime(device, amp, 0), inputs=inputs or Views(experiment.settings.image_size))
    network = here.method.build_network(pretrained=False, stored=here.stored_backbone)
    with pretended(device) as watch:
        run = Watched(here, stage, watch, saved)
        loop_of(stage, here.settings)(run, here.place(network))
        assert run.published and run.optimisation.steps > 0
    return watch.found, run


def only_listed(found, table):
    for part, place, kind in found:
        assert (part, place) in table, f"{place} waits for the device in {part}: {kind}"
        assert kind in table[part, place][0].split(", "), (part, place, kind)
        found_anywhere.add((part, place))


@pytest.mark.parametrize(("method", "head"), EACH)
def test_every_stage_keeps_to_the_device_and_no_step_waits(tiny_experiment, method, head):
    experiment = tiny_experiment(SMALL | {"method": method} | ({} if head == OWN_HEAD else {"head": head}))
    for stage in stages_of(method):
        only_listed(on_pretended_gpu(experiment, stage)[0], WAITS)


@pytest.mark.parametrize("changes", MORE.values(), ids=MORE)
def test_so_do_the_other_rules(tiny_experiment, changes):
    experiment = tiny_experiment(SMALL | {"head": "linear"} | changes)
    for stage in ("warmup", "train") if "warmup.wcl" in changes else ("train",):
        only_listed(on_pretended_gpu(experiment, stage)[0], WAITS)


def test_so_does_a_head_on_features(frozen_experiment):
    experiment = frozen_experiment(SMALL | {"head": "linear"})
    for stage in ("warmup", "train", "finetune"):
        only_listed(on_pretended_gpu(experiment, stage, inputs=experiment.inputs)[0], WAITS)


@pytest.mark.parametrize("method", ["dicap", "d2l", "drml", "pclp", "bbam", "cap"])
def test_the_backward_pass_and_adamw_wait_for_nothing_either(tiny_experiment, method):
    experiment = tiny_experiment(SMALL | {"method": method})
    found, run = on_pretended_gpu(experiment, "train", device=torch.device("meta"))
    in_turn = ("step", "machine/runtime:Runtime.put", "to device")  # only memory for a GPU is pinned
    only_listed({key for key in found if key != in_turn}, WAITS)
    trained = [p for group in run.optimisation.param_groups.values() for p in group.parameters]
    assert all(p.grad is not None and p.grad.device.type == "meta" for p in trained)


@pytest.mark.parametrize("amp", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize("method", ["dicap", "drml", "pclp"])
def test_so_do_mixed_precision_and_the_loss_scaler(tiny_experiment, method, amp):
    experiment = tiny_experiment(SMALL | {"method": method, "pclp.prior": "none"})
    found, run = on_pretended_gpu(experiment, "train", amp)
    only_listed(found, WAITS)
    assert run.optimisation.scaler.is_enabled() == (amp is torch.float16)


def test_a_state_of_the_host_goes_on_on_the_device(tiny_experiment):
    """The hand-over of a checkpoint, and of the model of one stage to the next: everything is where the network is."""
    experiment = tiny_experiment(SMALL)
    _, run = on_pretended_gpu(experiment, "train")
    found, again = on_pretended_gpu(experiment, "train", saved=read_back(run.state_then))
    assert again.optimisation.steps == run.optimisation.steps
    only_listed({key: n for key, n in found.items() if key[0] != "else" or key[1:] not in HAND_OVER}, WAITS)
    optimisation = again.optimisation
    tensors = [*optimisation.ema.state_dict().values(), *optimisation.network.state_dict().values()]
    tensors += [t for state in optimisation.optimiser.state.values() for t in state.values()]
    assert len(tensors) > 20 and {t.device.type for t in tensors} == {"cuda"}


HAND_OVER = {
    *(("training/optimisation:Optimisation.load_state_dict", kind) for kind in ("to device", "reads")),
    *(("training/trainer:Trainer.begin_with", kind) for kind in ("to device",)),
    ("methods/base:Refresh.from_state_dict", "to device"),
    ("training/teacher:EpochTeacher.__post_init__", "to device"),
}


def test_the_table_holds_nothing_that_no_stage_waits_for():
    if len(found_anywhere) > 20:  # all of the tests above ran in this process
        assert set(WAITS) == found_anywhere
