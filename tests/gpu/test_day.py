"""The day on a GPU, rehearsed on the processor at toy size: as it will be, from a copied tree with nothing but what it needs."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import gpu_day
import runs

ABSENT = ("dvc", "matplotlib", "onnx", "onnxruntime", "onnxscript")  # in a plain PyTorch image some are, and none is needed


@pytest.fixture(scope="module")
def tree(raw_photos, tmp_path_factory) -> Path:
    """A copy of the repository with what travels beside it, and without Git's folder."""
    folder = tiny.copy_project(tmp_path_factory.mktemp("day") / "tree")
    (folder / "gpu_day").mkdir()
    gpu_day.pack_photographs(raw_photos, folder / "gpu_day" / "photographs.zip")
    return folder


@pytest.mark.slow
def test_every_part_ends_and_writes_what_it_found(tree, tmp_path):
    command = [tiny.ROOT / "tests" / "bin" / "python", tree / "benchmarks" / "gpu_day.py", "--toy", "--out", tmp_path / "out"]
    done = subprocess.run(command, cwd=tree, env=tiny.warm_environment(tree), capture_output=True, text=True, check=False)
    found = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out").glob("*.json")}
    assert done.returncode == 0, done.stdout + done.stderr + (tmp_path / "out" / "log.txt").read_text()[-4000:]
    cells = found["tables"]["cells"]
    assert set(found) == {*gpu_day.LIMITS, "day"} and {part["ended"] for part in found["day"]["parts"].values()} == {"whole"}
    assert all(row["same"] for row in found["correct"]["methods"].values()) and "skipped" in found["correct"]["tests"]
    assert found["correct"]["largest_difference_of_weights"] == {amp: {"again": 0, "resumed": 0} for amp in ("off", "auto")}
    assert not found["tables"]["failed"] and {"warmup_s1", "dicap_s1", "optimal_s1", "cap_linear_s1", "d2l_s1"} <= set(cells)
    assert all(cells[f"{name}_s1"]["curve"]["warmup"] == cells["warmup_s1"]["curve"]["warmup"] for name in ("dicap", "uniform"))
    assert "dicap | " in runs.table(tmp_path / "out" / "tables.json", "mld")
    assert found["step"]["minutes_an_epoch"] > 0 and any("conv" in row["name"] for row in found["step"]["profile"]["operations"])
    assert min(found["loader"]["pairs_a_second_by_workers"].values()) > 0 and found["features"]["images_per_s"]["stage"] > 0


def test_the_training_path_needs_nothing_else(tree):
    """Cold, since a process that has the libraries loaded has these too."""
    script = f"""
import sys
sys.path.insert(0, "benchmarks")
sys.modules |= dict.fromkeys({ABSENT})
import gpu_parts, features
import stages.commands.convert, stages.commands.split, stages.support.training, dicap.data.convert, dicap.photos.readers.read
"""
    subprocess.run([sys.executable, "-c", script], cwd=tree, env=tiny.environment(tree), check=True)


def test_what_is_missing_is_said_before_anything_is_loaded(tree):
    done = subprocess.run([sys.executable, "-S", tree / "benchmarks" / "gpu_day.py"], env={}, capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert all(package in done.stderr.splitlines()[-1] for package in (*gpu_day.PLAIN, *gpu_day.PACKED))


def test_a_part_that_hangs_ends_at_its_limit(tmp_path):
    options = argparse.Namespace(out=tmp_path, toy=True)
    assert gpu_day.run_part("step", tmp_path, options, 0.1)["ended"] == "at its limit of 0 s"
