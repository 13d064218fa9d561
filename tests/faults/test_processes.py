"""Processes that are killed or asked to stop at random moments, and a second one beside a first: the same bytes in the end."""

import random
import signal
import time

import pytest
import tiny
from place import Place

pytestmark = pytest.mark.slow
STAGES = ("convert", "warmup", "train", "finetune")
# Digits, shortened: a second or more of work a stage, so that moments differ.
DIGITS = {
    "dataset": "digits", "warmup.epochs": 6, "warmup.eval_every": 6, "train.epochs": 1, "train.cycle_epochs": 0,
    "finetune.epochs": 8,
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Place, dict[str, float]]:
    """A project that ran without a disturbance, and the seconds each of its stages took."""
    place = Place.made(tmp_path_factory.mktemp("digits"), DIGITS)
    for stage in ("convert", "split", "warmup", "train", "finetune"):
        place.done(stage)
    again, seconds = place.copy(tmp_path_factory.mktemp("timed") / "project"), {}
    for stage in STAGES:
        begin = time.monotonic()
        process = again.start(stage)
        begin = max(begin, time.monotonic())
        process.wait()
        seconds[stage] = time.monotonic() - begin
        assert again.out(stage) == place.out(stage), f"{stage} differs from run to run"
    return place, seconds


def disturbed(place, stage, number, seconds, rng):
    """Send a signal at a random moment of the stage, again until one hits before it is published; its exit code and stderr."""
    for _ in range(20):
        place.forget(stage)
        process = place.start(stage)
        time.sleep(rng.uniform(0, seconds))
        process.send_signal(number)
        code, errors = process.wait()
        through = not list(place.folder.glob(f".dicap/state/{stage}-*")) and stage != "convert"
        if code and not through:
            return code, errors
    raise AssertionError("the stage was always through before the signal came")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("stage", STAGES)
def test_killed_at_random_moments_it_ends_in_the_same_bytes(whole, tmp_path, stage):
    before, seconds = whole
    place, rng = before.copy(tmp_path / "project"), random.Random(f"{stage} {tiny.SIZE}")
    for _ in range(5):
        code, _ = disturbed(place, stage, signal.SIGKILL, seconds[stage], rng)
        assert code == -signal.SIGKILL
    place.done(stage)
    assert place.out(stage) == before.out(stage)
    assert not list((place.folder / ".dicap" / "state").glob(f"{stage}-*"))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("stage", STAGES[1:])
def test_asked_to_stop_it_says_so_in_one_line_and_continues(whole, tmp_path, stage, number):
    before, seconds = whole
    place, rng = before.copy(tmp_path / "project"), random.Random(f"{stage} {number}")
    for _ in range(2):
        code, errors = disturbed(place, stage, number, seconds[stage] * 0.9, rng)
        told = [line for line in errors.splitlines() if "Stopped: " in line]
        assert code == 75 and len(told) == 1 and "run again to continue" in told[0] and "Traceback" not in errors, errors
    place.done(stage)
    assert place.out(stage) == before.out(stage)


def test_a_second_run_waits_and_both_end_as_one_alone(whole, tmp_path):
    before, _ = whole
    place = before.copy(tmp_path / "project")
    place.forget("train")
    first = place.start("train")
    tiny.wait_until(lambda: [*place.folder.glob(".dicap/state/train-*/lock")], first)
    second = place.start("train")
    for process in (first, second):
        code, errors = process.wait()
        assert code == 0, errors
    assert "waiting for its result" in second.output()
    assert place.out("train") == before.out("train")
