"""The benchmark of the stage runs and writes what it measured; how fast it was is no matter of tests."""

import json
import os
import subprocess
import sys

import tiny


def test_the_benchmark_runs_at_toy_size(tmp_path):
    out = tmp_path / "features.json"
    done = subprocess.run(
        [sys.executable, tiny.ROOT / "benchmarks" / "features.py", "--smoke", "--engine", "torch", "--out", out],
        capture_output=True, text=True, check=False, env=os.environ | {"DICAP_QUIET": "1"},
    )  # fmt: skip
    assert done.stdout.splitlines()[-1].startswith("features ratio="), done.stderr
    found = json.loads(out.read_text())
    assert set(found["images_per_s"]) == {"stage", "torch", "engine"} and found["engine"]["name"] == "torch"
    assert found["reached"] == (found["over_torch"] >= 2.5 and found["of_bare_engine"] >= 0.85) and done.returncode == 0
    assert found["machine"]["torch"] and found["views"] == ["plain", "mirror", "strong_0"]
