"""`dicap-stage sweep` and what it makes of DVC's queue; DVC itself only in tests/test_pipeline.py."""

import subprocess
from pathlib import Path

import pytest
import tiny
from click.testing import CliRunner

from dicap.errors import DataError
from dicap.grid import cells, read_grid
from stages import finished, queue, sweep
from stages.cli import main

GRID = "title: Two\ntable: main\naxes: {method: [mld, dicap], seed: [1, 2]}\n"
STATUS = """\
Task     Name        Created       Status
d661e20  again       02:46 PM      Queued
1112223  going       Jan 02, 2026  Running
9df6853  again       02:45 PM      Failed
95827f6  broken      02:45 PM      Failed
aaaaaaa  good        02:45 PM      Success
bbbbbbb  good        02:40 PM      Failed

Worker status: 1 active, 0 idle
"""
UNEXPECTED = "ERROR: unexpected error - Expecting value: line 1 column 1"  # DVC met a file of which nothing was written yet


def test_states_are_read_from_the_queues_table():
    assert queue.states(STATUS) == {"again": "Queued", "going": "Running", "broken": "Failed", "good": "Success"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (0.05, "0.05"),
        ("mld", "mld"),
        ("/a b/c", "'/a b/c'"),
        ("it's", r"'it\'s'"),
        ("a,b", "'a,b'"),
    ],
)
def test_values_are_written_as_hydra_reads_them(value, text):
    assert queue._literal(value) == text


def test_watching_ends_with_every_experiment_and_gives_up_without_workers(monkeypatch):
    answers = iter([_answer(1, a="Running", b="Queued", c="Queued"), *[_answer(0, a="Success", b="Failed", c="Queued")] * 3])
    started: list[int] = []
    monkeypatch.setattr(queue, "question", lambda *_: next(answers))
    monkeypatch.setattr(queue, "start", started.append)
    watched = list(queue.watch(["a", "b", "c"], 1, interval=0, attempts=2))
    assert watched == [("a", "Success"), ("b", "Failed"), ("c", "Queued")]
    assert started == [1, 1], "two attempts to bring up a worker"


def test_a_watch_wakes_when_dvc_notes_a_result(tmp_path, monkeypatch):
    folder = tmp_path / "result"
    folder.mkdir()
    monkeypatch.setattr(queue, "_RESULTS", folder)
    monkeypatch.setattr(queue.time, "sleep", lambda _: (folder / "one").write_text(""))
    before = queue._results()
    queue._wait(600.0)  # returns at the first look, or this test lasts ten minutes
    assert (before, queue._results()) == (0, 1)


def test_a_worker_that_died_is_replaced(monkeypatch):
    answers = iter(
        [_answer(1, a="Running", b="Queued"), _answer(2, a="Running", b="Running"), _answer(0, a="Success", b="Success")]
    )
    started: list[int] = []
    monkeypatch.setattr(queue, "question", lambda *_: next(answers))
    monkeypatch.setattr(queue, "start", started.append)
    assert dict(queue.watch(["a", "b"], 2, interval=0)) == {"a": "Success", "b": "Success"}
    assert started == [2]


def test_asking_less_often_while_nothing_ends(monkeypatch):
    running, next_one, away = (
        _answer(1, a="Running", b="Queued"),
        _answer(1, a="Success", b="Running"),
        _answer(0, a="Success", b="Running"),
    )
    answers = iter([running, running, running, next_one, next_one, away, _answer(0, a="Success", b="Success")])
    pauses: list[float] = []
    monkeypatch.setattr(queue, "question", lambda *_: next(answers))
    monkeypatch.setattr(queue, "_wait", pauses.append)
    assert dict(queue.watch(["a", "b"], 1, interval=10)) == {"a": "Success", "b": "Success"}
    assert pauses == [10, 20, 40, 10, 20, 10], "up to a minute; at once more often where one ended or no worker answers"


def test_a_worker_that_answers_late_is_not_replaced_but_one_that_stays_away_is(monkeypatch):
    late, here, done = _answer(0, a="Running"), _answer(1, a="Running"), _answer(0, a="Success")
    started: list[int] = []
    for answers, starts in (([late] * 3 + [here] + [late] * 3 + [done], 0), ([late] * 5 + [done], 2)):
        started.clear()
        following = iter(answers)
        monkeypatch.setattr(queue, "question", lambda *_, following=following: next(following))
        monkeypatch.setattr(queue, "start", started.append)
        assert dict(queue.watch(["a"], 1, interval=0)) == {"a": "Success"}
        assert len(started) == starts


@pytest.mark.parametrize(
    ("answers", "killed"),
    [
        ([(0, "Running")] * 4, True),  # a power cut: nobody works at it
        ([(0, "Running")] * 3 + [(1, "Running")], False),  # a late answer
        ([(0, "Queued")], False),
        ([(1, "Running")], False),
    ],
)
def test_what_a_power_cut_left_running_is_given_up(monkeypatch, answers, killed):
    following = iter(_answer(workers, a=state, b="Success", other="Running") for workers, state in answers)
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(queue, "question", lambda *_: next(following))
    monkeypatch.setattr(queue, "ask", lambda *arguments: asked.append(arguments))
    queue.release(["a", "b", "c"], interval=0)
    assert asked == ([("queue", "kill", "a")] if killed else []) and next(following, None) is None


def _answer(workers: int, **of_names: str) -> str:
    rows = [f"{k:07x}  {name}  02:46 PM  {state}" for k, (name, state) in enumerate(of_names.items())]
    return "\n".join([*rows, f"Worker status: {workers} active, 0 idle"])


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    (tmp_path / "configs").symlink_to(tiny.ROOT / "configs")
    (tmp_path / "params.yaml").symlink_to(tiny.ROOT / "params.yaml")
    (tmp_path / "grid.yaml").write_text(GRID)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Queue:
    """A queue that runs at once; experiments whose name holds `bad` fail."""

    def __init__(self, monkeypatch, done: list[dict], bad: str = "never") -> None:
        self.added: dict[str, dict] = {}
        self.jobs: list[int] = []
        monkeypatch.setattr(finished, "finished", lambda params, *, everywhere: (done, []))
        monkeypatch.setattr(queue, "release", lambda names: None)
        monkeypatch.setattr(queue, "states", lambda: {})
        monkeypatch.setattr(queue, "add", self.added.__setitem__)
        monkeypatch.setattr(queue, "start", self.jobs.append)
        monkeypatch.setattr(queue, "watch", lambda names, jobs: ((n, "Failed" if bad in n else "Success") for n in names))
        monkeypatch.setattr(queue, "reason", lambda name: "Error: no disk")


def run(*arguments: str):
    result = CliRunner().invoke(main, ["sweep", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_only_what_is_missing_is_queued(project, monkeypatch):
    every = cells(read_grid(project / "grid.yaml"), project / "params.yaml")
    fake = Queue(monkeypatch, [{"settings": cell.settings} for cell in every[1:3]])
    result = run("grid.yaml", "--jobs", "2")
    assert result.exit_code == 0 and fake.jobs == [2]
    assert fake.added == {cell.name: cell.changes for cell in (every[0], every[3])}
    assert "4 cells, 2 finished, 2 to run" in result.stdout and "dicap-stage table main" in result.stdout


def test_a_finished_sweep_runs_nothing(project, monkeypatch):
    every = cells(read_grid(project / "grid.yaml"), project / "params.yaml")
    fake = Queue(monkeypatch, [{"settings": cell.settings} for cell in every])
    assert run("grid.yaml").exit_code == 0 and not fake.added and not fake.jobs


def test_a_failed_cell_is_reported_and_the_rest_runs(project, monkeypatch):
    fake = Queue(monkeypatch, [], bad="mld-r0_05-s2")
    result = run("grid.yaml")
    assert result.exit_code == 1 and len(fake.added) == 4
    assert "3 of 4 cells finished" in result.stdout
    assert "failed: pictograms-mld-r0_05-s2" in result.stderr and "no disk" in result.stderr and "1 cells failed" in result.stderr


def test_a_dry_run_queues_nothing(project, monkeypatch):
    fake = Queue(monkeypatch, [])
    result = run("grid.yaml", "--dry-run", "-S", "seed=5", "-S", "train.epochs=2")
    assert result.exit_code == 0 and not fake.added
    names = [line.split()[-1][:21] for line in result.stdout.splitlines()[1:]]
    assert names == ["pictograms-mld-r0_05-", "pictograms-dicap-r0_0"]


def test_options_reach_the_cells(project, monkeypatch):
    fake = Queue(monkeypatch, [])
    run("grid.yaml", "-S", "seed=5,6", "-S", "ratio=0.1", "--dataset", "voc2012", "-S", "data_root=/somewhere")
    assert [(change["seed"], change["ratio"], change["dataset"]) for change in fake.added.values()] == [
        (5, 0.1, "voc2012"), (6, 0.1, "voc2012"), (5, 0.1, "voc2012"), (6, 0.1, "voc2012"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("option", "line"), [("sed=1", "did you mean seed?"), ("seed", "expected SETTING=VALUE"), ("ratio=7", "ratio")]
)
def test_a_bad_option_is_refused_before_anything_is_queued(project, monkeypatch, option, line):
    fake = Queue(monkeypatch, [])
    result = run("grid.yaml", "-S", option)
    assert result.exit_code == 2 and line in result.stderr and not fake.added


def test_outside_a_repository_the_reason_is_gits_own(project, monkeypatch):
    def refuse(*arguments: str, everywhere: bool) -> str:
        raise DataError("git rev-parse: not a git repository")

    monkeypatch.setattr(finished, "revisions", refuse)
    result = run("grid.yaml")
    assert result.exit_code == 1 and "not a git repository" in result.stderr


@pytest.mark.parametrize(("failures", "line", "tries"), [(2, UNEXPECTED, 3), (9, UNEXPECTED, 6), (9, "ERROR: no such file", 1)])
def test_a_question_is_put_again_where_a_worker_is_just_writing(monkeypatch, failures, line, tries):
    asked: list[list[str]] = []

    def dvc(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        failed = len(asked) <= failures
        return subprocess.CompletedProcess(command, int(failed), stdout="the answer", stderr=line if failed else "")

    monkeypatch.setattr(finished.subprocess, "run", dvc)
    monkeypatch.setattr(finished.time, "sleep", lambda _: None)
    if failures < tries:
        assert finished.question("queue", "status") == "the answer"
    else:
        with pytest.raises(DataError, match=f"dvc queue status: {line.removeprefix('ERROR: ')}"):
            finished.question("queue", "status")
    assert len(asked) == tries


def test_what_changes_something_is_asked_once(monkeypatch):
    asked: list[list[str]] = []

    def dvc(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 1, stdout="", stderr=UNEXPECTED)

    monkeypatch.setattr(finished.subprocess, "run", dvc)
    with pytest.raises(DataError, match="unexpected error"):
        queue.add("a", {"seed": 1})
    assert len(asked) == 1


def test_the_help_names_the_folder_of_grids():
    assert "experiments/" in (sweep.command.help or "")
