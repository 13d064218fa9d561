"""`dicap-stage report` in a project's folder: what it prints, and what it says when a file is missing."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from dicap.files.json_files import write_json
from stages.cli import main

from . import synthetic

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "params.yaml").write_text("dataset: digits\nratio: 0.05\nseed: 1\nmethod: dicap\n")
    monkeypatch.chdir(tmp_path)
    synthetic.write_run(tmp_path / "artifacts", epochs=1)
    return tmp_path


def test_prints_the_score_and_the_place(project):
    result = CliRunner().invoke(main, ["report"])
    assert result.exit_code == 0, result.output
    assert result.output.split("\n")[:3] == [
        "report", "  mAP   83.53 (95 % interval 81.20 to 85.60)", "  page  artifacts/report/index.html",
    ]  # fmt: skip
    html = (project / "artifacts/report/index.html").read_text(encoding="utf-8")
    assert str(project) not in html, "no path of the machine on the page"


def test_missing_evaluation_is_one_line(project):
    (project / "artifacts/evaluate/metrics.json").unlink()
    result = CliRunner().invoke(main, ["report"])
    assert result.exit_code == 1
    assert len(result.output.splitlines()) == 1
    assert "metrics.json" in result.output


def test_an_interval_that_was_not_asked_for_is_not_printed(project):
    write_json({"map": 40.0, "map_low": None, "map_high": None}, project / "artifacts/evaluate/metrics.json")
    assert CliRunner().invoke(main, ["report"]).output.splitlines()[1] == "  mAP   40.00"
