"""What the operating system tells of GPUs, and what is refused by it before torch is loaded."""

import subprocess
import sys

import pytest
import tiny

from dicap.errors import SettingsError
from dicap.machine.gpus import check_device, count_gpus
from stages.support.launch import check_processes


@pytest.mark.parametrize(
    ("devices", "visible", "count"),
    [
        ([], None, 0),
        (["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"], None, 2),
        (["nvidia0", "nvidia1"], "1", 1),
        (["nvidia0", "nvidia1"], "0,1,2", 2),
        (["nvidia0"], "", 0),
        (["nvidia0"], "-1", 0),
        (["kfd"], None, None),  # AMD's: torch counts them
    ],
)
@pytest.mark.skipif(sys.platform != "linux", reason="device files are Linux's")
def test_gpus_are_counted_by_their_device_files(tmp_path, monkeypatch, devices, visible, count):
    for name in devices:
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert count_gpus(tmp_path) == count


@pytest.mark.parametrize(
    ("device", "amp", "gpus", "key"),
    [
        ("cuda", "auto", 0, "--device"),
        ("cuda:7", "auto", 2, "--device"),
        ("abacus", "auto", None, "--device"),
        ("cpu", "fp16", 2, "--amp"),
        ("auto", "fp16", 0, "--amp"),
        ("cuda:1", "fp16", 2, None),
        ("cuda", "fp16", None, None),  # only torch can tell
        ("auto", "bf16", 0, None),
        ("cpu", "bf16", 0, None),
    ],
)
def test_what_the_machine_does_not_have_is_refused(device, amp, gpus, key):
    if key is None:
        return check_device(device, amp, gpus)
    with pytest.raises(SettingsError, match=f"^{key}: found"):
        check_device(device, amp, gpus)


def test_more_processes_than_share_a_step_or_than_gpus_are_refused():
    check_processes(32, 64, 0)
    check_processes(2, 64, 2)
    with pytest.raises(SettingsError, match="at most 32 processes"):
        check_processes(33, 64, 0)
    with pytest.raises(SettingsError, match="has 2 GPUs"):
        check_processes(3, 64, 2)


def test_torch_is_not_loaded_to_refuse():
    commands = ["train --nproc 999", "train --amp fp16 --device cpu", "predict a b --device abacus"]
    commands += [
        f"{name} --device cuda:77" for name in ("train", "evaluate", "features", "suggest", "review", "count", "predict a b")
    ]
    code = (
        "import sys; from stages.cli import main\n"
        f"for command in {commands}:\n"
        "    try: main(command.split())\n"
        "    except SystemExit as end: assert end.code == 2 and 'torch' not in sys.modules, command"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tiny.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == len(commands) and all(line.startswith("Error: --") for line in lines)
