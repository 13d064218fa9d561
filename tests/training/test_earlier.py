"""The states of earlier runs: why a stage starts over is said in a line, and only what nobody goes on with is removed."""

import os
import time

import pytest

from dicap.training.checkpoint import earlier
from dicap.training.checkpoint.state import RunState, fingerprint

IDENTITY = {
    "settings": {"seed": 1, "train": {"epochs": 30, "lr": 0.1}},
    "code": {"dicap.losses": "a", "dicap.metrics.ranking": "b"},
    "inputs": {"split/split.parquet": "c"},
}


def changed(**parts):
    return IDENTITY | parts


@pytest.fixture
def interrupted(tmp_path):
    """A function that leaves the state of a run that was interrupted."""

    def leave(identity, stage="train"):
        with RunState(tmp_path, stage, fingerprint(identity)) as state:
            earlier.begin(state, identity)
            state.save({"epoch": 1})
        return state.folder

    return leave


def begun(root, identity=IDENTITY):
    with RunState(root, "train", fingerprint(identity)) as state:
        return earlier.begin(state, identity)


CODE = changed(code={"dicap.losses": "x", "dicap.metrics.ranking": "b"})
INPUTS = changed(inputs={"split/split.parquet": "x"})
SETTINGS = changed(settings={"seed": 2, "train": {"epochs": 40, "lr": 0.1}})


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (CODE, "code changed (dicap.losses)"),
        (INPUTS, "inputs changed (split/split.parquet)"),
        (SETTINGS, "settings changed (seed from 2 to 1, train.epochs from 40 to 30)"),
        (CODE | {"inputs": INPUTS["inputs"]}, "code changed (dicap.losses) and inputs changed (split/split.parquet)"),
        (changed(code={str(i): "x" for i in range(4)}), "code changed (0, 1, 2 and 3 more)"),
    ],
)
def test_a_stage_that_starts_over_says_why_in_a_line(interrupted, tmp_path, before, words):
    interrupted(before)
    assert begun(tmp_path) == [f"train: starts over; since a run of it was interrupted, {words}"]


def test_nothing_is_said_where_nothing_was_interrupted(interrupted, tmp_path):
    assert begun(tmp_path) == []
    assert begun(tmp_path, CODE) == [], "a run that saved nothing"
    interrupted(CODE, stage="warmup")
    assert begun(tmp_path) == [], "another stage"
    interrupted(IDENTITY)
    interrupted(CODE)
    assert begun(tmp_path) == [], "this run goes on"


def test_of_several_states_the_nearest_is_named(interrupted, tmp_path):
    interrupted(SETTINGS | {"code": CODE["code"]})
    interrupted(INPUTS)
    interrupted(SETTINGS | {"inputs": INPUTS["inputs"]})
    assert "since a run of it was interrupted, inputs changed" in begun(tmp_path)[0]


def test_a_state_that_is_in_use_is_not_named_and_not_removed(interrupted, tmp_path):
    folder = interrupted(CODE)
    with RunState(tmp_path, "train", fingerprint(CODE)):
        assert begun(tmp_path) == []
        finish(tmp_path)
        assert folder.exists()
    finish(tmp_path)
    assert not folder.exists()


def finish(root, identity=IDENTITY):
    with RunState(root, "train", fingerprint(identity)) as state:
        earlier.begin(state, identity)
        state.finish()
        earlier.clean(state, identity)


def test_only_what_nobody_goes_on_with_is_removed(interrupted, tmp_path):
    superseded = interrupted(CODE)
    others = [interrupted(SETTINGS), interrupted(INPUTS), interrupted(CODE, stage="warmup")]
    forgotten = interrupted(changed(settings={"seed": 3}))
    past = time.time() - (earlier.KEPT_DAYS + 1) * 86400
    for path in (*forgotten.iterdir(), forgotten):
        os.utime(path, (past, past))
    without = interrupted(changed(settings={"seed": 4}))  # by a version that noted nothing
    (without / earlier.IDENTITY).write_text("[")
    finish(tmp_path)
    assert not superseded.exists() and not forgotten.exists()
    assert all((folder / "state.pt").exists() for folder in [*others, without])


def test_a_folder_that_is_removed_while_its_lock_is_awaited_is_made_again(interrupted, tmp_path, monkeypatch):
    from dicap.training.checkpoint import state as module

    folder = interrupted(CODE)
    take, calls = module._take, []

    def removed_first(lock, place):
        if not calls:
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
        calls.append(place)
        return take(lock, place)

    monkeypatch.setattr(module, "_take", removed_first)
    with RunState(tmp_path, "train", fingerprint(CODE)) as state:
        state.save({"epoch": 2})
    assert len(calls) == 2 and (folder / "state.pt").exists()
