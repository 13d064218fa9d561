"""D_est's labels given back: all of them supervise, the curve stays the one that was counted before, nothing leaks."""

import numpy as np
import pytest
import tiny
import torch

from dicap.errors import DataError
from dicap.files.artifacts import epoch_file, read_pseudo_labels, write_pseudo_labels
from dicap.methods.dicap import DiCaP
from dicap.models import load_model
from dicap.training.loops.given_back import last_pseudo_labels
from training.test_leaks import hidden_rows, invert_labels, models
from training.test_resume import disturb, stop_after

BACK = {"finetune.labels": "all", "finetune.epochs": 2, "finetune.lr": 1e-3}


@pytest.fixture
def source(trained):
    return trained / "train" / "model.safetensors"


def test_all_labels_and_the_last_pseudo_labels_supervise_it(tiny_experiment, trained, source, monkeypatch, tmp_path):
    experiment, seen = tiny_experiment(BACK), []
    losses = DiCaP.main_losses

    def watched(method, network, batch):
        seen.append((batch.y.clone(), batch.label.clone(), batch.weight.clone()))
        return losses(method, network, batch)

    monkeypatch.setattr(DiCaP, "main_losses", watched)
    tiny.run_stage(experiment, "finetune", source, tmp_path)
    roles = experiment.roles
    given = torch.cat([y for y, _, _ in seen])
    assert len(given) >= len(roles.labelled), "each label is given at least once"
    known = {tuple(row) for row in tiny.hidden_labels(experiment, roles.est).tolist()}
    assert known & {tuple(row) for row in given.tolist()}
    ids, _, label, weight = read_pseudo_labels(epoch_file(trained / "train", "pseudo_labels", 1))
    rows = {name: i for i, name in enumerate(ids)}
    own = [rows[name] for name in experiment.store.ids[roles.unlabeled]]
    half = len(seen) // 2
    for epoch in (seen[:half], seen[half:]):  # a pass over D_u each, D_est not among it
        found = torch.cat([torch.cat([a.float(), b], 1) for _, a, b in epoch]).numpy()
        expected = np.concatenate([label[own], weight[own]], axis=1).astype(np.float32)
        assert np.array_equal(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)])


def test_pseudo_labels_are_found_by_name(tiny_experiment, tmp_path):
    experiment = tiny_experiment(BACK)
    names = experiment.store.ids[np.sort(np.concatenate([experiment.roles.unlabeled, experiment.roles.est]))][::-1]
    label = np.arange(len(names) * 3).reshape(-1, 3).astype(np.int8) % 2
    half = np.linspace(0, 1, label.size).reshape(label.shape).astype(np.float16)
    for epoch, table in ((0, label * 0), (1, label)):
        write_pseudo_labels(names, half, table, half, epoch_file(tmp_path, "pseudo_labels", epoch))
    found = last_pseudo_labels(tmp_path, experiment)
    for i, name in enumerate(experiment.store.ids[experiment.roles.unlabeled]):
        place = list(names).index(name)
        assert np.array_equal(found.label[i], label[place]) and np.array_equal(found.weight[i].numpy(), half[place])
    with pytest.raises(DataError, match="dvc repro train"):
        last_pseudo_labels(tmp_path / "nowhere", experiment)


def test_the_whole_network_goes_on_and_its_curve_was_counted_before(tiny_experiment, source, tmp_path):
    out = tiny.run_stage(tiny_experiment(BACK), "finetune", source, tmp_path)
    before, after = load_model(source), load_model(out / "model.safetensors")
    moved = [name for name, value in after.network.state_dict().items() if (value != before.network.state_dict()[name]).any()]
    assert any(name.startswith("backbone.") for name in moved) and any(name.startswith("head.") for name in moved)
    assert "kept from training, before fine-tuning, and carried over" in after.decisions.note


def test_stopped_at_every_third_step_it_ends_in_the_same_bytes(tiny_experiment, source, tmp_path):
    experiment = tiny_experiment(BACK)
    whole = tiny.run_stage(experiment, "finetune", source, tmp_path / "whole")
    out, stops, _ = disturb(experiment, "finetune", source, tmp_path / "again", interrupt=stop_after(lambda attempt: 3))
    assert stops and tiny.content(out) == tiny.content(whole)


def test_hidden_labels_change_no_byte_of_it(tiny_experiment, source, own_set, tmp_path):
    before = tiny.run_stage(tiny_experiment(BACK), "finetune", source, tmp_path / "before")
    for rows in hidden_rows(tiny_experiment()):
        invert_labels(own_set, rows)
    after = tiny.run_stage(tiny_experiment(BACK, folder=own_set), "finetune", source, tmp_path / "after")
    assert models(after) == models(before)
