"""The paper's figures: what each panel draws, and files that are the same again."""

import numpy as np
import pandas as pd
import pytest
from report import synthetic

from dicap.lab import paper_figures as paper
from dicap.report.evidence import read_curves
from dicap.report.style import house_style


@pytest.fixture(scope="module")
def curves(tmp_path_factory):
    return read_curves(synthetic.write_run(tmp_path_factory.mktemp("run"), images=300, epochs=4) / "train" / "weights")


def lines(figure):
    """Drawn values by name, of the first axes."""
    return {line.get_label(): np.asarray(line.get_ydata(), float) for line in figure.axes[0].lines}


def test_what_the_panels_show(curves):
    first, last = (curves[curves["epoch"] == epoch] for epoch in (0, 3))
    with house_style():
        drawn = lines(paper.figure_1a(curves))
        np.testing.assert_array_equal(drawn["labelled images"], first["r_pos"])
        np.testing.assert_array_equal(drawn["unlabelled images"], first["optimal_r_pos"])
        np.testing.assert_array_equal(lines(paper.figure_1b({0.1: curves, 0.05: first}))["10 % labelled"], last["optimal_r_pos"])
        np.testing.assert_array_equal(lines(paper.figure_1c(curves))["estimated"], first["r_pos"])
        assert [ax.get_title(loc="left") for ax in paper.figure_3(curves).axes] == ["epoch 0", "epoch 3"]
        scores = [("uniform", 0.05, 60.0), ("uniform", 0.05, 62.0), ("uniform", 0.1, 64.0), ("estimated", 0.05, 63.0)]
        scores = lines(paper.figure_1d(pd.DataFrame(scores, columns=["row", "ratio", "map"])))
    assert scores["uniform weights"].tolist() == [61.0, 64.0] and scores["estimated weights"].tolist() == [63.0]
