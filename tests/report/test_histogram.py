"""`dicap-stage histogram`: bars whose length is known, the right epoch, one line for everything that is wrong."""

from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from dicap.files.artifacts import epoch_file
from dicap.files.tables import write_parquet
from dicap.report.histogram import lines, open_histogram
from stages.cli import main

from . import synthetic


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return synthetic.write_run(tmp_path_factory.mktemp("run"), epochs=3)


def call(*arguments: object):
    return CliRunner().invoke(main, ["histogram", *map(str, arguments)])


@given(st.lists(st.tuples(st.text("abc", max_size=8), st.floats(0, 1)), min_size=1, max_size=5), st.integers(40, 90))
def test_bars_are_as_long_as_they_should_in_the_width_given(bars, width):
    room = width - max(len(name) for name, _ in bars) - 4
    for (name, length), line in zip(bars, lines([(*bar, "7") for bar in bars], width), strict=True):
        assert len(line) <= width and line.startswith(name) and line.endswith("7")
        assert abs(line.count("█") - length * room) <= 1 and (length == 0) == ("█" not in line)


def test_an_epoch_can_be_chosen(run):
    folder = run / "train" / "weights"
    chosen = call(folder, "--epoch", 1).output
    assert "epoch 1 of 3: " in chosen and call(folder).output != chosen


def test_a_bin_without_entries_has_no_bar(tmp_path):
    rows = {"bin": [0, 1], "left": [0.0, 0.5], "right": [0.5, 1.0], "n_pos": [3, 0], "n_neg": [1, 0], "r_pos": [0.75, 0.5]}
    write_parquet(pa.table(rows | {"optimal_r_pos": [0.7, 0.9]}), epoch_file(tmp_path, "weights", 0))
    full, empty = lines(open_histogram(tmp_path / "weights")[1], 80)
    assert "█" in full and full.endswith("0.750 of 4, optimal 0.700")
    assert "█" not in empty and empty.split() == ["0.50-1.00", "-", "of", "0,", "optimal", "0.900"]


def test_bad_input_is_one_line_and_exit_code_1(run, tmp_path):
    weights = run / "train" / "weights"
    cases = {
        (run / "train",): "holds no epochs",
        (weights / "epoch-001.parquet",): "give such a folder",
        (weights, "--epoch", 9): "it has epochs 1 to 3",
    }
    for arguments, words in cases.items():
        result = call(*arguments)
        assert result.exit_code == 1, arguments
        assert words in result.output
        assert len(result.output.splitlines()) == 1, result.output
