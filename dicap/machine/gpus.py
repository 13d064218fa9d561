"""Which GPUs there are, as the operating system tells it: asked before torch, which takes seconds to load."""

import os
import sys
from pathlib import Path

from dicap.errors import SettingsError

OTHERS = ("kfd", "dxg", "nvmap", "nvhost-ctrl")  # of AMD, of Windows' Linux, of Nvidia's boards: only torch can count these
KINDS = ("auto", "cpu", "cuda", "mps", "xpu")  # devices that torch may have: whether it does, it says itself


def count_gpus(devices: Path = Path("/dev")) -> int | None:
    """GPUs that this process may use; None where only torch can tell."""
    if sys.platform != "linux" or any((devices / name).exists() for name in OTHERS):
        return None
    there = sum(path.name.removeprefix("nvidia").isdigit() for path in devices.glob("nvidia*"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return there if visible is None else min(there, len([name for name in visible.split(",") if name not in ("", "-1")]))


def check_device(device: str, amp: str, gpus: int | None) -> None:
    """Refuse at once what `Runtime.choose` would refuse after loading torch. Raises SettingsError."""
    kind, _, number = device.partition(":")
    if kind not in KINDS or (kind == "cuda" and gpus is not None and gpus <= (int(number) if number.isdecimal() else 0)):
        raise no_device(device)
    if amp == "fp16" and (kind == "cpu" or (kind == "auto" and gpus == 0)):
        raise no_fp16()


def no_device(device: str) -> SettingsError:
    """What is said of a device that is not there."""
    return SettingsError(f"--device: found {device!r}, which this machine does not have; use auto or cpu")


def no_fp16() -> SettingsError:
    """What is said of half precision where there is no GPU."""
    return SettingsError("--amp: found 'fp16' on a CPU, which would need gradient scaling there; use bf16 or off")
