"""Pseudo-labels kept as those of a large set (calibration.storage): halves in memory, sparse in Parquet."""

import numpy as np
import pandas as pd
import pytest
import tiny
import torch

from dicap.files.artifacts import epoch_file, left_out, read_pseudo_labels
from dicap.report.evidence import histogram_of_record
from dicap.settings.catalogue import METHODS
from dicap.training import experiment as experiments
from dicap.training.loops.main import first_refresh
from dicap.training.teacher import EpochTeacher
from training.test_resume import disturb, stop_after

SPARSE = {"calibration.storage": "sparse"}


@pytest.fixture
def source(trained):
    return trained / "warmup" / "model.safetensors"


class Rounded(EpochTeacher):
    """A teacher in single precision whose scores were rounded."""

    def scores(self, rows):
        return super().scores(rows).half().float()


def test_it_trains_on_what_single_precision_makes_of_the_rounded_scores(tiny_experiment, trained, source, tmp_path):
    experiment = tiny_experiment(SPARSE)
    out = tiny.run_stage(experiment, "train", source, tmp_path)
    path, network = epoch_file(out, "pseudo_labels", 0), tiny.network_of(experiment, source)()
    expected = experiment.method.refresh(Rounded(experiment, network, network, 0, {}), experiment.roles).pseudo
    found = read_pseudo_labels(path)
    held = ~np.isnan(found.weight)
    assert (found.label == expected.label.numpy()).all() and held.any() and (found.label[~held] <= 0).all()
    assert (found.weight[held] == expected.weight.half().numpy()[held]).all()
    numbers = histogram_of_record(path)[2]
    assert numbers == {k: int((found.label == k).sum()) for k in (1, 0, -1)} and numbers[0] > 0
    columns = [list(pd.read_csv(folder / "history.csv")) for folder in (trained / "train", out)]
    assert columns[0] == columns[1]


def test_stopped_at_every_third_step_it_ends_in_the_same_bytes(tiny_experiment, source, tmp_path):
    experiment = tiny_experiment(SPARSE)
    whole = tiny.run_stage(experiment, "train", source, tmp_path / "whole")
    out, stops, _ = disturb(experiment, "train", source, tmp_path / "again", interrupt=stop_after(lambda attempt: 3))
    assert stops and tiny.content(out) == tiny.content(whole)


@pytest.mark.parametrize("method", ["cap", "top1", "iat", "pclp", "bbam", "d2l"])
def test_labels_of_halves_are_those_of_the_same_numbers(tiny_experiment, method, tmp_path):
    experiment = tiny_experiment({"method": method, "head": METHODS[method].head} | SPARSE)
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
