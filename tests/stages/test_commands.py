"""Every command on the tiny set: what it prints, what it writes, and one line with the right exit code when it cannot."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny
import torch

from dicap.errors import out_of_memory


def test_the_commands_equal_the_functions(finished, trained):
    for stage in ("warmup", "train", "finetune"):
        for name in ("history.csv", *(path.name for path in (trained / stage).glob("*.safetensors"))):
            assert tiny.content(finished / "artifacts" / stage)[name] == tiny.content(trained / stage)[name]


@pytest.mark.parametrize("stage", ["convert", "split", "pseudo-label", "evaluate"])
def test_a_second_run_gives_the_same_bytes(project, stage):
    before = project.out(stage)
    project.done(stage)
    assert project.out(stage) == before


def test_labelled_only_methods_pass_the_model_on(project):
    project.set({"method": "mld"})
    project.done("warmup")
    assert "MLD trains on labelled images only" in project.done("pseudo-label")
    for source, stage in (("warmup", "train"), ("train", "finetune")):
        assert "passed on" in project.done(stage)
        before, after = tiny.content(Path("artifacts") / source), tiny.content(Path("artifacts") / stage)
        assert {n: c for n, c in before.items() if n != "history.csv"} == {n: c for n, c in after.items() if n != "history.csv"}
        assert len(pd.read_csv(f"artifacts/{stage}/history.csv")) == 0
    result = json.loads(project.done("evaluate") and Path("artifacts/evaluate/details.json").read_text())
    assert (result["method"], result["stage"]) == ("mld", "warmup")


def test_evaluate_takes_another_model_and_writes_nothing_then(project):
    shutil.rmtree("artifacts/evaluate")
    shutil.rmtree("artifacts/finetune")
    out = project.done("evaluate", "--model", "artifacts/train/model.safetensors")
    assert "mAP raw" in out and "mAP ema" in out and out.count("raw model of train") == 1
    assert not Path("artifacts/evaluate").exists()
    project.done("evaluate", "--model", "artifacts/train/model.safetensors", "--out", "elsewhere")
    assert json.loads(Path("elsewhere/details.json").read_text())["stage"] == "train"


def test_a_set_is_converted_by_lists(project):
    for phase, names in (("train", ["train-003.png", "train-001.png"]), ("val", ["test-000.png"])):
        np.save(f"formatted_{phase}_images.npy", names)
        np.save(f"formatted_{phase}_labels.npy", np.ones((len(names), 2)))
    project.set({"dataset": "voc2012", "convert.lists": "."})
    made = json.loads(project.done("--json", "convert", "--workers", "0"))
    assert (made["train"], made["test"], made["classes"], made["folder"]) == (2, 1, 2, "data/converted")


def test_tools_answer_with_one_object_where_json_is_asked_for(project):
    answers = {"reference": "markdown", "histogram artifacts/train/weights": "bars", "config": "train.epochs"}
    assert all(json.loads(project.done("--json", *words.split()))[key] for words, key in answers.items())


def test_what_a_disk_cannot_do_is_one_line(project, monkeypatch):
    code, line = project.refused("config", "--params", "/".join(["x" * 200] * 25))
    assert code == 1 and line.endswith(": File name too long; shorten it")

    def without_locks(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", without_locks)
    code, line = project.refused("warmup")
    assert code == 1 and line.endswith(": cannot be locked (No locks available); choose a disk that supports locks")


@pytest.mark.parametrize("command", ["check", "config", "run"])
def test_what_is_hardly_meant_is_told(project, command, monkeypatch):
    """tests/settings has what is."""
    monkeypatch.setattr("stages.cli.PIPELINE", ("check",))
    project.set({"linear.solver": "convex"})
    code, _, errors = project.run(command)
    line, solver = errors.splitlines()  # all of one reason in one
    assert code == 0 and line.startswith("Warning: params.yaml: drml.rounds 4, drml.iterations 3, ")
    assert "the method is dicap" in line and solver.startswith("Warning: params.yaml: linear.solver 'convex': ")
    monkeypatch.setenv("DICAP_PROJECT", str(project.folder))  # in a sweep a grid's settings are for all of its cells
    assert "Warning" not in project.run(command)[2]


# -- mistakes ---------------------------------------------------------------------------------------------------------


def test_a_full_disk_while_publishing_is_one_line_and_loses_nothing(project, monkeypatch):
    before, rename = tiny.content(Path("artifacts")), os.rename

    def full(source, target):
        if "artifacts" in str(target):
            raise OSError(28, "No space left on device", str(source), None, str(target))
        rename(source, target)

    project.set({"seed": 2})
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        code, line = project.refused("warmup")
    assert code == 1 and "No space left on device" in line and "artifacts" in line
    assert tiny.content(Path("artifacts")) == before
    code, _, lines = project.run("warmup")
    assert code == 0 and "resuming warmup after 2 of 2 epochs" in lines  # nothing is trained twice


MEMORY = {
    "CUDA driver error: out of memory": RuntimeError("CUDA driver error: out of memory"),
    "CUDA out of memory": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nSee the documentation."),
    "MPS backend out of memory (MPS allocated: 5.50 GB, max allowed: 20.40 GB)": RuntimeError(
        "MPS backend out of memory (MPS allocated: 5.50 GB, max allowed: 20.40 GB). Tried to allocate 7.24 MB."
    ),
    "Failed to allocate memory for requested buffer of size 1": Exception(
        "bfc_arena.cc:360 void* AllocateRawInternal(size_t) Failed to allocate memory for requested buffer of size 1\n"
    ),
    "MemoryError": MemoryError(),
    None: RuntimeError("data/CUDA out of memory/a.pt: no zip archive"),
}


def test_a_step_that_does_not_fit_is_one_line(project, monkeypatch):
    assert {said: out_of_memory(error) for said, error in MEMORY.items()} == {said: said for said in MEMORY}

    def full(*_, **__):
        torch.empty(1 << 55)

    monkeypatch.setattr("stages.support.training.run_stage", full)
    code, line = project.refused("warmup")
    assert code == 1 and line.endswith(" bytes; lower train.batch_size, or --workers; docs/costs.md has more"), line


# -- processes ----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("SIGINT and SIGTERM stop a stage with one line and exit code 75", section="Kills, full disks and damage")
def test_of_a_running_stage_a_second_waits_and_one_that_is_stopped_is_continued(project):
    project.set({"warmup.epochs": 400, "warmup.eval_every": 400})
    first = tiny.stage(project.folder, "warmup")
    tiny.wait_until(lambda: [*project.folder.glob(".dicap/state/warmup-*/state.pt")], first)
    second = tiny.stage(project.folder, "warmup")
    tiny.wait_until(lambda: f"warmup: process {first.pid} runs the same stage; waiting for its result" in second.output(), second)
    second.send_signal(signal.SIGKILL)
    second.wait(60)
    first.send_signal(signal.SIGTERM)
    code, errors = first.wait(60)
    assert code == 75
    assert [line for line in errors.splitlines() if line.startswith(("Stopped: ", "Error: "))] == [
        line for line in errors.splitlines() if line.startswith("Stopped: warmup: checkpoint saved")
    ]
    assert "Traceback" not in errors
    again = tiny.stage(project.folder, "warmup")
    tiny.wait_until(lambda: "resuming warmup after" in again.output(), again)
    again.send_signal(signal.SIGINT)
    assert again.wait(60)[0] == 75


HEAVY = ("torch", "timm", "pandas", "numpy", "pyarrow", "PIL", "matplotlib", "sklearn")
HELP = """
import sys, time
from click.testing import CliRunner
from stages.cli import PIPELINE, TOOLS, USE, main
assert set(main.list_commands(None)) == {*PIPELINE, *USE, *TOOLS}
begin = time.perf_counter()
for words in ([], *([name] for name in (*PIPELINE, *USE, *TOOLS))):
    result = CliRunner().invoke(main, [*words, "--help"])
    assert result.exit_code == 0 and f"main {' '.join(words)}" in result.output, result.output
heavy = sorted({*sys.argv[1:]} & {*sys.modules})
assert not heavy, heavy
assert time.perf_counter() - begin < 4  # 0.3 s on an idle machine; a shared one may be busy
"""


def test_every_command_has_help_which_is_instant_and_loads_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", HELP, *HEAVY], cwd=tiny.ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
