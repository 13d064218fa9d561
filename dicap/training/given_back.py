"""Stage 3 in another form: D_est's labels are given back.

The main stage keeps them from training to measure how often a pseudo-label is right. Once that is measured they are worth more
as labels, so what the main stage trained goes on, on all labels and on its last pseudo-labels with their weights. The curve was
counted on D_est before, and is carried over as for fine-tuning.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from dicap.artifacts import epoch_file, epochs, read_pseudo_labels
from dicap.calibration import PseudoLabels
from dicap.errors import DataError
from dicap.methods.base import Refresh
from dicap.training.decisions import before_finetuning
from dicap.training.experiment import Experiment
from dicap.training.main import learn
from dicap.training.trainer import Trainer


def finetune(run: Trainer, network: nn.Module) -> None:
    """The main stage's losses on D_l with its labels and on D_u with the last pseudo-labels of the main stage."""
    method, s, roles = run.method, run.settings, run.experiment.roles
    phase = replace(
        method.main(roles), labelled=roles.labelled, unlabelled=roles.unlabeled, begin=None, relabel=None, publishes="raw",
        epochs=s.finetune.epochs, cycle_epochs=0, lr=s.finetune.lr,
    )  # fmt: skip
    assert run.source is not None, "it follows a main stage"
    refresh = Refresh(last_pseudo_labels(run.source, run.experiment))
    before = before_finetuning(run.experiment, network.to(run.experiment.runtime.device))

    pseudo_weight = run.settings.linear.pseudo_weight if run.settings.solves("train") else 1.0
    options = {"eval_every": s.finetune.epochs, "patience": None, "ema_decay": s.finetune.ema_decay, "groups": ()}
    learn(run, network, phase, lambda: refresh, pseudo_weight=pseudo_weight, **options)
    run.publish(before)


def last_file(folder: Path) -> Path:
    """The record of the last epoch's pseudo-labels. Raises DataError if the main stage left none."""
    found = epochs(folder, "pseudo_labels")
    if not found:
        raise DataError(f"{folder}/pseudo_labels: no such folder; run `dvc repro train`")
    return epoch_file(folder, "pseudo_labels", found[-1])


def last_pseudo_labels(folder: Path, experiment: Experiment) -> PseudoLabels:
    """Those of D_u, in its order; D_est's, which stand beside them, are left out."""
    ids, confidence, label, weight = read_pseudo_labels(last_file(folder), whole_for="finetune.labels all")
    row_of = {name: row for row, name in enumerate(ids)}
    rows = np.array([row_of[name] for name in experiment.store.ids[experiment.roles.unlabeled]], np.int64)
    parts = (confidence[rows].astype(np.float32), label[rows], weight[rows].astype(np.float32))
    device, soft = experiment.runtime.device, experiment.settings.calibration.target == "soft"
    return PseudoLabels(*(torch.from_numpy(part).to(device) for part in parts), soft=soft)
