"""Reading a run: histograms against loops."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dicap.calibration.rates import bin_index
from dicap.files import artifacts as files
from dicap.files.tables import lists
from dicap.report import evidence


@settings(max_examples=30)
@given(st.lists(st.tuples(st.sampled_from([1, 0, -1]), st.floats(0, 1, width=32)), min_size=1, max_size=40))
def test_histograms_against_a_loop(entries):
    label, weight = (np.array([column]) for column in zip(*entries, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        columns = {"id": ["a"], "confidence": lists(weight), "label": lists(label), "weight": lists(weight)}
        files.write_epoch(columns, Path(folder), "pseudo_labels", 0)
        by_weight, numbers = evidence.histogram_of_record(files.epoch_file(Path(folder), "pseudo_labels", 0))
    for k in (1, 0, -1):
        assert numbers[k] == sum(1 for found, _ in entries if found == k)
    for row in by_weight.to_dict("records"):
        last = row["bin"] == 19
        inside = [int(float(w) * 20) == row["bin"] or (last and w == 1) for _, w in entries]
        assert row["n"] == sum(found == row["label"] and hit for (found, _), hit in zip(entries, inside, strict=True))


@given(st.lists(st.floats(0, 1, width=32), min_size=1), st.integers(1, 30))
def test_bins_of_figures_are_those_of_the_rates(values, bins):
    array = np.array(values, np.float32)
    assert evidence.bin_of(array, bins).tolist() == bin_index(torch.from_numpy(array), bins).tolist()
