"""The paper's figures: what is drawn with which data, and files that are the same again."""

import xml.etree.ElementTree as ElementTree

import pytest

from dicap.errors import DataError
from dicap.report.evidence import read_curves
from dicap.report.paper_figures import paper_figures
from dicap.report.style import house_style, save

from . import synthetic


@pytest.fixture(scope="module")
def curves(tmp_path_factory):
    return read_curves(synthetic.write_run(tmp_path_factory.mktemp("run"), images=300, epochs=4) / "train" / "weights")


def test_all_four(curves, tmp_path):
    with house_style():
        drawn = paper_figures(curves, {0.05: curves, 0.1: curves})
        assert [name[:8] for name in drawn] == ["figure1a", "figure1b", "figure1c", "figure1d"]
        for name, figure in drawn.items():
            for ending in ("svg", "pdf"):
                save(figure, tmp_path / f"{name}.{ending}")
    for path in tmp_path.glob("*.svg"):
        ElementTree.parse(path)
    assert all(path.read_bytes().startswith(b"%PDF") for path in tmp_path.glob("*.pdf"))
    assert "10 % labelled" in (tmp_path / "figure1b_optimal_by_ratio.svg").read_text(encoding="utf-8")
    assert len(list(tmp_path.glob("[!.]*"))) == 8


def test_the_bytes_are_the_same_again(curves, tmp_path):
    for ending in ("svg", "pdf"):
        copies = []
        for number in range(2):
            with house_style():
                save(paper_figures(curves, {})["figure1d_estimated_late"], tmp_path / f"{number}.{ending}")
            copies.append((tmp_path / f"{number}.{ending}").read_bytes())
        assert copies[0] == copies[1]


def test_stability_needs_two_ratios_and_optimality_hidden_labels(curves, tmp_path):
    with house_style():
        assert "figure1b_optimal_by_ratio" not in paper_figures(curves, {0.05: curves})
        blind = read_curves(synthetic.write_run(tmp_path, epochs=2, hidden=False) / "train" / "weights")
        assert list(paper_figures(blind, {})) == ["figure1c_estimated_early", "figure1d_estimated_late"]


def test_no_curves_is_one_line(tmp_path):
    with pytest.raises(DataError, match="no epoch"):
        read_curves(tmp_path / "train" / "weights")
