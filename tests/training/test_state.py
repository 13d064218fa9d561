"""The state folder: two checked generations, one owner, atomic replacement, and a name that knows every cause."""

import hashlib
import io
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import tiny
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dicap.provenance.dependencies import STAGE_SETTINGS, code, relevant
from dicap.settings import Settings
from dicap.settings.methods import METHODS
from dicap.training import run
from dicap.training.checkpoint import state as module
from dicap.training.checkpoint.state import RunState, StopSignal, fingerprint


@pytest.fixture
def state(tmp_path):
    with RunState(tmp_path, "train", "0123") as state:
        yield state


def _signed(payload):
    buffer = io.BytesIO()
    torch.save(payload, buffer)
    return hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue()


DAMAGE = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "text": lambda content: b"<html>",
    "a whole file that is no state": lambda content: hashlib.sha256(b"hello").digest() + b"hello",
    "a pickle": lambda content: _signed({"schema": module.SCHEMA, "epoch": Path("x")}),
    "of another schema": lambda content: _signed({"schema": module.SCHEMA + 1, "epoch": 7}),
    "of no schema": lambda content: _signed({"epoch": 7}),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_generation_is_passed_over_with_a_line(state, damage):
    state.save({"epoch": 1})
    state.save({"epoch": 2})
    newest = state.folder / "state.pt"
    newest.write_bytes(damage(newest.read_bytes()))
    saved, (line,) = state.load()
    assert saved["epoch"] == 1
    assert "state.pt" in line and "passed over" in line and "the generation before" in line and "\n" not in line
    previous = state.folder / "previous.pt"
    previous.write_bytes(damage(previous.read_bytes()))
    saved, (line,) = state.load()
    assert saved is None
    assert "previous.pt" in line and "from the start" in line


def test_a_damaged_generation_never_becomes_the_one_to_fall_back_on(state):
    for epoch in (1, 2):
        state.save({"epoch": epoch})
    (state.folder / "state.pt").write_bytes(b"")
    state.load()
    state.save({"epoch": 3})
    (state.folder / "state.pt").write_bytes(b"")
    assert state.load()[0]["epoch"] == 1


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_any_flipped_bit_is_noticed(state, place, bit):
    state.save({"epoch": 1, "x": torch.arange(50)})
    path = state.folder / "state.pt"
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)
    (state.folder / "previous.pt").unlink(missing_ok=True)
    saved, lines = state.load()
    assert saved is None and len(lines) == 1


def test_a_kill_between_the_two_renames_loses_nothing(state, monkeypatch):
    state.save({"epoch": 1})
    replace, calls = os.replace, []

    def killed(source, target):
        calls.append(target)
        if len(calls) == 2:
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(module.os, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        state.save({"epoch": 2})
    assert not (state.folder / "state.pt").exists()
    assert state.load() == ({"schema": module.SCHEMA, "epoch": 1}, [])


def test_only_a_state_that_nobody_has_touched_for_long_and_no_run_holds_is_removed(tmp_path):
    past = time.time() - (module.STALE_DAYS + 1) * 86400

    def left(identity, *, old):
        with RunState(tmp_path, "train", identity) as state:
            state.save({"epoch": 1})
        for path in (*state.folder.iterdir(), state.folder) if old else ():
            os.utime(path, (past, past))
        return state.folder

    recent, stale, held = left("recent", old=False), left("stale", old=True), left("held", old=True)
    with RunState(tmp_path, "train", "done") as state, RunState(tmp_path, "train", "held"):
        os.utime(held, (past, past))
        state.finish()
    assert sorted((tmp_path / ".dicap" / "state").iterdir()) == [held, recent] and not stale.exists()


def test_a_folder_that_is_removed_while_its_lock_is_awaited_is_made_again(tmp_path, monkeypatch):
    take, calls = module.locked, []

    def removed_first(lock):
        if not calls:
            shutil.rmtree(lock.parent)
        calls.append(lock)
        return take(lock)

    monkeypatch.setattr(module, "locked", removed_first)
    with RunState(tmp_path, "train", "0") as state:
        state.save({"epoch": 2})
    assert len(calls) == 2 and (state.folder / "state.pt").exists()


def test_every_relevant_setting_changes_the_fingerprint_and_no_other():
    changed = {
        "seed": 2, "ratio": 0.25, "method": "mld", "head": "linear", "backbone": "test_vit", "image_size": 48,
        "network.dropout": 0.5, "augment.cutout": 0.1, "loss.clip": 0.1, "optimiser.lr": 0.5, "warmup.epochs": 9,
        "contrastive.temperature": 0.1, "calibration.bins": 7, "thresholds.rule": "none", "train.epochs": 9,
        "finetune.lr": 0.5, "convert.max_rejected": 0.5,
    }  # fmt: skip
    for stage, names in STAGE_SETTINGS.items():
        frozen = {"warmup.trainable": "head"} if stage == "features" else {}
        before = fingerprint(relevant(tiny.settings(frozen), stage))
        for key, value in changed.items():
            after = fingerprint(relevant(tiny.settings(frozen | {key: value}), stage))
            assert (after != before) == bool({key, key.split(".")[0]} & set(names)), (stage, key)


@pytest.mark.parametrize("method", METHODS)
def test_the_settings_of_a_finished_run_are_read_back_as_they_were(method):
    made = tiny.settings({"method": method})
    assert Settings.model_validate(relevant(made, "report")) == made


def test_a_warm_up_depends_on_the_main_stage_s_batches_where_its_own_are_as_large():
    def changes(over: str, key: str) -> bool:
        one, other = (relevant(tiny.settings({"warmup.over": over, key: n}), "warmup") for n in (3, 4))
        return one != other

    for key in ("train.batch_size", "train.batch_labelled"):
        assert changes("unlabelled", key) and not changes("labelled", key)


def test_features_that_no_stage_needs_depend_on_nothing():
    assert relevant(tiny.settings(), "features") == relevant(tiny.settings({"backbone": "test_vit"}), "features") == {}
    first, both = ({"warmup.trainable": "head"}, {"warmup.trainable": "head", "train.trainable": "head"})
    assert relevant(tiny.settings(first), "features") == relevant(tiny.settings(both), "features")
    none, one, two = (relevant(tiny.settings({"features.views": n}), "convert") for n in range(3))
    assert none != one == two, "whether the test split is part of what they depend on"


def test_the_fingerprint_knows_the_inputs_the_code_and_the_schema(tiny_experiment, tmp_path, monkeypatch):
    model = tmp_path / "model"
    model.write_bytes(b"one")
    experiment = tiny_experiment()

    def now(path=model):
        return fingerprint(run.depends("train", experiment, [path]))

    before = now()
    assert now() == before
    os.utime(model, (1, 1))  # a clock set back
    assert now() == before
    model.write_bytes(b"two")
    assert now() != before
    model.write_bytes(b"one")
    with monkeypatch.context() as patch:
        patch.setattr(run, "code", lambda *arguments: code(*arguments) | {"dicap.losses": "edited"})
        assert now() != before
    assert now() == before
    monkeypatch.setattr(module, "SCHEMA", module.SCHEMA + 1)
    assert now() != before


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_is_a_flag_and_a_second_one_means_now(number):
    chosen = getattr(signal, number)
    before = signal.getsignal(chosen)
    with StopSignal() as stop:
        assert not stop
        signal.raise_signal(chosen)
        assert stop
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(chosen)
    assert signal.getsignal(chosen) is before
