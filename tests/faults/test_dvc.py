"""Signals to DVC itself: it may die and leave the stage running; nothing is lost, and two never write the same files."""

import os
import signal
import subprocess

import psutil
import pytest
import tiny
from repository.test_pipeline import Clone, clone, finished

__all__ = ["clone", "finished"]  # fixtures

pytestmark = [pytest.mark.pipeline, pytest.mark.slow]
# DVC would otherwise take the finished stage out of its cache.
AGAIN = ("dvc", "repro", "--no-run-cache", "--force", "--single-item", "train")


def owner(clone: Clone) -> str:
    """The process that holds the state of the main stage, or held it last."""
    locks = list(clone.folder.glob(".dicap/state/train-*/lock"))
    return locks[0].read_text() if locks else ""


def begun(clone: Clone, **options) -> tuple[subprocess.Popen, psutil.Process]:
    """DVC itself running the main stage, and the process of the stage."""
    before, own = owner(clone), tiny.environment(clone.folder, DICAP_DEVICE="cpu")  # one process group, as in a terminal
    process = subprocess.Popen(
        AGAIN, cwd=clone.folder, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    tiny.wait_until(lambda: owner(clone) not in ("", before), seconds=300)
    return process, psutil.Process(int(owner(clone)))


@pytest.mark.promise("Ctrl-C, SIGTERM or SIGKILL to DVC loses nothing", section="Kills, full disks and damage")
@pytest.mark.promise(
    "A trainer that is stopped or killed under DVC ends in the same bytes", section="Kills, full disks and damage"
)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", ["Ctrl-C", "SIGTERM", "SIGKILL", "the trainer alone"])
def test_a_signal_to_dvc_loses_nothing(clone, way):
    before = clone.model("train")
    process, trainer = begun(clone, start_new_session=True)
    if way == "Ctrl-C":  # to the whole group: the stage decides, DVC waits for it
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=300)
        assert "Stopped: train: checkpoint saved" in output and process.returncode != 0, output
        assert not tiny.alive(trainer)
    elif way == "the trainer alone":
        tiny.wait_until(lambda: [*clone.folder.glob(".dicap/state/train-*/state.pt")])
        trainer.kill()
        output, _ = process.communicate(timeout=300)
        assert process.returncode != 0, output
    else:
        process.send_signal(signal.SIGTERM if way == "SIGTERM" else signal.SIGKILL)
        process.wait(timeout=60)
        assert tiny.alive(trainer)  # DVC died, the stage did not
        trainer.suspend()  # or it would be through before the second begins
        second = clone.start(*AGAIN)
        tiny.wait_until(lambda: [*clone.folder.glob(".dicap/state/train-*/waiting-*")])
        trainer.resume()
        trainer.terminate()
        output, _ = second.communicate(timeout=600)
        assert second.returncode == 0 and "resuming train after" in output, output
        tiny.wait_until(lambda: not tiny.alive(trainer))
    third = clone.start(*AGAIN)
    output, _ = third.communicate(timeout=600)
    assert third.returncode == 0 and "resuming train after" in output, output
    assert clone.model("train") == before
    assert not list((clone.folder / ".dicap" / "state").iterdir())
