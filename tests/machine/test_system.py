"""Cores, parents and freed memory, as the operating system tells and is told (dicap.machine.processes)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

from dicap.machine.processes import cores


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes are not bound to cores here")
def test_only_the_cores_that_a_process_may_use_count():
    script = (
        "import os; from dicap.machine.processes import cores; "
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); print(cores())"
    )
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "1\n"
    assert 1 <= cores() <= (os.cpu_count() or 1)


def test_a_process_ends_with_its_parent(tmp_path):
    child = (
        "import os, sys, time; from pathlib import Path; from dicap.machine.processes import when_parent_ends; "
        "when_parent_ends(Path('ended').touch, os.getppid(), 0.02); Path('began').touch(); time.sleep(60)"
    )
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {child!r}]).wait()"
    process = subprocess.Popen([sys.executable, "-c", parent], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(Path.cwd())})
    tiny.wait_until((tmp_path / "began").exists)
    assert not (tmp_path / "ended").exists()
    process.kill()
    process.wait()
    tiny.wait_until((tmp_path / "ended").exists)
