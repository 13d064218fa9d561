"""The paper's data sets, made up in their published layout: they are read, and a sweep ends in the paper's table and figures."""

import csv
import io
import re

import numpy as np
import pytest
from data.archives import ARCHIVES

from dicap.data.convert import convert
from dicap.data.labels import read_labels
from dicap.data.sources import read_raw
from repository.test_pipeline import checkout

CLASSES = {"voc2012": 20, "nuswide": 81, "awa2": 85}


@pytest.mark.parametrize("dataset", ARCHIVES)
def test_an_archive_is_read_and_its_labels_can_be_seen(tmp_path, dataset):
    ARCHIVES[dataset](tmp_path / "raw", (40, 20))
    raw = read_raw(dataset, tmp_path / "raw")
    assert len(raw.classes) == CLASSES[dataset] and len(raw.notes) == (dataset == "nuswide"), "whose names are assumed"
    meta = convert(raw, tmp_path / "set", image_size=60, workers=0)
    assert meta["counts"] == {"train": 40, "test": 20, "unlabeled": 0} and not meta["rejected"]
    labels, side = read_labels(tmp_path / "set", np.arange(60)), int(np.ceil(np.sqrt(CLASSES[dataset])))
    images, cell = np.load(tmp_path / "set" / "images.npy").astype(int), 60 // side
    for c in range(CLASSES[dataset]):
        y, x = cell * (c // side) + cell // 2, cell * (c % side) + cell // 2
        colour = np.ptp(images[:, y, x], axis=1)  # the background is grey up to noise
        assert ((colour > 100) == (labels[:, c] == 1)).all(), c


SHORT = {
    "backbone": "test_resnet", "backbone_weights": "random", "image_size": 32, "network.stride": 8,
    "network.decoder_dim": 32, "network.decoder_ffn": 32, "network.decoder_heads": 2, "optimiser.lr": 3.0e-3,
    "optimiser.ema_decay": 0.9, "warmup.epochs": 8, "warmup.batch_size": 4, "warmup.eval_every": 8, "train.epochs": 2,
    "train.cycle_epochs": 0, "finetune.epochs": 1,
}  # fmt: skip


@pytest.mark.pipeline
@pytest.mark.slow
def test_a_sweep_of_the_paper_s_grid_ends_in_its_table_and_figures(tmp_path):
    """One cell by the commands of docs/paper.md, with a network of three layers and short stages; asked again, nothing runs."""
    clone, root = checkout(tmp_path / "clone", SHORT), tmp_path / "archive"
    ARCHIVES["voc2012"](root, (120, 40))
    sweep = ["dicap-stage", "sweep", "experiments/paper.yaml", "--dataset", "voc2012"]
    for axis in (f"data_root={root}", "method=dicap", "ratio=0.1", "seed=1"):
        sweep += ["-S", axis]
    clone.run(*sweep)
    assert ": 1 cells, 1 finished, 0 to run" in clone.run(*sweep)
    for panel in ("1c", "3"):
        clone.run("dicap-stage", "figures", panel, "--dataset", "voc2012", "--ratio", "0.1", "--out", "figures/voc2012")
        drawn = [clone.folder / "figures" / "voc2012" / f"figure{panel}.{ending}" for ending in ("svg", "pdf")]
        assert all(path.stat().st_size for path in drawn)
    shown = clone.run("dicap-stage", "table", "main")
    assert "(87.92)" in shown and "Ours: test_resnet, random weights, 32 px" in shown
    table = (clone.folder / "tables" / "main.csv").read_text()
    parts = [csv.DictReader(io.StringIO(part)) for part in re.split("(?m)^(?=dataset,)", table)[1:]]
    assert [line["n"] for part in parts for line in part if line["mean"]] == ["1"], table
