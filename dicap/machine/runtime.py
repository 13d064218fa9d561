"""Options of the machine, not of the experiment: device, mixed precision, workers. Changing them reruns no stage."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dicap.errors import SettingsError


@dataclass(frozen=True)
class Runtime:
    """The device, precision and workers of a stage.

    Attributes:
        amp: dtype of mixed precision, or None for fp32.
        workers: loader processes; None: chosen from the number of cores.
    """

    device: torch.device
    amp: torch.dtype | None = None
    workers: int | None = None

    @staticmethod
    def choose(device: str = "auto", amp: str = "auto", workers: int | None = None) -> "Runtime":
        """Resolve `auto`. Raises SettingsError for a device that does not exist, or float16 on a CPU."""
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        try:
            chosen = torch.device(device)
            torch.empty(0, device=chosen)
        except (RuntimeError, AssertionError):
            raise SettingsError(f"--device: found {device!r}, which this machine does not have; use auto or cpu") from None
        if amp == "auto":
            amp = "off" if chosen.type == "cpu" else "bf16" if torch.cuda.is_bf16_supported() else "fp16"
        dtype = {"off": None, "bf16": torch.bfloat16, "fp16": torch.float16}[amp]
        if dtype is torch.float16 and chosen.type == "cpu":
            raise SettingsError("--amp: found 'fp16' on a CPU, which would need gradient scaling there; use bf16 or off")
        return Runtime(chosen, dtype, workers)

    def put(self, values: np.ndarray | Tensor) -> Tensor:
        """Copy an array or tensor from the CPU to the device. The copy to a GPU is asynchronous, from pinned memory."""
        tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
        if self.device.type != "cuda":
            return tensor.to(self.device)
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def autocast(self) -> AbstractContextManager:
        """Mixed precision for forward passes; the losses themselves compute in fp32."""
        return torch.autocast(self.device.type, dtype=self.amp, enabled=self.amp is not None)
