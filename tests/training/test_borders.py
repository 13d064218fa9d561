"""Data sets and steps at the borders: they train through, or stop in one line."""

import csv

import numpy as np
import pandas as pd
import pytest
import tiny
import torch

from dicap.data.store import Store
from dicap.models import load_model

STAGES = ("warmup", "train", "finetune")


def raw_set(folder, relabel):
    """The photographs with their labels changed by `relabel(split, number, names)`."""
    tiny.photographs(folder)
    rows = [row.split(",") for row in (folder / "labels.csv").read_text().splitlines()]
    with open(folder / "labels.csv", "w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(rows[0])
        for i, (image, split, names) in enumerate(rows[1:]):
            kept = relabel(split, i, [name for name in names.split(";") if name])
            writer.writerow([image, split, (";".join(kept) or "-") if split != "unlabeled" else ""])
    return folder


def run_all(experiment, place):
    source = None
    for stage in STAGES:
        source = tiny.run_stage(experiment, stage, source, place) / "model.safetensors"
    return source


BORDERS = {
    "one class": (lambda split, i, names: [n for n in names if n == "red"], {}),
    "one image in D_est": (None, {"split.est_fraction": 0.08}),
    "one image in D_sup": (None, {"split.est_fraction": 0.9}),
    "a class never labelled": (lambda split, i, names: names if split == "test" else [n for n in names if n != "red"], {}),
    "a class always labelled": (lambda split, i, names: sorted({*names, "red"}), {}),
    "a class that no test image has": (lambda split, i, names: [n for n in names if split == "train" or n != "red"], {}),
    "images without any label": (lambda split, i, names: names if split == "test" or i % 4 == 0 else [], {}),
    "no uncertain entry": (None, {"thresholds.rule": "none"}),
    "a single bin": (None, {"calibration.bins": 1}),
    "a table per class": (None, {"calibration.estimator": "class_score"}),
    "empty bins count nothing": (None, {"calibration.empty_bin": "zero", "calibration.bins": 200}),
}


@pytest.mark.parametrize("name", BORDERS)
def test_a_borderline_data_set_trains_through(tiny_set, tmp_path, name):
    relabel, changes = BORDERS[name]
    folder = tiny_set if relabel is None else tiny.converted(raw_set(tmp_path / "raw", relabel), tmp_path / "table")
    changes = {"warmup.epochs": 1, "train.epochs": 1, "finetune.epochs": 1} | changes
    experiment = tiny.open_experiment(folder, tmp_path / "split.parquet", changes)
    model = load_model(run_all(experiment, tmp_path))
    scores = experiment.predict(model.network, np.arange(experiment.store.n))
    assert torch.isfinite(scores).all()
    losses = [pd.read_csv(tmp_path / stage / "history.csv") for stage in STAGES]
    assert all(np.isfinite(frame["loss"]).all() for frame in losses)
    label = pd.read_parquet(tmp_path / "train" / "pseudo_labels")["label"].explode()
    if name == "no uncertain entry":
        assert (label >= 0).all()


def test_images_of_one_pixel_are_images(tmp_path):
    from PIL import Image

    raw = tiny.photographs(tmp_path / "raw")
    for i in range(5):
        Image.new("RGB", (1, 1), (i, 0, 0)).save(raw / f"train-{i:03d}.png")
    store = Store.open(tiny.converted(raw, tmp_path / "table"))
    assert store.n == 48 and store.index["width"].tolist()[:5] == [1] * 5
    assert (store.image(3) == [3, 0, 0]).all()
