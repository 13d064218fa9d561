"""What `table` reads of a repository: commits and experiments from Git, results from DVC's cache."""

import hashlib
import io
import json
import subprocess
from pathlib import Path

import pytest
import tiny
from ruamel.yaml import YAML

from dicap.errors import DataError
from stages.sweeps import revisions as module
from stages.sweeps.finished import METRICS, UNSET, finished
from stages.sweeps.revisions import cached, copy_of, revisions, text_of

PARAMS = {"dataset": "digits", "ratio": 0.05, "seed": 1, "method": "dicap"}


def put(data: bytes, ending: str = "") -> str:
    name = hashlib.md5(data).hexdigest()
    path = Path(".dvc/cache/files/md5") / name[:2] / (name[2:] + ending)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return name + ending


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout.strip()


def commit(message: str, **changes) -> str:
    """A commit of params.yaml with these changes, and of a dvc.lock whose result in the cache fits."""
    values = PARAMS | changes
    metrics = put(json.dumps({"map": 50.0 + values["seed"]} | values).encode())
    parts = [{"md5": put(text), "relpath": f"weights/{text.decode()}/part"} for text in (b"0", b"1")]
    folder = put(json.dumps([{"md5": metrics, "relpath": "metrics.json"}, *parts]).encode(), ".dir")
    Path("params.yaml").write_text("".join(f"{key}: {value}\n" for key, value in values.items()) + "train:\n  epochs: null\n")
    lock = (
        f"stages:\n  evaluate:\n    outs:\n    - path: artifacts/evaluate\n      hash: md5\n      md5: {folder}\n      size: 3\n"
    )
    Path("dvc.lock").write_text(lock)
    Path("README").write_text(message)
    git("add", "-A")
    git("commit", "-qm", message)
    return git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Two commits that ran, one that changed only the README, and an experiment of the first."""
    import tiny

    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(tiny.ROOT / "configs")
    git("init", "-q", "-b", "main")
    git("config", "user.email", "somebody@example.org")
    git("config", "user.name", "Somebody")
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
    found = revisions("params.yaml", everywhere=True)
    assert sorted(revision.name for revision in found) == sorted(["main", "wild-guess", repository[:7]])
    assert git("log", "-1", "--format=%s", next(r.rev for r in found if r.name == "main")) == "only words"
    assert [revision.name for revision in revisions("params.yaml", everywhere=False)] == ["main"]
    git("checkout", "-q", repository)
    assert {revision.name for revision in revisions("params.yaml", everywhere=False)} == {repository[:7], "wild-guess"}


def test_git_is_asked_as_often_of_many_commits_as_of_few(repository, monkeypatch):
    asked = []
    run = module._run
    monkeypatch.setattr(module, "_run", lambda *arguments, **options: (asked.append(arguments), run(*arguments, **options))[1])
    finished(Path("params.yaml"), everywhere=True)
    few = len(asked)
    for number in range(8):
        commit(f"later {number}", seed=10 + number)
    asked.clear()
    experiments, _ = finished(Path("params.yaml"), everywhere=True)
    assert len(asked) == few and len(experiments) >= 10


def test_settings_and_metrics_belong_together(repository):
    experiments, notes = finished(Path("params.yaml"), everywhere=True)
    assert not notes
    assert {item["name"]: (item["settings"]["seed"], item["metrics"]["map"]) for item in experiments} == {
        "main": (2, 52.0),
        "wild-guess": (3, 53.0),
        repository[:7]: (1, 51.0),
    }
    assert all(item["settings"]["train"]["epochs"] > 0 for item in experiments)


def test_what_the_cache_does_not_hold_is_no_result(repository, tmp_path):
    lock = Path("dvc.lock").read_text()
    place = cached(lock, METRICS)
    assert place is not None and json.loads(place.read_text())["map"] == 52.0
    assert cached(lock, "artifacts/evaluate/nothing.csv") is None and cached(lock, "artifacts/train") is None
    assert copy_of("HEAD", "artifacts/evaluate/weights", tmp_path / "weights")  # a folder in one that is an output
    assert {path.parent.name: path.read_text() for path in tmp_path.glob("weights/*/part")} == {"0": "0", "1": "1"}
    assert copy_of("HEAD", METRICS, tmp_path / "copy.json") and not copy_of("HEAD~9", METRICS, tmp_path / "no.json")
    place.unlink()
    assert cached(lock, METRICS) is None
    assert {item["name"] for item in finished(Path("params.yaml"), everywhere=True)[0]} == {"wild-guess", repository[:7]}


def test_another_folder_for_the_cache_is_found(repository):
    Path(".dvc/cache").rename("elsewhere")
    Path(".dvc/config").write_text(
        "[core]\n    analytics = false\n[cache]\n    dir = ../elsewhere\n['remote \"store\"']\n    url = /x\n"
    )
    module._config.cache_clear()
    assert cached(Path("dvc.lock").read_text(), METRICS) is not None and module.has_remote()
    module._config.cache_clear()


def test_outside_a_repository_is_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="git rev-parse: not a git repository"):
        revisions("params.yaml", everywhere=True)


def test_texts_of_no_blobs_ask_nobody():
    assert text_of([]) == {}


def test_lines_that_say_nothing_are_left_out_and_no_others():
    """Each section of params.yaml with its first key set, as DVC writes it: nothing that is set gets lost."""
    text = (tiny.ROOT / "params.yaml").read_text(encoding="utf-8")
    sections = [key for key, value in YAML(typ="safe").load(text).items() if isinstance(value, dict)]
    assert len(sections) > 10
    for section in sections:
        values = YAML().load(text)
        key = next(iter(values[section]))
        values[section][key] = 4
        written = io.StringIO()
        YAML().dump(values, written)
        left = YAML(typ="safe").load(UNSET.sub("", written.getvalue()))
        assert left[section] == {key: 4}, section
        assert left["dataset"] == values["dataset"] and left["ratio"] == values["ratio"]
