"""The cell of a sweep, in a small DVC project of its own; the real pipeline in tests/repository/test_pipeline.py."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
import tiny
from dvc_objects.fs import local, system
from dvc_objects.fs.generic import transfer
from hypothesis import given, settings
from hypothesis import strategies as st

from dicap.settings import change_settings, changed, read_yaml
from stages.lab.sweeps import cell

pytestmark = pytest.mark.timeout(600)
WORDS = st.sampled_from(
    ["null", "1", "1e-3", "on", "~", "${HOME}", "a\\b", "it's", "a: b", "/ü #1", "'", "a,b=c", " a ", "0x1", "-"]
)
# But for the line breaks of YAML 1.1 beside "\n": ruamel.yaml writes them as they are and reads them as blanks.
TEXT = st.text(st.characters(exclude_characters="\x85\u2028\u2029", codec="utf-8"), max_size=9)
VALUE = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), WORDS, TEXT)

# A stage that waits while its lock is held, as a training does, and goes on from the step that it saved.
WORK = """
import fcntl, os, pathlib, signal, sys, time
from ruamel.yaml import YAML
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and pass that on
seed = YAML(typ="safe", pure=True).load(pathlib.Path("params.yaml").read_text())["seed"]
state = pathlib.Path(os.environ["DICAP_PROJECT"]) / ".dicap" / "state" / "train-0"
state.mkdir(parents=True, exist_ok=True)
print("begun", seed, flush=True)
with open(state / "lock", "a+") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    saved = state / "steps"
    for step in range(int(saved.read_text()) if saved.exists() else 0, 60 if seed == 5 else 0):
        time.sleep(0.05)
        (state / "new").write_text(str(step + 1))
        os.replace(state / "new", saved)
        print("step", step, flush=True)
    if seed == 7:
        sys.exit("Error: seven is refused")
pathlib.Path("artifacts").mkdir(exist_ok=True)
pathlib.Path("artifacts/result.txt").write_text(str(seed))
"""
# Stands for an engine's worker.
UNDER = (sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])")
AUTHOR = ("-c", "user.name=t", "-c", "user.email=t@example.org")
STAGES = """
stages:
  features:
    cmd: python work.py
    deps: [work.py]
    params: [seed]
    outs: [artifacts/result.txt]
"""


@pytest.fixture
def project(tmp_path) -> Path:
    folder = tmp_path / "prüfung (1)"
    (folder / ".dvc").mkdir(parents=True)
    for name in (".dvc/config", ".dvc/.gitignore", ".gitignore", ".dvcignore"):
        shutil.copy2(tiny.ROOT / name, folder / name)
    (folder / "work.py").write_text(WORK)
    (folder / "dvc.yaml").write_text(STAGES)
    (folder / "params.yaml").write_text("seed: 1\n")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        cell.git(*AUTHOR, *command, folder=folder)
    (folder / ".dicap" / "sweep").mkdir(parents=True)
    return folder


def left(project: Path) -> list[Path]:
    """The worktrees of cells."""
    return [*project.glob(".dicap/sweep/*.try-*")]


def rev(project: Path) -> str:
    return cell.git("rev-parse", "HEAD", folder=project).strip()


def start(project: Path, name: str, seed: int, under: tuple[str, ...] = (), **variables: str):
    """The cell as an engine starts it, or with the libraries loaded where no process is above it."""
    command = cell.cell_job(name, rev(project), project, {"seed": seed}).command
    if under:
        command, own = (*under, *command), tiny.environment(**variables)
    else:
        command, own = (str(tiny.ROOT / "tests/bin/python"), *command[1:]), tiny.warm_environment(**variables)
    return subprocess.Popen(
        command, cwd=tiny.ROOT, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def ended(process: subprocess.Popen) -> tuple[int, str]:
    output, _ = process.communicate(timeout=300)
    return process.returncode, output


def disturb(process: subprocess.Popen, way: str) -> None:
    """Kill the process UNDER which a cell was started, or send the cell SIGTERM; return when nothing of it runs."""
    tree = psutil.Process(process.pid).children(recursive=True)
    assert any("work.py" in " ".join(each.cmdline()) for each in tree)
    if way == "SIGTERM":
        tree[0].send_signal(signal.SIGTERM)
    else:
        process.kill()
    tiny.wait_until(lambda: not any(map(tiny.alive, tree)))
    process.communicate(timeout=60)


@pytest.mark.promise("A cell that has a result is not run again", section="Experiments and DVC")
def test_its_result_is_an_experiment_of_the_project_and_asked_again_nothing_runs(project):
    killed = project / ".dicap" / "sweep" / f"{cell.job_name('two', rev(project))}.try-killed" / "tree"
    killed.mkdir(parents=True)
    code, output = ended(start(project, "two", 2))
    assert code == 0 and "begun 2" in output and output.startswith("== two: process "), output
    assert not left(project), "nor of the try that was killed"
    ref = cell.experiment_ref("two", rev(project))
    assert "seed: 2" in cell.git("show", f"{ref}:params.yaml", folder=project)
    assert (project / "params.yaml").read_text() == "seed: 1\n" and not cell.git("status", "--porcelain", folder=project)
    shown = subprocess.run([sys.executable, "-m", "dvc", "exp", "list"], cwd=project, capture_output=True, text=True, check=True)
    assert "two" in shown.stdout

    code, output = ended(start(project, "two", 2))
    assert code == 0 and "the project has its result" in output and "begun" not in output and not left(project)


def test_nothing_that_a_user_s_git_is_told_refuses_a_result_or_leads_elsewhere(project, tmp_path):
    for name in ("post-checkout", "pre-commit", "commit-msg", "post-commit", "pre-push"):
        hook = tmp_path / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    (tmp_path / "config").write_text(
        f"[core]\nhooksPath = {tmp_path / 'hooks'}\nautocrlf = true\nsafecrlf = true\n"
        "[commit]\ngpgSign = true\n[log]\nshowSignature = true\n"
    )
    branch = cell.git("symbolic-ref", "HEAD", folder=project)
    inherited = {"GIT_DIR": str(project / ".git"), "GIT_INDEX_FILE": str(project / ".git" / "index")}  # as of a hook
    code, output = ended(start(project, "two", 2, GIT_CONFIG_GLOBAL=str(tmp_path / "config"), **inherited))
    assert code == 0, output
    shown = cell.git("log", "-1", "--format=%an of %P", cell.experiment_ref("two", rev(project)), folder=project)
    assert shown.strip() == f"t of {rev(project)}" and cell.git("symbolic-ref", "HEAD", folder=project) == branch
    assert not cell.git("status", "--porcelain", folder=project)


def test_a_failure_has_dvcs_exit_code_and_leaves_nothing(project):
    code, output = ended(start(project, "seven", 7))
    assert code not in (0, 75) and "Error: seven is refused" in output
    assert not cell.exists(project, "seven", rev(project)) and not left(project)


@pytest.mark.promise(
    "If two sweeps run one cell, the second waits and uses the first one's result", section="Experiments and DVC"
)
@pytest.mark.promise("Cells that share data and features convert and compute them once", section="Experiments and DVC")
def test_cells_that_begin_together_make_what_they_share_once(project):
    """Two of the same name, and one of another. Also where dvc.lock tells of somebody else's result for the same inputs."""
    ends = [ended(process) for process in [start(project, name, 3) for name in ("three", "three", "too")]]
    told = "".join(output for _, output in ends)
    assert [code for code, _ in ends] == [0] * 3 and told.count("begun 3") == 1 and told.count("the project has its result") == 1
    assert all(cell.exists(project, name, rev(project)) for name in ("three", "too"))
    lock = cell.git("show", f"{cell.experiment_ref('three', rev(project))}:dvc.lock", folder=project)
    md5 = re.findall("md5: (\\w+)", lock)[-1]
    (project / "dvc.lock").write_text(lock.replace(md5, "0" * 32))
    cell.git("add", "dvc.lock", folder=project)
    cell.git(*AUTHOR, "commit", "-qm", "another's", folder=project)
    code, output = ended(start(project, "again", 3))
    assert code == 0 and "begun" not in output and cell.exists(project, "again", rev(project)), output


@pytest.mark.promise("If a sweep's cell ends, its training ends with it", section="Kills, full disks and damage")
@pytest.mark.promise("A sweep's cell ends in one result even if its worker is killed", section="Kills, full disks and damage")
def test_kills_of_its_worker_and_a_signal_to_it_lose_nothing(project):
    """The short form of tests/faults/test_sweeps.py, where nodes and trainings are real: each time it goes on, to one result."""
    steps: list[int] = []

    def step(process):
        line = process.stdout.readline()
        assert line, "it ended"
        steps.extend(int(word) for word in line.split()[1:] if line.startswith("step "))
        return line.startswith("step ")

    for way in ("SIGKILL", "SIGTERM", "SIGKILL"):
        process = start(project, "five", 5, under=UNDER)
        tiny.wait_until(lambda process=process: step(process))
        disturb(process, way)
        assert not cell.exists(project, "five", rev(project))
    code, output = ended(start(project, "five", 5, under=UNDER))
    last = [int(line.split()[1]) for line in output.splitlines() if line.startswith("step ")]
    assert code == 0 and cell.exists(project, "five", rev(project)) and "== five" in output, output
    assert not left(project), "nor of the tries that were killed"
    assert steps == sorted(set(steps)) and last and last[0] > steps[-1] and last[-1] == 59, "no step is made twice"


@pytest.mark.promise(
    "Cells that store equal files in one cache at the same time do not damage each other's files", section="Experiments and DVC"
)
def test_what_another_cell_stored_is_neither_emptied_nor_removed(tmp_path, monkeypatch):
    stored, linked, same = (tmp_path / name for name in ("stored", "linked", "same"))
    monkeypatch.setattr(system, "reflink", cell._no_reflink)
    seen = []

    def copied(source, target, **_):
        seen.append((stored.read_text(), linked.read_text()))
        shutil.copyfile(source, target)

    monkeypatch.setattr(local, "copyfile", copied)
    for path in (stored, same):
        path.write_text("rows")
    os.link(stored, linked)
    transfer(local.LocalFileSystem(), str(same), local.LocalFileSystem(), str(stored))
    assert [*seen, (stored.read_text(), linked.read_text())] == [("rows", "rows")] * 2


@pytest.mark.promise("A cell of a sweep has exactly the values of its grid", section="Experiments and DVC")
@given(VALUE)
@settings(max_examples=15)
def test_a_cell_has_the_values_of_its_job(value):
    """Whatever YAML makes of them."""
    job = cell.cell_job("one", "0" * 40, tiny.ROOT, {"data_root": value, "train.epochs": 3})
    given = json.loads(job.command[-1])["changes"]
    text = (tiny.ROOT / "params.yaml").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        params = Path(folder) / "params.yaml"
        for before in (text, "dataset: digits\ntrain:\n"):
            params.write_text(before, encoding="utf-8")
            expected = changed(read_yaml(params), {"data_root": value, "train.epochs": 3})
            change_settings(params, given)
            assert read_yaml(params) == expected
            comments = [line.partition("#")[2] for line in before.splitlines()]
            assert all(comment in params.read_text(encoding="utf-8") for comment in comments)
