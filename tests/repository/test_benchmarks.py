"""Every benchmark runs at toy size: what they import and call still exists, and their own comparisons of results hold."""

import json
import re
from pathlib import Path

import pytest
import tiny
import warm

FOLDER = Path(__file__).parents[2] / "benchmarks"
SHARED = ("common", "gpu_day", "gpu_parts", "made_up", "populations", "runs", "step_memory")  # none, or tried in tests/gpu
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in SHARED)
ALONE = ["rows: convert, known", "rows: features, known", "rows: gallery"]  # of a benchmark a part, which needs others


# All in one process, and those that they start from one that has the libraries: loading them takes longer than most toys.
ONE_AFTER_ANOTHER = """
import contextlib, gc, io, json, runpy, sys, traceback, warnings
from pathlib import Path
import torch
_, folder, place, *names = sys.argv
sys.path.insert(0, folder)
for name in names:
    code, out, threads = 0, io.StringIO(), torch.get_num_threads()
    script, *only = name.split(": ")
    more = ["--only", *only] if only else []
    sys.argv = [f"{folder}/{script}.py", "--smoke", "--out", f"{place}/{name}.json", *more]
    with contextlib.redirect_stdout(out), warnings.catch_warnings():  # what one makes an error is none in the next
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            code = end.code
        except BaseException:
            code = traceback.format_exc()
    torch.set_num_threads(threads)
    gc.collect()
    Path(place, f"{name}.said").write_text(json.dumps({"code": code or 0, "out": out.getvalue()}))
"""


def results() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in (FOLDER / "results").rglob("*.json")}


@pytest.fixture(scope="module")
def toys(tmp_path_factory) -> Path:
    """Where every benchmark wrote what it found at toy size, and what it said."""
    place, before = tmp_path_factory.mktemp("toys"), results()
    words = [str(FOLDER), str(place), *NAMES, *ALONE]
    server = {key: value for key, value in tiny.warm_environment().items() if key == warm.PLACE}
    code, said = tiny.Child(tiny.ROOT, ONE_AFTER_ANOTHER, words=words, **server).wait(1500)
    assert code == 0, said
    assert before == results(), "no result is overwritten"
    return place


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, *ALONE])
def test_runs_at_toy_size(toys, name):
    said = json.loads((toys / f"{name}.said").read_text())
    assert said["code"] == 0, said
    assert json.loads((toys / f"{name}.json").read_text())
    if name not in ("suggest", "review"):  # their questions are differences, not ratios
        assert re.fullmatch(rf"{name.partition(':')[0]} ratio=\S+ target=\S+", said["out"].splitlines()[-1])


def test_the_list_names_every_benchmark_and_nothing_else():
    listed = set(re.findall(r"^\| `(\w+)\.py` \|", (FOLDER / "README.md").read_text(), re.MULTILINE))
    assert listed == set(NAMES)
