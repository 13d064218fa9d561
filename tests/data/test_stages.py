"""The commands of the data side as a user meets them: output, exit codes, what is left behind."""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from data.raw import save, shared
from data.test_convert import twelve_broken
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


def test_broken_files_are_counted_on_the_terminal(project):
    root = make_table(project, n=20)
    reasons = twelve_broken(root)
    make_table(project, names=reasons)
    change(project)
    text = (project / "params.yaml").read_text().replace("max_rejected:\n", "max_rejected: 0.5\n")
    (project / "params.yaml").write_text(text)
    result = run("convert", "--workers", "0")
    assert result.exit_code == 0 and "13 images rejected, listed with reasons in data/converted/meta.json" in result.stdout
    before = {path.name: path.read_bytes() for path in Path("data/converted").iterdir()}
    (project / "params.yaml").write_text(text.replace("max_rejected: 0.5", "max_rejected: 0.01"))
    result = run("convert", "--workers", "0")
    assert result.exit_code == 1 and "13 of 33 images rejected (39.4%), more than convert.max_rejected (1.0%)" in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("Error")]) == 1
    assert {path.name: path.read_bytes() for path in Path("data/converted").iterdir()} == before


def test_a_relative_data_root_is_the_projects_even_in_a_queued_run(project, monkeypatch):
    make_table(project)
    with tempfile.TemporaryDirectory() as queue:
        for name in ("params.yaml", "configs"):
            (shutil.copytree if (project / name).is_dir() else shutil.copy)(project / name, Path(queue) / name)
        monkeypatch.setenv("DVC_ROOT", str(project))
        monkeypatch.chdir(queue)
        assert run("convert", "--workers", "0").exit_code == 0
        monkeypatch.chdir(project)


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"dataset": "voc2021"}, 2, "dataset: found 'voc2021'"),
        ({"data_root": "nowhere"}, 1, "nowhere: no such folder or file; set data_root"),
        ({"dataset": "voc2012"}, 1, "VOCdevkit/VOC2012/ImageSets/Main: no such folder"),
        ({"dataset": "coco2014"}, 1, "instances_train2014.json: no such file"),
        ({"dataset": "nuswide"}, 1, "formatted_train_images.npy: no such file"),
        ({"dataset": "awa2"}, 1, "classes.txt: no such file"),
    ],
)
def test_mistakes_are_one_line_and_an_exit_code(project, changes, code, message):
    make_table(project)
    change(project, **changes)
    result = run("convert")
    assert result.exit_code == code and message in result.stderr and "Traceback" not in result.output
    assert len(result.stderr.splitlines()) == 1


def test_a_ratio_that_leaves_nothing_is_a_settings_error_and_keeps_the_earlier_split(project):
    make_table(project)
    assert run("convert", "--workers", "0").exit_code == 0 and run("split").exit_code == 0
    before = Path("artifacts/split/split.parquet").read_bytes()
    change(project, ratio=0.05)
    result = run("split")
    assert result.exit_code == 2 and "gives 0 for D_sup and 0 for D_est" in result.stderr
    assert Path("artifacts/split/split.parquet").read_bytes() == before


def test_split_without_a_converted_set_says_what_to_run(project):
    result = run("split")
    assert result.exit_code == 1 and "run `dicap-stage convert`" in result.stderr


@pytest.mark.parametrize("name", ["images.npy", "index.parquet"])
def test_doctor_finds_a_flipped_byte(project, name):
    make_table(project)
    run("convert", "--workers", "0")
    path = Path("data/converted") / name
    content = bytearray(path.read_bytes())
    content[300 if name == "images.npy" else 40] ^= 4
    path.write_bytes(content)
    result = run("doctor", "data/converted")
    assert (
        result.exit_code == 1 and f"data/converted/{name}: its bytes differ" in result.stderr and "Traceback" not in result.output
    )


def test_doctor_finds_a_test_image_that_is_a_training_image(project):
    root = make_table(project)
    shutil.copy(root / "3.png", root / "19.png")
    run("convert", "--workers", "0")
    result = run("doctor", "data/converted")
    assert result.exit_code == 0 and "duplicate: test 19.png = train 3.png" in result.stdout
    assert run("doctor", "data/converted", "--strict").exit_code == 1


def test_doctor_of_no_set(project):
    result = run("doctor", "data/nothing")
    assert result.exit_code == 1 and "is not a converted set" in result.stderr


def test_a_set_is_converted_by_lists(project):
    make_table(project)
    for phase, names in (("train", ["3.png", "1.png"]), ("val", ["0.png"])):
        np.save(f"formatted_{phase}_images.npy", names)
        np.save(f"formatted_{phase}_labels.npy", np.ones((len(names), 2)))
    made = facts("formatted", ".", "--workers", "0")
    assert (made["train"], made["test"], made["classes"]) == (2, 1, 2)
    assert run("formatted", "nowhere").exit_code == 1


def test_corel5k_converts_whole_in_seconds(project):
    change(project, data_root=str(shared("corel5k").resolve()))
    made = facts("convert")
    assert (made["train"], made["test"], made["classes"], made["rejected"]) == (4500, 499, 65, 0)
