"""What `sweep`, `table` and `figures` read of a repository: commits and experiments from Git, results from DVC's cache."""

import hashlib
import json
from pathlib import Path

import pytest
import tiny

from dicap.settings import load_settings
from stages.lab.sweeps.finished import METRICS, dvc_config, finished, revisions, stages_of

from .test_sweep import git

PARAMS = {"dataset": "digits", "ratio": 0.05, "seed": 1, "method": "dicap"}


def put(data: bytes, ending: str = "") -> str:
    name = hashlib.md5(data).hexdigest()
    path = Path(".dvc/cache/files/md5") / name[:2] / (name[2:] + ending)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return name + ending


def locked(stages: dict[str, tuple[dict[str, str], dict[str, str]]]) -> str:
    """A dvc.lock of the inputs and the results of each stage; a setting may be named `outs`, too."""

    def files(sums):
        return [{"path": path, "hash": "md5", "md5": md5} for path, md5 in sums.items()]

    params = {"params.yaml": {"outs": None}}
    parts = {name: {"deps": files(deps), "params": params, "outs": files(outs)} for name, (deps, outs) in stages.items()}
    return json.dumps({"schema": "2.0", "stages": parts})


def commit(message: str, lock: bool = True, **changes) -> str:
    """A commit of params.yaml with these changes, and of a dvc.lock whose results in the cache fit."""
    values = PARAMS | changes
    Path("params.yaml").write_text("".join(f"{key}: {value}\n" for key, value in values.items()) + "train:\n  epochs: null\n")
    if lock:
        settings = load_settings(Path("params.yaml")).model_dump(mode="json")
        written = put(json.dumps(settings).encode())
        metrics = put(json.dumps({"map": 50.0 + values["seed"]}).encode())
        folder = put(json.dumps([{"md5": metrics, "relpath": "details.json"}]).encode(), ".dir")
        trained = hashlib.md5(metrics.encode()).hexdigest()
        report = put(json.dumps([{"md5": written, "relpath": "settings.json"}]).encode(), ".dir")
        stages = {  # in the order of dvc.lock
            "report": ({"artifacts/evaluate": folder}, {"artifacts/report": report}),
            "evaluate": ({"artifacts/train": trained}, {"artifacts/evaluate": folder}),
            "train": ({"artifacts/split": written[::-1]}, {"artifacts/train": trained}),
            "split": ({"dicap": "0" * 32 + ".dir"}, {"artifacts/split": written[::-1]}),
        }
        Path("dvc.lock").write_text(locked(stages))
    Path("README").write_text(message)
    git("add", "-A")
    git("commit", "-qm", message)
    return git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Two commits that ran, one that changed only the README, and an experiment of the first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(tiny.ROOT / "configs")
    git("init", "-q", "-b", "main")
    Path(".dvc").mkdir()
    Path(".gitignore").write_text(".dvc/cache\n")
    first = commit("first")
    git("checkout", "-q", "-b", "side")
    trial = commit("trial", seed=3)
    git("update-ref", f"refs/exps/{first[:2]}/{first[2:]}/wild-guess", trial)
    git("checkout", "-q", "main")
    git("branch", "-qD", "side")
    commit("second", seed=2)
    commit("only words", seed=2)
    return first


def test_commits_that_are_alike_are_one_and_experiments_have_their_names(repository):
    found = revisions(everywhere=True)
    head, second = git("rev-parse", "HEAD", "HEAD~1").split()
    assert sorted(revision.name for revision in found) == sorted([second[:7], "wild-guess", repository[:7]])
    assert [(revision.name, revision.rev) for revision in revisions(everywhere=False)] == [(head[:7], head)]
    experiments, notes = finished(everywhere=True)
    assert not notes and {item["name"]: (item["settings"]["seed"], item["metrics"]["map"]) for item in experiments} == {
        second[:7]: (2, 52.0),
        "wild-guess": (3, 53.0),
        repository[:7]: (1, 51.0),
    }
    git("checkout", "-q", repository)
    assert {revision.name for revision in revisions(everywhere=False)} == {repository[:7], "wild-guess"}


def test_the_latest_is_told_whatever_the_time_zone(repository, monkeypatch):
    for number, when in enumerate(("2030-01-01T12:00:00+0900", "2030-01-01T05:00:00+0000")):  # the first is 3:00 in London
        monkeypatch.setenv("GIT_COMMITTER_DATE", when)
        commit(when, seed=20 + number)
    assert [item["settings"]["seed"] for item in finished(everywhere=True)[0]][-2:] == [20, 21]


@pytest.mark.promise("Damaged scores do not count in a table", section="Experiments and DVC")
def test_what_the_cache_does_not_hold_is_no_result(repository):
    outs = stages_of(Path("dvc.lock").read_text())["evaluate"].outs
    folder = Path(".dvc/cache/files/md5", outs[str(Path(METRICS).parent)][:2], outs[str(Path(METRICS).parent)][2:])
    md5 = json.loads(folder.read_text())[0]["md5"]
    place = Path(".dvc/cache/files/md5", md5[:2], md5[2:])
    edited = place.read_text().replace("52", "92")  # still JSON
    for damage in (lambda: place.write_text(edited), place.unlink, folder.unlink):
        damage()
        experiments, notes = finished(everywhere=True)
        assert {item["name"] for item in experiments} == {"wild-guess", repository[:7]}
        (note,) = notes
        assert note.startswith("left out 1 run whose results are missing from DVC's cache or damaged; no DVC remote is set;")
    Path(".dvc/config").write_text("[core]\n    remote = there\n['remote \"there\"']\n    url = ../there\n")
    dvc_config.cache_clear()
    for everywhere, ways in ((True, "`dvc fetch --all-commits`"), (False, "`dvc fetch`")):
        assert f"{ways} gets them from the remote." in finished(everywhere=everywhere)[1][0]


@pytest.mark.promise("A table shows the settings that were in force when a run was made", section="Experiments and DVC")
def test_settings_are_those_of_the_run_whatever_the_files_say_later(repository):
    """params.yaml and configs/ edited and committed without a run."""
    before, _ = finished(everywhere=False)
    Path("configs").unlink()
    Path("configs").mkdir()
    Path("configs/digits.yaml").write_text("image_size: 96\n")
    commit("edited", lock=False, seed=9, ratio=0.5)
    after, notes = finished(everywhere=False)
    assert [(item["settings"], item["metrics"]) for item in after] == [(item["settings"], item["metrics"]) for item in before]
    assert not notes


@pytest.mark.promise("Scores older than the model do not count in a table", section="Experiments and DVC")
def test_scores_of_an_earlier_run_than_the_model_are_left_out(repository):
    """As after `dvc repro train` or `dvc repro split` under other settings."""
    written = Path("dvc.lock").read_text()
    for stage in ("train", "split"):
        lock = json.loads(written)
        lock["stages"][stage]["outs"][0]["md5"] = "1" * 32
        Path("dvc.lock").write_text(json.dumps(lock))
        git("commit", "-qam", "half")
        experiments, notes = finished(everywhere=False)
        why = "left out, its scores are from an earlier run than its model or data."
        assert not experiments and notes == [f"{git('rev-parse', '--short=7', 'HEAD')}: {why}"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"ratoi": 1}, "its settings are no longer valid (ratoi)"),
        ({"method": "fixmatch"}, "this version has no method 'fixmatch'"),
    ],
)
def test_settings_that_are_no_more_are_named(repository, monkeypatch, change, why):
    whole = load_settings(Path("params.yaml")).model_dump(mode="json")
    monkeypatch.setattr("stages.lab.sweeps.finished._json", lambda cache, outs, path: whole | change)
    assert finished(everywhere=False) == ([], [f"{git('rev-parse', '--short=7', 'HEAD')}: left out, {why}."])
