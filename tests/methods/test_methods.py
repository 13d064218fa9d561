"""Every method through the loop on the tiny set: scores, records, hidden labels, unseen classes, resume."""

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from training.test_resume import run_all

from dicap.files.artifacts import read_pseudo_labels
from dicap.methods import build_method
from dicap.methods.base import Roles
from dicap.models import load_model
from dicap.settings.catalogue import OWN_HEAD
from dicap.settings.methods import METHODS
from dicap.training.experiment import Experiment

UNLABELLED = [name for name, facts in METHODS.items() if facts.unlabelled]


def changes_of(method):
    short = dict.fromkeys(("warmup.epochs", "train.epochs", "pclp.warmup_epochs"), 1)
    return short | {"method": method, "head": METHODS[method].head, "drml.features": "warmup"}


def test_the_statistics_of_bbam_are_the_network_s_and_its_average_s(tiny_experiment, tmp_path):
    out = run_all(tiny_experiment(changes_of("bbam")), tmp_path) / "train"
    heads = [load_model(out / name).network.head for name in ("model.safetensors", "model_ema.safetensors")]
    assert torch.equal(heads[0].mean, heads[1].mean) and torch.equal(heads[0].variance, heads[1].variance)
    assert (heads[0].variance > 0).any()


@pytest.mark.parametrize("method", [name for name in UNLABELLED if name != "dicap"])
def test_a_class_without_labelled_positives_gets_no_pseudo_positive(tiny_experiment, own_set, tmp_path, monkeypatch, method):
    """However sure the teacher is of the class."""
    predict, changes = Experiment.predict, changes_of(method)

    def sure(*arguments, **options):
        scores = predict(*arguments, **options)
        if scores.shape[-1] == len(tiny.COLOURS):
            scores[..., 1] = 0.999
        return scores

    monkeypatch.setattr(Experiment, "predict", sure)
    experiment = tiny_experiment(changes, folder=own_set)
    tiny.set_labels(own_set, experiment.roles.labelled, lambda labels: [c for c in labels if c != 1])
    out = run_all(tiny_experiment(changes, folder=own_set), tmp_path) / "train"
    found = sorted((out / "pseudo_labels").rglob("*.parquet"))
    assert found
    for path in found:
        ids, confidence, label, weight = read_pseudo_labels(path)
        assert len(ids) == len(experiment.roles.unlabelled) and confidence.shape == label.shape == weight.shape
        assert not (label[:, 1] == 1).any() and not weight[:, 1].any()
        assert ((weight >= 0) & (weight <= 1)).all() and not weight[label == -1].any()
    assert (pd.read_csv(out / "history.csv")["n_guarded"] >= 1).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("head", "kind"), [("linear", "LinearHead"), ("ml_decoder", "MLDecoder")])
def test_head_and_method_are_independent_and_scores_are_the_sigmoid_of_the_network_s_logits(method, head, kind):
    """Exports and other users rely on it."""
    own = METHODS[method].head == OWN_HEAD
    built = build_method(tiny.settings({"method": method, "head": OWN_HEAD if own else head}), 3)
    network, images = built.build_network().eval(), torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        logits, z = network(images)
        torch.testing.assert_close(torch.sigmoid(logits), built.scores(network, images))
    assert logits.shape == (2, 3) and (own or z.shape[:2] == (2, 3))
    assert own or any(type(module).__name__ == kind for module in network.modules())


def test_labelled_only_methods_read_all_labels():
    roles = Roles(np.array([3, 1]), np.array([2]), np.array([0, 4]), np.array([5]))
    for name in ("bce", "asl", "mld", "cap", "d2l", "drml"):
        assert build_method(tiny.settings({"method": name}), 3).warmup(roles).labelled.tolist() == [1, 2, 3]
