"""What the machine does not have is refused in one line, and what it has is chosen."""

import pytest
import torch

from dicap.errors import SettingsError
from dicap.machine.runtime import Runtime


@pytest.mark.parametrize(
    ("device", "amp", "key"),
    [
        ("abacus", "auto", "--device"),
        ("cuda:99", "auto", "--device"),
        ("cpu", "fp16", "--amp"),
        ("auto", "fp16", "--amp"),
    ],
)
def test_what_the_machine_does_not_have_is_refused(monkeypatch, device, amp, key):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SettingsError, match=f"^{key}: found"):
        Runtime.choose(device, amp)


@pytest.mark.parametrize(("amp", "dtype"), [("auto", None), ("off", None), ("bf16", torch.bfloat16)])
def test_a_processor_computes_in_float32_unless_told(amp, dtype):
    assert Runtime.choose("cpu", amp) == Runtime(torch.device("cpu"), dtype)
