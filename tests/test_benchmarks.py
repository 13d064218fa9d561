"""Every benchmark runs at toy size: what they import and call still exists, and their own comparisons of results hold."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SHARED = ("common", "made_up")  # no benchmarks themselves
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in (*SHARED, "suite"))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=FOLDER.parent, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("name", NAMES)
def test_runs_at_toy_size(name, tmp_path):
    before = {path: path.read_bytes() for path in (FOLDER / "results").iterdir()}
    done = run(f"benchmarks/{name}.py", "--smoke", "--out", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "found.json").read_text())
    if name != "suggest":  # its question is a difference, not a ratio
        assert re.fullmatch(rf"{name} ratio=\S+ target=\S+", done.stdout.splitlines()[-1])
    assert before == {path: path.read_bytes() for path in (FOLDER / "results").iterdir()}, "no result is overwritten"


def test_the_suite_reports_what_it_ran(tmp_path):
    done = run("benchmarks/suite.py", "--smoke", "--only", "refresh", "--out", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr + done.stdout
    assert [row["name"] for row in json.loads((tmp_path / "found.json").read_text())["benchmarks"]] == ["refresh"]


def test_the_suite_and_the_list_name_every_benchmark():
    listed = set(re.findall(r"^\| `(\w+)\.py` \|", (FOLDER / "README.md").read_text(), re.MULTILINE))
    assert listed >= set(NAMES)
    found = re.search(r"^NAMES = \((.*)\)$", (FOLDER / "suite.py").read_text(), re.MULTILINE)
    assert found is not None
    apart = {"suggest", "photographs"}  # one trains for an hour, one needs photographs
    assert set(re.findall(r'"(\w+)"', found[1])) == set(NAMES) - apart
