"""Every benchmark runs at toy size: what they import and call still exists, and their own comparisons of results hold."""

import json
import re
import subprocess
import sys

import pytest
import tiny

FOLDER = tiny.ROOT / "benchmarks"
SHARED = ("common", "gpu_day", "gpu_parts", "made_up", "populations", "runs")  # none, or tried in tests/gpu
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in SHARED)
ALONE = ["rows: convert, known", "rows: features, known", "rows: gallery"]  # of a benchmark a part, which needs others


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, *ALONE])
def test_runs_at_toy_size(tmp_path, name):
    before = {path: path.read_bytes() for path in (FOLDER / "results").rglob("*.json")}
    script, *only = name.split(": ")
    words = ["--smoke", "--out", str(tmp_path / "found.json"), *(["--only", *only] if only else [])]
    command = [sys.executable, FOLDER / f"{script}.py", *words]
    done = subprocess.run(command, cwd=tiny.ROOT, env=tiny.environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((tmp_path / "found.json").read_text())
    assert before == {path: path.read_bytes() for path in before}, "no result is overwritten"
    if script not in ("suggest", "review"):  # their questions are differences, not ratios
        assert re.fullmatch(rf"{script} ratio=\S+ target=\S+", done.stdout.splitlines()[-1])


def test_the_list_names_every_benchmark_and_nothing_else():
    listed = set(re.findall(r"^\| `(\w+)\.py` \|", (FOLDER / "README.md").read_text(), re.MULTILINE))
    assert listed == set(NAMES)
