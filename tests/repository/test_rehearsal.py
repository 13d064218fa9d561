"""The paper's data sets, made up in their published layout: they are read, and a sweep ends in the paper's table and figures."""

import numpy as np
import pytest
from rehearsal import ARCHIVES, rehearse

from dicap.data.convert import convert
from dicap.data.labels import read_labels
from dicap.data.sources import read_raw

CLASSES = {"voc2012": 20, "coco2014": 80, "nuswide": 81, "awa2": 85}


@pytest.mark.parametrize("dataset", ARCHIVES)
def test_an_archive_is_read_and_its_labels_can_be_seen(tmp_path, dataset):
    ARCHIVES[dataset](tmp_path / "raw", (40, 20))
    raw = read_raw(dataset, tmp_path / "raw")
    assert len(raw.classes) == CLASSES[dataset] and "not comparable" not in " ".join(raw.notes)
    meta = convert(raw, tmp_path / "set", image_size=60, workers=0)
    assert meta["counts"] == {"train": 40, "test": 20, "unlabeled": 0} and not meta["rejected"]
    labels, side = read_labels(tmp_path / "set", np.arange(60)), int(np.ceil(np.sqrt(CLASSES[dataset])))
    images, cell = np.load(tmp_path / "set" / "images.npy").astype(int), 60 // side
    for c in range(CLASSES[dataset]):
        y, x = cell * (c // side) + cell // 2, cell * (c % side) + cell // 2
        colour = np.ptp(images[:, y, x], axis=1)  # the background is grey up to noise
        assert ((colour > 100) == (labels[:, c] == 1)).all(), c


@pytest.mark.pipeline
@pytest.mark.slow
def test_a_sweep_of_the_paper_s_grid_ends_in_its_table_and_figures(tmp_path):
    shown = rehearse(tmp_path, "voc2012", "dicap", "0.1", "1", counts=(120, 40))
    assert "(87.92)" in shown and "Ours: test_resnet, random weights, 32 px" in shown
