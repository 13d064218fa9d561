"""`--nproc 2`: when one process ends both do, with one line, and the state they leave is whole."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
import tiny
import warm

from dicap.training.checkpoint.state import _read
from stages.support.launch import launch

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_one_process_ends_both_do_and_the_state_is_whole(project, number):
    project.set({"train.epochs": 2000, "train.eval_every": 2000})
    server = {warm.PLACE: tiny.warm_environment()[warm.PLACE]}  # of the two that it starts
    process = tiny.stage(project.folder, "train", "--nproc", "2", DICAP_DEVICE="cpu", **server)
    try:
        tiny.wait_until(lambda: [*project.folder.glob(".dicap/state/train-*/previous.pt")], process, 400)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (second,) = (int(pid) for pid in children if b"RANK=1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
        os.kill(second, number)
        code, output = process.wait(200)
    finally:
        process.send_signal(signal.SIGKILL)
    assert code == (75 if number == signal.SIGTERM else 1), output
    (line,) = (line for line in output.splitlines() if "image/s" not in line)  # beside the bars
    killed = "process 1: Error: ended by signal 9; the last state that was saved is whole, run again to continue"
    assert line == killed if number == signal.SIGKILL else line.startswith("Stopped: train: state saved after")
    (state,) = project.folder.glob(".dicap/state/train-*/state.pt")
    saved = _read(state)
    assert saved is not None and saved["checkpoint"]["epoch"] >= 1
    assert not Path(f"/proc/{second}").exists()


@pytest.mark.parametrize("failing", [0, 1])
def test_a_process_that_fails_says_why_once_and_ends_all(capfd, failing):
    fails = f"import os, sys, time; os.environ['RANK'] == '{failing}' and sys.exit('Error: no such thing'); time.sleep(60)"
    began = time.monotonic()
    assert launch(3, [sys.executable, "-c", fails]) == 1
    assert capfd.readouterr().err == ("process 1: " if failing else "") + "Error: no such thing\n"
    assert time.monotonic() - began < 50  # not what the others would have taken
