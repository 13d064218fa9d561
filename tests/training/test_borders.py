"""Data sets and steps at the borders: they train through, or stop in one line."""

import numpy as np
import pandas as pd
import pytest
import tiny
import torch

from dicap.models import load_model
from training.test_resume import SOURCES, run_all


def raw_set(folder, relabel):
    """The photographs with their labels changed by `relabel(split, number, names)`."""
    table = pd.read_csv(tiny.photographs(folder) / "labels.csv", keep_default_na=False)
    for i, split, names in table[["split", "labels"]].itertuples():
        kept = relabel(split, i, names.split(";") if names else [])
        table.loc[i, "labels"] = "" if split == "unlabeled" else ";".join(kept) or "-"
    table.to_csv(folder / "labels.csv", index=False)
    return folder


BORDERS = {
    "one class": (lambda split, i, names: [n for n in names if n == "red"], {}),
    "one image in D_est": (None, {"split.est_fraction": 0.08}),
    "one image in D_sup": (None, {"split.est_fraction": 0.9}),
    "a class never labelled": (lambda split, i, names: names if split == "test" else [n for n in names if n != "red"], {}),
    "a class always labelled": (lambda split, i, names: sorted({*names, "red"}), {}),
    "a class that no test image has": (lambda split, i, names: [n for n in names if split == "train" or n != "red"], {}),
    "images without any label": (lambda split, i, names: names if split == "test" or i % 4 == 0 else [], {}),
    "a single bin": (None, {"calibration.bins": 1}),
    "empty bins count nothing": (None, {"calibration.empty_bin": "zero", "calibration.bins": 200}),
}


@pytest.mark.promise("Borderline data sets train: one class, one image in D_est, classes never seen", section="Numbers")
@pytest.mark.parametrize("name", BORDERS)
def test_a_borderline_data_set_trains_through(tiny_set, tmp_path, name):
    relabel, changes = BORDERS[name]
    folder = tiny_set if relabel is None else tiny.converted(raw_set(tmp_path / "raw", relabel), tmp_path / "table")
    changes = {"warmup.epochs": 1, "train.epochs": 1, "finetune.epochs": 1} | changes
    experiment = tiny.open_experiment(folder, tmp_path / "split.parquet", changes)
    model = load_model(run_all(experiment, tmp_path, SOURCES) / "finetune" / "model.safetensors")
    scores = experiment.predict(model.network, np.arange(experiment.store.n))
    assert torch.isfinite(scores).all()
    losses = [pd.read_csv(tmp_path / stage / "history.csv") for stage in SOURCES]
    assert all(np.isfinite(frame["loss"]).all() for frame in losses)
