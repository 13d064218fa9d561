"""`dicap-stage sweep` and what it asks of an engine; cells in test_cell.py, engines in test_engines.py."""

import hashlib
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tiny
from click.testing import CliRunner

from dicap.errors import DataError
from stages.cli import main
from stages.lab import sweep
from stages.lab.sweeps import finished
from stages.lab.sweeps.cell import experiment_ref
from stages.lab.sweeps.engines import Job
from stages.lab.sweeps.grid import cells, read_grid
from stages.support.common import parse_changes

GRID = "title: Two\ntable: main\naxes: {method: [mld, dicap], seed: [1, 2]}\n"


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    (tmp_path / "configs").symlink_to(tiny.ROOT / "configs")
    (tmp_path / "params.yaml").symlink_to(tiny.ROOT / "params.yaml")
    (tmp_path / "grid.yaml").write_text(GRID)
    (tmp_path / ".gitignore").write_text("/.dicap/\n/.dvc/\n")
    (tmp_path / ".dvc").mkdir()
    monkeypatch.chdir(tmp_path)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        git(*command)
    return tmp_path


def git(*arguments: str) -> str:
    author = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    return subprocess.run(["git", *author, *arguments], capture_output=True, text=True, check=True).stdout.strip()


def rev() -> str:
    return git("rev-parse", "HEAD")


class Fake:
    """An engine that runs at once; jobs whose name holds `bad` fail."""

    outlives = False

    def __init__(self, monkeypatch, done: list[dict]) -> None:
        self.jobs: list[Job] = []
        self.asked: list[int | None] = []
        self.bad = "never"
        monkeypatch.setattr(finished, "finished", lambda *, everywhere: (done, []))
        monkeypatch.setattr(sweep, "check_data", lambda settings: None)  # no data are there
        monkeypatch.setattr(sweep, "ENGINES", dict.fromkeys(sweep.ENGINES, lambda at_once: self.asked.append(at_once) or self))

    def check(self, job):
        if job.gpus > 1:
            raise DataError(f"--gpus {job.gpus}: nobody has them")

    def run(self, jobs):
        self.jobs += jobs
        for job in jobs:
            job.log.write_text("== 1\nError: long ago\n== 2\nError: no disk\nERROR: failed to reproduce\n")
            yield job.name, "" if self.bad in job.name else None


@pytest.fixture
def fake(project, monkeypatch) -> Fake:
    """The engine, in a project without a finished run."""
    return Fake(monkeypatch, [])


def run(*arguments: str):
    result = CliRunner().invoke(main, ["sweep", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def every(project):
    return cells(read_grid(project / "grid.yaml"), project / "params.yaml")


def changes_of(job: Job) -> dict[str, Any]:
    return json.loads(job.command[-1])["changes"]


def run_of(cell, *inputs: str) -> dict[str, Any]:
    """A run of a cell with these inputs as they are now."""
    return {"settings": cell.settings, "inputs": {name: hashlib.md5(Path(name).read_bytes()).hexdigest() for name in inputs}}


def test_only_what_is_missing_is_submitted(project, monkeypatch):
    wanted = every(project)
    fake = Fake(monkeypatch, [run_of(cell) for cell in wanted[1:3]])
    result = run("grid.yaml")
    assert result.exit_code == 0 and fake.asked == [None]
    assert [job.name for job in fake.jobs] == [f"{cell.name}-{rev()[:7]}" for cell in (wanted[0], wanted[3])]
    assert [changes_of(job)["seed"] for job in fake.jobs] == [1, 2]
    assert all(rev() in job.command[-1] and job.folder == project for job in fake.jobs)
    assert "4 cells, 2 finished, 2 to run" in result.stdout and "dicap-stage table main" in result.stdout
    fake = Fake(monkeypatch, [run_of(cell) for cell in wanted])
    told = json.loads(CliRunner().invoke(main, ["--json", "sweep", "grid.yaml"]).stdout)
    assert (told["cells"], told["to run"]) == (4, []) and not fake.asked


@pytest.mark.promise(
    "A cell counts as finished only with the current code, labels, photographs and weights", section="Experiments and DVC"
)
def test_a_run_of_other_labels_or_code_is_no_result(project, monkeypatch):
    """Their settings are those of the cells."""
    inputs = [str(project / "photos" / "labels.csv"), "dicap/losses.py"]
    for name in inputs:
        Path(name).parent.mkdir()
        Path(name).write_text("one")
    Fake(monkeypatch, [run_of(cell, *inputs) for cell in every(project)])
    for name in inputs:
        for text, count in (("one", 4), ("another", 0), (None, 0), ("one", 4)):
            Path(name).unlink() if text is None else Path(name).write_text(text)
            assert f"{count} finished" in run("grid.yaml", "--dry-run").stdout


@pytest.mark.parametrize(
    ("options", "cpus"),
    [
        ([], 4),
        (["--jobs", "2"], 2),
        (["--jobs", "8"], 1),
        (["--on", "slurm"], 1),
        (["--on", "slurm", "--cpus", "8", "--gpus", "1"], 8),
    ],
)
def test_cells_share_the_cores_and_have_the_project_s_variables(fake, monkeypatch, options, cpus):
    monkeypatch.setattr("stages.lab.sweep.cores", lambda: 4)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("DICAP_DEVICE", "cpu")
    assert run("grid.yaml", *options).exit_code == 0
    assert [(job.cpus, job.gpus) for job in fake.jobs] == [(cpus, int("--gpus" in options))] * 4
    assert all({"OMP_NUM_THREADS": str(cpus), "DICAP_DEVICE": "cpu"}.items() <= job.environment.items() for job in fake.jobs)


def test_a_failed_cell_is_reported_and_the_rest_runs(fake, monkeypatch):
    fake.bad = "mld-r0_05-s2"
    result = run("grid.yaml")
    assert result.exit_code == 1 and len(fake.jobs) == 4
    assert "3 of 4 cells finished" in result.stdout
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("failed: ")]
    assert "pictograms-mld-r0_05-s2" in line and "Error: no disk (.dicap/sweep/pictograms-mld" in line and "long ago" not in line
    assert "1 cells failed; the same sweep runs them again" in result.stderr
    # The engine gave it up, but another run of it was brought back.
    monkeypatch.setattr("stages.lab.sweep.exists", lambda project, name, commit: commit == rev())
    result = run("grid.yaml")
    assert result.exit_code == 0 and "4 of 4 cells finished" in result.stdout and "failed" not in result.stderr


def test_a_dry_run_submits_nothing(fake):
    result = run("grid.yaml", "--dry-run", "-S", "seed=5", "-S", "train.epochs=2")
    assert result.exit_code == 0 and not fake.asked
    names = [line.split()[-1][:21] for line in result.stdout.splitlines()[1:]]
    assert names == ["pictograms-mld-r0_05-", "pictograms-dicap-r0_0"]
    said = run("grid.yaml", "--dry-run", "-S", "topk.k=1,2", "-S", "train.epochs=3", "-S", "train.cycle_epochs=0").stderr
    assert said == "Warning: topk.k: nothing reads it in any cell: the method is mld\n", "dicap has a main stage"


def test_options_reach_the_cells(fake):
    run("grid.yaml", "-S", "seed=5,6", "-S", "ratio=0.1", "--dataset", "voc2012", "-S", "data_root=/some where")
    found = [changes_of(job) for job in fake.jobs]
    assert [(change["seed"], change["ratio"], change["dataset"], change["data_root"]) for change in found] == [
        (seed, 0.1, "voc2012", "/some where") for seed in (5, 6, 5, 6)
    ]


@pytest.mark.parametrize("name", ["grid.yaml", "stages/new.py", "stages/größe $(x).py", "labels/added-1.csv"])
def test_what_is_not_committed_is_refused(project, fake, name):
    """A clone would not have it: a file that is tracked, new code, and labels that were imported."""
    options = ["--dataset", "table", "-S", "data_root=/x", "-S", "own.added=labels/added-0.csv"]
    added = name if name.startswith("labels") else "labels/added-0.csv"
    for each in ("notes.txt", "labels/added-0.csv"):  # the first is of no matter: no stage reads it
        (project / each).parent.mkdir(exist_ok=True)
        (project / each).write_text("image,labels\n")
    git("add", "labels")
    git("commit", "-qm", "labels")
    assert run("grid.yaml", *options).exit_code == 0
    path = project / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(GRID + "# changed\n")
    fake.jobs.clear()
    result = run("grid.yaml", *options[:-1], f"own.added={added}")
    assert result.exit_code == 1 and not fake.jobs
    assert f"{name}: not committed" in result.stderr and f"first: git add {shlex.quote(name)} && " in result.stderr


def test_data_that_are_not_there_are_named_before_anything_runs(project):
    result = CliRunner().invoke(main, ["sweep", "grid.yaml", "--dataset", "table", "-S", "data_root=/nowhere"])
    assert result.exit_code == 1 and "/nowhere: no such folder or file; set data_root" in result.stderr


def test_an_experiment_without_a_result_is_not_overwritten(project, fake):
    first = every(project)[0]
    git("update-ref", experiment_ref(first.name, rev()), "HEAD")
    result = run("grid.yaml")
    assert result.exit_code == 1 and f"dvc exp remove {first.name}" in result.stderr and not fake.jobs


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,1e-3,.5,0.10", [1, 0.001, 0.5, 0.1]),
        ("true,on,null", [True, "on", None]),
        ("'a,b',\"1\"", ["a,b", "1"]),
        ("/my photos #1", ["/my photos #1"]),
        ("it's", ["it's"]),
    ],
)
def test_the_values_of_an_option_are_numbers_or_the_text_as_it_stands(text, values):
    found = parse_changes((f"data_root={text}",))["data_root"]
    assert [(type(value), value) for value in found] == [(type(value), value) for value in values]
