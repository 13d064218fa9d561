"""`dicap-stage table`, `figures` and `report`: from what Git, DVC and a run hold to files and lines."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from report import synthetic

from dicap.files.json_files import write_json
from dicap.settings import resolve_values
from stages.cli import main
from stages.lab.sweeps import finished

from .test_experiments import experiment

ROOT = Path(__file__).parents[2]
PARAMS = {"dataset": "digits", "ratio": 0.05, "seed": 1, "method": "dicap"}
DTH = {"contrastive": {"enabled": False}, "warmup": {"wcl": False}, "finetune": {"enabled": False}}


def revision(name: str, params: dict[str, Any], score: float, **metrics) -> dict[str, Any]:
    """A finished experiment."""
    settings = resolve_values(params, ROOT / "params.yaml").settings.model_dump()
    return experiment(settings, score, **metrics) | {"name": name, "rev": f"{name:0<40}"}


def printed(result: Result) -> list[str]:
    """The lines that a command printed, tables without what fills their columns."""
    return re.sub(" {2,}", " ", result.output).splitlines()


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    for name in ("configs", "experiments"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "params.yaml").write_text(json.dumps(PARAMS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def dvc(monkeypatch):
    """Let these be the experiments beside one of the current commit, and let DVC's files be those of made-up runs."""

    def replace(*experiments: dict[str, Any], runs: dict[str, Path] | None = None):
        every = [revision("main", PARAMS, 50.0, steps=1760), *experiments]

        class Files:
            """In place of DVC's file system of a revision."""

            def __init__(self, *, rev: str) -> None:
                self.run = next((run for name, run in (runs or {}).items() if rev.startswith(name)), Path("nowhere"))

            def get(self, path: str, to: str, recursive: bool) -> None:
                shutil.copytree(self.run / path.removeprefix("artifacts/"), to)

        monkeypatch.setattr(finished, "finished", lambda *, everywhere: (every, []))
        monkeypatch.setattr("dvc.api.DVCFileSystem", Files)

    return replace


def test_the_report_prints_the_score_and_the_place(project):
    run = synthetic.write_run(project / "artifacts", epochs=1)
    result = CliRunner().invoke(main, ["report"])
    assert result.exit_code == 0, result.output
    assert result.output.split("\n")[:3] == [
        "report", "  mAP   83.53 (95 % interval 81.20 to 85.60)", "  page  artifacts/report/index.html",
    ]  # fmt: skip
    html = (project / "artifacts/report/index.html").read_text(encoding="utf-8")
    assert str(project) not in html, "no path of the machine on the page"
    write_json({"map": 40.0, "map_low": None, "map_high": None}, run / "evaluate" / "details.json")
    assert CliRunner().invoke(main, ["report"]).output.splitlines()[1] == "  mAP   40.00", "no interval, none is told"


def test_table_main(project, dvc):
    """Of experiments/paper.yaml and its like; what is in none of them is spoken of, and shown where it is asked for."""
    other = revision("other", PARAMS | {"method": "mld"}, 40.0, steps=1755)
    longer = [revision(f"longer{seed}", PARAMS | {"seed": seed, "train": {"epochs": 99}}, 70.0, steps=9000) for seed in (1, 2)]
    dvc(other, revision("third", PARAMS | {"seed": 2}, 54.0, steps=1760), *longer)
    result = CliRunner().invoke(main, ["table", "main"])
    assert result.exit_code == 0, result.output
    lines = printed(result)
    assert "| DiCaP | ML-Decoder | 1,760 | **52.00 ± 2.83** | +10.00 |" in lines
    assert "| MLD | ML-Decoder | 1,755 | 40.00 [1] | |" in lines
    assert "Delta, digits 5 %: +10.00, DiCaP, ML-Decoder, 1,760, minus the best other row, MLD, ML-Decoder, 1,755." in lines
    assert "Not shown: 2 runs with settings that no cell of the table's grids has." in lines
    assert sorted(path.name for path in (project / "tables").glob("[!.]*")) == ["main.csv", "main.md"]
    lines = printed(CliRunner().invoke(main, ["table", "main", "-S", "train.epochs=99"]))
    assert "| DiCaP | ML-Decoder | 9,000 | 70.00 ± 0.00 |" in lines
    (project / "own.yaml").write_text("table: main\naxes: {train.epochs: [99], ratio: [0.1], seed: [1]}\n")
    lines = printed(CliRunner().invoke(main, ["table", "main", "--grid", "own.yaml"]))
    assert "| DiCaP | ML-Decoder | 9,000 | 70.00 ± 0.00 |" in lines and not any(line.startswith("| MLD") for line in lines)


def test_readings_are_compared_with_the_first_one_seed_by_seed(project, dvc):
    """Runs belong to a case by all their settings but seed and ratio; others are not shown."""
    (project / "experiments").unlink()
    (project / "experiments").mkdir()
    path = project / "experiments" / "readings.yaml"
    path.write_text(
        "table: readings\ncases:\n  base: {}\n  means: {loss.reduction: mean}\n"
        "  nets: {weights: raw, train.epochs: 3}\naxes: {seed: [1]}\n"
    )
    means, other = PARAMS | {"loss": {"reduction": "mean"}}, PARAMS | {"loss": {"reduction": "mean", "clip": 0.1}}
    second = [revision("second", PARAMS | {"seed": 2}, 52.0), revision("m2", means | {"seed": 2}, 55.0)]
    dvc(*second, revision("m1", means, 51.0), revision("other", other, 99.0))
    result = CliRunner().invoke(main, ["table", "readings"])
    assert result.exit_code == 0, result.output
    lines = printed(result)
    assert "| reading | settings | digits 5 % | minus base |" in lines
    assert "| base | – | 51.00 ± 1.41 | |" in lines
    assert "| means | `loss.reduction=mean` | **53.00 ± 2.83** | +2.00 ± 12.71 |" in lines  # 1 and 3: t 12.7062
    assert not any("nets" in line or "99" in line for line in lines)
    dvc(revision("nets", PARAMS | {"train": {"epochs": 3}}, 40.0), revision("other", other, 99.0))
    lines = printed(CliRunner().invoke(main, ["table", "readings"]))
    assert "| nets | `weights=raw train.epochs=3` | 40.00 | -10.00 |" in lines
    lines = printed(CliRunner().invoke(main, ["table", "readings", "-S", "loss.clip=0.1"]))
    assert "| means | `loss.reduction=mean` | 99.00 |" in lines, "as a sweep with this setting makes it"


def test_each_panel_is_drawn_by_its_number(project, dvc, tmp_path_factory):
    runs = {name: synthetic.write_run(tmp_path_factory.mktemp(name), epochs=2) for name in ("main", "more", "known")}
    policies = [
        revision(name, PARAMS | DTH | {"calibration": {"policy": policy}}, score)
        for name, policy, score in (("known", "labeled", 41.0), ("flat", "uniform", 40.0), ("steep", "estimated", 42.0))
    ]
    dvc(revision("more", PARAMS | {"ratio": 0.1}, 60.0), *policies, runs=runs)
    for panel in ("1a", "1b", "1c", "1d", "3"):
        result = CliRunner().invoke(main, ["--json", "figures", panel])
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["drawn"] == [f"figures/figure{panel}.{ending}" for ending in ("svg", "pdf")]
    assert len(list((project / "figures").glob("[!.]*"))) == 10


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["table", "main", "--dataset", "voc2012"], "no finished run"),
        (["table", "weighting"], "no finished run belongs to it"),
        (["figures", "1b"], "two labelled ratios with seed 1; found ratios 0.05"),
        (["figures", "1a"], "calibration.policy labeled"),
        (["figures", "1d"], "both weights"),
        (["figures", "3", "--ratio", "0.5"], "no finished DiCaP run with ratio 0.5"),
    ],
)
def test_nothing_to_show_is_one_line(project, dvc, tmp_path, arguments, words):
    dvc(runs={"main": synthetic.write_run(tmp_path / "run", epochs=1)})
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert words in result.output.splitlines()[-1]
    assert all("Not shown: " in line for line in result.output.splitlines()[:-1])
