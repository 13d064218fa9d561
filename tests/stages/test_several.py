"""`--nproc 2`: when one process ends both do, and the state they leave is whole."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny

from dicap.training.checkpoint.state import _read

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_one_process_ends_both_do_and_the_state_is_whole(project, number):
    project.set({"train.epochs": 2000, "train.eval_every": 2000})
    env = os.environ | {"PYTHONPATH": str(tiny.ROOT), "OMP_NUM_THREADS": "1", "DICAP_DEVICE": "cpu"}
    command = [sys.executable, "-m", "stages.cli", "train", "--nproc", "2"]
    process = subprocess.Popen(command, cwd=project.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until = time.monotonic() + 400
        while not list(project.folder.glob(".dicap/state/train-*/previous.pt")):
            assert process.poll() is None and time.monotonic() < until, process.stdout.read() if process.stdout else ""
            time.sleep(0.1)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        (second,) = (int(pid) for pid in children if b"RANK=1" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
        os.kill(second, number)
        output, _ = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == (75 if number == signal.SIGTERM else 1), output
    assert "Traceback" not in output
    assert ("process 1: ended with -9" in output) == (number == signal.SIGKILL), output
    (state,) = project.folder.glob(".dicap/state/train-*/state.pt")
    saved = _read(state)
    assert saved is not None and saved["checkpoint"]["epoch"] >= 1
    assert not Path(f"/proc/{second}").exists()
