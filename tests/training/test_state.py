"""The state folder: two checked generations, one owner, atomic replacement, and a name that knows every cause."""

import hashlib
import io
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
import tiny
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


@pytest.mark.promise(
    "If the newest checkpoint is damaged or of another schema, one line says so and the previous checkpoint is used",
    section="Kills, full disks and damage",
)
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_generation_is_passed_over_with_a_line(state, damage):
    state.save({"epoch": 1})
    state.save({"epoch": 2})
    newest = state.folder / "state.pt"
    newest.write_bytes(damage(newest.read_bytes()))
    saved, (line,) = state.load()
    assert saved["epoch"] == 1
    assert "state.pt" in line and "skipped" in line and "the previous checkpoint" in line and "\n" not in line
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


@pytest.mark.promise("Any flipped bit of a checkpoint is noticed", section="Kills, full disks and damage")
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_any_flipped_bit_is_noticed(state, place, bit):
    state.save({"epoch": 1, "x": torch.arange(50)})
    path = state.folder / "state.pt"
    tiny.flip(path, place, bit)
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

    def removed_first(lock, **options):
        if not calls:
            shutil.rmtree(lock.parent)
        calls.append(lock)
        return take(lock, **options)

    monkeypatch.setattr(module, "locked", removed_first)
    with RunState(tmp_path, "train", "0") as state:
        state.save({"epoch": 2})
    assert len(calls) == 2 and (state.folder / "state.pt").exists()


@pytest.mark.promise(
    "A second run of a stage waits for the first run, then takes its result or continues from its state",
    section="Kills, full disks and damage",
)
@pytest.mark.parametrize("ends", ["finished", "stopped"])
def test_a_second_run_waits_and_has_the_products_of_the_first_or_goes_on_from_its_state(tmp_path, ends):
    said, taken = [], []

    def second():
        with RunState(tmp_path, "train", "0", said.append) as state:
            taken.append((state.is_done(), sorted(path.name for path in state.folder.iterdir())))
            state.finish()

    with RunState(tmp_path, "train", "0") as first:
        assert not first.is_done()
        first.products.mkdir()
        first.save({"epoch": 1})
        waiting = threading.Thread(target=second)
        waiting.start()
        tiny.wait_until(lambda: said)
        assert f"process {os.getpid()} runs the same stage" in said[0][0] and not taken
        if ends == "finished":
            first.finish()
    waiting.join(60)
    assert taken == [(True, ["done", "lock", "products"]) if ends == "finished" else (False, ["lock", "products", "state.pt"])]
    assert not first.folder.exists()


def test_products_that_nobody_waited_for_are_not_used(tmp_path):
    with RunState(tmp_path, "train", "0") as state:
        state.products.mkdir()
        (state.folder / "waiting-0").touch()  # of a process that was killed
        state.finish()
    with RunState(tmp_path, "train", "0") as state:
        assert (state.folder / module.DONE).exists()
        assert not state.is_done() and not state.products.exists()


@pytest.mark.promise("An interrupted stage never goes on under changed code or inputs", section="Kills, full disks and damage")
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
        patch.setattr(run, "code_of", lambda *arguments: "edited")
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
