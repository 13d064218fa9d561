"""What a step needs of a GPU's memory, against torch's own count of the bytes that are alive."""

import sys
from pathlib import Path

import pytest
import tiny
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from dicap.settings.catalogue import OWN_HEAD
from dicap.settings.methods import METHODS

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from step_memory import expected_peak, loss_of, step_on_paper


class Tracker(MemTracker):
    """Torch's count of all bytes, without that by module, which knows no network that is called twice."""

    def _pre_fw_hook(self, *_):
        pass

    _post_fw_hook = _pre_bw_hook = _post_bw_hook = _pre_fw_hook


def settings_of(method, **changes):
    head = {} if METHODS[method].head == OWN_HEAD else {"head": METHODS[method].head}
    return tiny.settings({"method": method} | head | changes)


def by_torch(s, classes, stage, amp):
    """Bytes at the peak of two steps with AdamW, the average's added."""
    mode = FakeTensorMode()
    method, network, batch = step_on_paper(s, classes, 1.0, stage, mode)
    tracker = Tracker()
    with mode:
        optimiser = torch.optim.AdamW(network.parameters(), fused=True)
        tracker.track_external(network, optimiser, *batch.views.values())
        with tracker:
            for _ in range(2):
                optimiser.zero_grad()
                loss_of(method, network, batch, stage, amp).backward()
                optimiser.step()
    (found,) = tracker.get_tracker_snapshot("peak").values()
    return found["Total"] + sum(t.nbytes for t in network.state_dict().values())


@pytest.mark.parametrize(("method", "amp"), [("dicap", torch.bfloat16), ("drml", None), ("pclp", torch.bfloat16), ("bce", None)])
def test_the_peak_is_the_one_that_torch_counts(method, amp):
    s = settings_of(method, **{"train.batch_size": 24, "warmup.batch_size": 6})
    stage = "train" if METHODS[method].unlabelled and method != "drml" else "warmup"
    assert expected_peak(s, 5, 1.0, amp) == pytest.approx(by_torch(s, 5, stage, amp), rel=0.01)


def test_a_head_alone_needs_nothing_that_is_counted():
    assert expected_peak(tiny.settings({"warmup.trainable": "head", "train.trainable": "head"}), 5, 1.0, None) == 0
