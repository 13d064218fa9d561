"""The real pipeline through DVC, in a clone of its own: nothing runs twice, settings arrive, kills and stops lose nothing."""

import csv
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tiny
from ruamel.yaml import YAML

from dicap.settings.resolve import change_settings

pytestmark = pytest.mark.pipeline

STAGES = ["check", "convert", "features", "split", "warmup", "pseudo_label", "train", "finetune", "evaluate", "report"]
EPOCHS = 16 if os.environ.get("FAULTS") == "long" else 2  # many where a signal is to arrive among them
PARAMS = tiny.CHANGES | {
    "warmup.epochs": 1, "finetune.epochs": 1, "train.epochs": EPOCHS, "train.eval_every": EPOCHS, "train.cycle_epochs": 0,
    "warmup.trainable": "head", "train.trainable": "head", "features.views": 1,  # such stages start in half the time
}  # fmt: skip


class Clone:
    """A git clone of the working tree in which DVC works."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.env = tiny.warm_environment(folder, DICAP_DEVICE="cpu")  # the clone's code, not the installed one

    def start(self, *command: str) -> subprocess.Popen:
        return subprocess.Popen(
            command, cwd=self.folder, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, *command: str) -> str:
        """The output of a command that must succeed."""
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def ran(self, output: str) -> list[str]:
        """The stages that DVC says it ran."""
        return [stage for stage in STAGES if f"Running stage '{stage}'" in output]

    def model(self, stage: str = "finetune") -> bytes:
        return (self.folder / "artifacts" / stage / "model.safetensors").read_bytes()

    def params(self):
        return YAML(typ="safe", pure=True).load((self.folder / "params.yaml").read_text())


def committed(place: Path, changes: dict[str, Any]) -> Clone:
    """A clone below `place` with a small data set and other settings, committed; nothing has run."""
    raw = tiny.photographs(place / "raw", {"train": 36, "test": 14, "unlabeled": 10}, "jpg", 40)
    return checkout(place / "clone", changes | {"data_root": str(raw)})


def checkout(folder: Path, changes: dict[str, Any]) -> Clone:
    """The working tree at another place with other settings, committed."""
    clone = Clone(tiny.copy_project(folder))
    (clone.folder / "dvc.lock").unlink(missing_ok=True)
    change_settings(clone.folder / "params.yaml", changes)
    clone.run("git", "init", "-q")
    for key, value in (("user.name", "Test"), ("user.email", "test@example.org"), ("commit.gpgsign", "false")):
        clone.run("git", "config", key, value)
    clone.run("git", "add", "-A")
    clone.run("git", "commit", "-q", "-m", "start")
    return clone


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Clone:
    """A clone in which `dvc repro` ran from nothing, committed; tests work in copies of it."""
    clone = committed(tmp_path_factory.mktemp("pipeline"), PARAMS)
    output = clone.run("dvc", "repro")
    assert clone.ran(output) == STAGES, output
    clone.run("git", "add", "-A")
    clone.run("git", "commit", "-q", "-m", "run")
    return clone


@pytest.fixture
def clone(finished, tmp_path) -> Clone:
    """A copy of it."""
    folder = tmp_path / "clone"
    shutil.copytree(finished.folder, folder, symlinks=True)
    return Clone(folder)


def test_a_run_leaves_everything_the_contract_lists_and_nothing_unignored(finished):
    artifacts = finished.folder / "artifacts"
    assert (artifacts / "report" / "index.html").exists()
    assert pd.read_parquet(artifacts / "train" / "weights")["epoch"].nunique() == PARAMS["train.epochs"]
    assert finished.run("git", "status", "--porcelain") == ""
    tracked = [path for path in finished.run("git", "ls-files").split() if path.startswith(("data", "artifacts", ".dicap"))]
    assert tracked == ["data/none", "data/raw/README.md"]
    assert not list((finished.folder / ".dicap" / "state").iterdir())


@pytest.mark.promise("After a run `dvc status` lists nothing, until labels change", section="Experiments and DVC")
def test_after_a_run_nothing_has_changed_until_labels_do(clone):
    raw = Path(clone.params()["data_root"])
    table, times = raw / "labels.csv", (raw / "labels.csv").stat()
    text = table.read_bytes()
    assert "Data and pipelines are up to date." in clone.run("dvc", "status")
    try:
        table.write_bytes(text.replace(b"red", b"blue", 1))
        assert "convert:" in clone.run("dvc", "status") and "Running stage 'convert'" in clone.run("dvc", "repro", "--dry")
    finally:  # other tests have the same photographs
        table.write_bytes(text)
        os.utime(table, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_metrics_and_plots_are_shown(clone):
    (metrics,) = json.loads(clone.run("dvc", "metrics", "show", "--json"))[""]["data"].values()
    written = json.loads((clone.folder / "artifacts/evaluate/details.json").read_text())
    assert len(metrics["data"]) <= 8 and {"map", "steps"} <= {*metrics["data"]}
    assert metrics["data"] == {key: written[key] for key in metrics["data"]}
    page = Path(clone.run("dvc", "plots", "show").strip().splitlines()[-1].removeprefix("file://"))
    text = page.read_text(encoding="utf-8")
    for title in ("main losses", "warm-up losses", "mAP", "average precision per class"):
        assert title in text
    assert ".svg" in text


@pytest.mark.promise("An experiment can be applied and made a branch", section="Experiments and DVC")
def test_an_experiment_runs_from_fine_tuning_on_with_its_numbers_as_numbers(clone):
    before = clone.model()
    output = clone.run("dvc", "exp", "run", "-n", "other", "-S", "++finetune.lr=0.00003")
    assert clone.ran(output) == ["check", "finetune", "evaluate", "report"]
    assert "e-05" in (clone.folder / "params.yaml").read_text()  # the dialect that YAML 1.1 readers take for a string
    assert clone.params()["finetune"]["lr"] == 0.00003
    resolved = json.loads(clone.run("dicap-stage", "--json", "config"))
    assert resolved["finetune.lr"] == {"value": 0.00003, "from": "params.yaml"}
    other = clone.model()
    assert other != before

    rows = csv.DictReader(clone.run("dvc", "exp", "show", "--csv").splitlines())
    assert {"", "other"} <= {row["Experiment"] for row in rows if row["map"]}, "with their scores"

    # Back to the old settings: a checkout from the run cache, not a run.
    clone.run("git", "checkout", "-q", "--", "params.yaml", "dvc.lock")
    output = clone.run("dvc", "repro")
    assert "Running stage 'finetune'" not in output
    assert clone.model() == before

    clone.run("dvc", "exp", "apply", "other")
    assert clone.model() == other and clone.params()["finetune"]["lr"] == 0.00003
    assert "Data and pipelines are up to date." in clone.run("dvc", "status")
    clone.run("dvc", "exp", "branch", "other", "kept")
    assert "e-05" in clone.run("git", "show", "kept:params.yaml")


@pytest.mark.promise("What one clone pushes, another clone pulls and finds up to date", section="Experiments and DVC")
def test_what_one_clone_pushes_another_pulls(clone, tmp_path):
    clone.run("dvc", "remote", "add", "--default", "there", str(tmp_path / "remote"))
    clone.run("git", "commit", "-q", "-a", "-m", "a remote")
    clone.run("dvc", "push")
    clone.run("git", "clone", "-q", ".", str(tmp_path / "other"))
    other = Clone(tmp_path / "other")
    other.run("dvc", "pull")
    assert other.model() == clone.model()
    assert "Data and pipelines are up to date." in other.run("dvc", "status")
    assert other.ran(other.run("dvc", "repro")) == []


@pytest.mark.promise("Photographs that `dvc add` tracks and links are read like any other", section="Experiments and DVC")
@pytest.mark.slow
def test_photographs_that_dvc_tracks_and_links_are_photographs(clone):
    """Of the same photographs at another place nothing is computed again, and a run in a folder of its own finds them."""
    shutil.copytree(clone.params()["data_root"], clone.folder / "data/raw/photos")
    change_settings(clone.folder / "params.yaml", {"data_root": "data/raw/photos"})
    refused, _ = clone.start("dvc", "exp", "run", "--temp").communicate(timeout=120)
    assert "dependency 'data/raw/photos' does not exist" in refused  # Git ignores it, and DVC does not know it
    clone.run("dvc", "config", "cache.type", "symlink")
    clone.run("dvc", "add", "data/raw/photos")
    assert (clone.folder / "data/raw/photos/labels.csv").is_symlink()
    assert clone.ran(clone.run("dvc", "repro")) == ["check", "convert", "report"]
    clone.run("git", "add", "-A")
    clone.run("git", "commit", "-q", "-m", "tracked")
    (clone.folder / "data/raw/photos/labels.csv").unlink()
    assert "modified:           data/raw/photos" in clone.run("dvc", "status")
    clone.run("dvc", "checkout")
    for at in ([], ["--temp"]):
        output = clone.run("dvc", "exp", "run", *at, "-S", f"convert.max_rejected=0.0{2 + len(at)}", "convert")
        assert clone.ran(output) == ["convert"]
    assert (clone.folder / "data/raw/photos/labels.csv").is_symlink()


@pytest.mark.promise(
    "Wrong settings and a missing folder of photographs are refused before DVC removes a result", section="Your files and labels"
)
def test_a_wrong_setting_fails_before_anything_runs_and_loses_nothing(clone):
    before = clone.model()
    process = clone.start("dvc", "exp", "run", "-S", "ratio=1.5")
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "ratio: found 1.5" in output and "Traceback" not in output
    assert clone.model() == before
    assert (clone.folder / "artifacts/split/split.parquet").is_file()


@pytest.mark.slow
def test_a_queued_experiment_runs_the_code_that_was_queued(clone):
    clone.run("dvc", "exp", "run", "--queue", "-n", "queued", "-S", "seed=3", "split")
    split = clone.folder / "dicap" / "data" / "split.py"
    split.write_text("raise SystemExit('edited later')\n" + split.read_text())
    output = clone.run("dvc", "exp", "run", "--run-all")
    assert clone.ran(output) == ["split"]
    assert "edited later" not in output and "queued" in clone.run("dvc", "exp", "list")
