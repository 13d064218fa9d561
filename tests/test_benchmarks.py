"""Every benchmark runs at toy size: what they import and call still exists, and their own comparisons of results hold."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SHARED = ("common", "made_up", "populations")  # no benchmarks themselves
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in (*SHARED, "suite"))


# All in one process, since importing torch takes longer than most toys: {name: exit code, output, traceback}.
ONE_AFTER_ANOTHER = """
import contextlib, gc, io, json, runpy, sys, traceback, warnings
from pathlib import Path
import torch
sys.path.insert(0, sys.argv[1])
for name in sys.argv[3:]:
    code, out, threads = 0, io.StringIO(), torch.get_num_threads()
    arguments, sys.argv = sys.argv, [f"{sys.argv[1]}/{name}.py", "--smoke", "--out", f"{sys.argv[2]}/{name}.json"]
    with contextlib.redirect_stdout(out), warnings.catch_warnings():  # what one makes an error is none in the next
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            code = end.code
        except BaseException:
            code = traceback.format_exc()
    sys.argv = arguments
    torch.set_num_threads(threads)
    gc.collect()
    Path(sys.argv[2], f"{name}.said").write_text(json.dumps({"code": code or 0, "out": out.getvalue()}))
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=FOLDER.parent, capture_output=True, text=True, timeout=1500)


def results() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (FOLDER / "results").iterdir()}


@pytest.fixture(scope="module")
def toys(tmp_path_factory) -> Path:
    """Where every benchmark wrote what it found at toy size, and what it said."""
    place, before = tmp_path_factory.mktemp("toys"), results()
    done = run("-c", ONE_AFTER_ANOTHER, str(FOLDER), str(place), *NAMES)
    assert done.returncode == 0, done.stderr
    assert before == results(), "no result is overwritten"
    return place


@pytest.mark.parametrize("name", NAMES)
def test_runs_at_toy_size(toys, name):
    said = json.loads((toys / f"{name}.said").read_text())
    assert said["code"] == 0, said
    assert json.loads((toys / f"{name}.json").read_text())
    if name not in ("suggest", "review"):  # their questions are differences, not ratios
        assert re.fullmatch(rf"{name} ratio=\S+ target=\S+", said["out"].splitlines()[-1])


def test_the_suite_reports_what_it_ran(tmp_path):
    done = run("benchmarks/suite.py", "--smoke", "--only", "refresh", "--out", str(tmp_path / "found.json"))
    assert done.returncode == 0, done.stderr + done.stdout
    assert [row["name"] for row in json.loads((tmp_path / "found.json").read_text())["benchmarks"]] == ["refresh"]


def test_the_suite_and_the_list_name_every_benchmark():
    listed = set(re.findall(r"^\| `(\w+)\.py` \|", (FOLDER / "README.md").read_text(), re.MULTILINE))
    assert listed >= set(NAMES)
    found = re.search(r"^NAMES = \((.*?)\)$", (FOLDER / "suite.py").read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    # some take an hour, one needs a GPU, one faiss, the others need photographs or a run
    photographs = {"photographs", "loop", "review", "sklearn_peers", "heads", "bank", "sizes", "sets"}
    apart = photographs | {"gpu", "suggest", "estimators", "neighbours", "counts", "promises"}
    assert set(re.findall(r'"(\w+)"', found[1])) == set(NAMES) - apart
