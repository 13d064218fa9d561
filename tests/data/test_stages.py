"""The commands of the data side as a user meets them: output, exit codes, what is left behind."""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from data.raw import save
from stages.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A working directory with the project's settings, changed for a table of 24 px."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    change(tmp_path, dataset="table", data_root="raw", image_size=24, ratio=0.5)
    return tmp_path


def change(project, **values):
    lines = (project / "params.yaml" if (project / "params.yaml").exists() else ROOT / "params.yaml").read_text().splitlines()
    for key, value in values.items():
        lines = [f"{key}: {value}" if line.startswith(f"{key}:") else line for line in lines]
    (project / "params.yaml").write_text("\n".join(lines) + "\n")


def make_table(project, names=(), n=20):
    """A table of good photographs, and of further names."""
    root = project / "raw"
    rows = [(f"{i}.png", "train" if i < n - 5 else "test", "ab"[i % 2]) for i in range(n)]
    for i, (name, _, _) in enumerate(rows):
        save(root / name, i)
    rows += [(name, "train", "a") for name in names]
    (root / "labels.csv").write_text("image,split,labels\n" + "".join(",".join(row) + "\n" for row in rows))
    return root


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


def facts(*arguments):
    """What a command says with --json."""
    result = run("--json", *arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_convert_split_and_doctor(project):
    make_table(project)
    made = facts("convert", "--workers", "0")
    assert (made["train"], made["test"], made["classes"], made["folder"]) == (15, 5, 2, "data/converted")
    drawn = facts("split")
    assert (drawn["sup"], drawn["est"], drawn["unlabeled"], drawn["test"]) == (5, 2, 8, 5)
    result = run("doctor", "data/converted")
    assert result.exit_code == 0 and "data/converted: sound" in result.stdout


def test_a_relative_data_root_is_the_projects_even_in_a_queued_run(project, monkeypatch):
    make_table(project)
    with tempfile.TemporaryDirectory() as queue:
        for name in ("params.yaml", "configs"):
            (shutil.copytree if (project / name).is_dir() else shutil.copy)(project / name, Path(queue) / name)
        monkeypatch.setenv("DVC_ROOT", str(project))
        monkeypatch.chdir(queue)
        assert run("convert", "--workers", "0").exit_code == 0
        monkeypatch.chdir(project)


def test_doctor_finds_a_test_image_that_is_a_training_image(project):
    root = make_table(project)
    shutil.copy(root / "3.png", root / "19.png")
    run("convert", "--workers", "0")
    result = run("doctor", "data/converted")
    assert result.exit_code == 0 and "duplicate: test 19.png = train 3.png" in result.stdout
    assert run("doctor", "data/converted", "--strict").exit_code == 1


def test_a_set_is_converted_by_lists(project):
    make_table(project)
    for phase, names in (("train", ["3.png", "1.png"]), ("val", ["0.png"])):
        np.save(f"formatted_{phase}_images.npy", names)
        np.save(f"formatted_{phase}_labels.npy", np.ones((len(names), 2)))
    made = facts("formatted", ".", "--workers", "0")
    assert (made["train"], made["test"], made["classes"]) == (2, 1, 2)
    assert run("formatted", "nowhere").exit_code == 1
