"""Pseudo-labels kept as those of a large set (calibration.storage): halves in memory, sparse in Parquet."""

import numpy as np
import pandas as pd
import pytest
import tiny
import torch

from dicap.artifacts import epoch_file, left_out, read_pseudo_labels
from dicap.errors import DataError, Stopped
from dicap.report.evidence import histogram_of_record
from dicap.training import experiment as experiments
from dicap.training import run
from dicap.training.given_back import last_pseudo_labels
from dicap.training.main import first_refresh
from training.test_resume import StopAfter

SPARSE = {"calibration.storage": "sparse"}


@pytest.fixture
def source(trained):
    return trained / "warmup" / "model.safetensors"


def test_it_trains_as_from_a_dense_record_but_for_rounding(tiny_experiment, trained, source, tmp_path):
    out = tiny.run_stage(tiny_experiment(SPARSE), "train", source, tmp_path)
    dense, sparse = (epoch_file(folder, "pseudo_labels", 0) for folder in (trained / "train", out))
    assert left_out(dense) is None and left_out(sparse) is not None
    whole, found = read_pseudo_labels(dense), read_pseudo_labels(sparse)
    assert found.ids == whole.ids and (found.label == whole.label).mean() > 0.9
    held = (found.label == whole.label) & ~np.isnan(found.weight)
    assert held.any() and np.allclose(found.weight[held], whole.weight[held], atol=5e-3)
    for one, other in zip(histogram_of_record(dense)[2].items(), histogram_of_record(sparse)[2].items(), strict=True):
        assert one[0] == other[0] and abs(one[1] - other[1]) <= 0.1 * whole.label.size
    rows = [pd.read_csv(folder / "history.csv") for folder in (trained / "train", out)]
    assert list(rows[0]) == list(rows[1])
    assert np.allclose(rows[0]["loss"], rows[1]["loss"], rtol=0.1)


def test_stopped_at_every_third_step_it_ends_in_the_same_bytes(tiny_experiment, source, tmp_path):
    experiment, stops = tiny_experiment(SPARSE), 0
    whole = tiny.run_stage(experiment, "train", source, tmp_path / "whole")
    while True:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run, "StopSignal", lambda: StopAfter(3))
            try:
                out = tiny.run_stage(experiment, "train", source, tmp_path / "again")
                break
            except Stopped:
                stops += 1
    assert stops and tiny.content(out) == tiny.content(whole)


@pytest.mark.parametrize("method", ["cap", "top1", "iat", "pclp", "bbam", "d2l"])
def test_labels_of_halves_are_those_of_the_same_numbers(tiny_experiment, method, tmp_path):
    experiment = tiny_experiment({"method": method, "head": None} | SPARSE)
    phase, network = experiment.method.main(experiment.roles), tiny.network_of(experiment, None)()
    first_refresh(experiment, network, tmp_path)
    found = read_pseudo_labels(epoch_file(tmp_path, "pseudo_labels", 0))
    assert left_out(epoch_file(tmp_path, "pseudo_labels", 0)) is not None
    assert found.ids == experiment.store.ids[phase.unlabelled].tolist() and set(np.unique(found.label)) <= {-1, 0, 1}


def test_auto_is_sparse_above_its_number_of_entries(tiny_experiment, monkeypatch):
    for changes, number, expected in (({}, 10, True), ({}, 10**6, False), ({"calibration.storage": "dense"}, 10, False)):
        monkeypatch.setattr(experiments, "DENSE_ENTRIES", number)
        experiment = tiny_experiment(changes)
        assert experiment.is_sparse(experiment.method.main(experiment.roles)) is expected


def test_scores_are_kept_as_halves(tiny_experiment, source):
    experiment = tiny_experiment()
    network, rows = tiny.network_of(experiment, source)(), experiment.roles.unsup
    singles, halves = (experiment.predict(network, rows, dtype=dtype) for dtype in (torch.float32, torch.float16))
    assert torch.equal(singles.half(), halves)


def test_labels_given_back_need_the_dense_record(tiny_experiment, source, tmp_path):
    out = tiny.run_stage(tiny_experiment(SPARSE), "train", source, tmp_path)
    with pytest.raises(DataError, match=r"which finetune\.labels all needs; set calibration\.storage to dense"):
        last_pseudo_labels(out, tiny_experiment({"finetune.labels": "all"}))
