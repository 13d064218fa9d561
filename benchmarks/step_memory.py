"""What a training step needs of a GPU's memory, counted from shapes alone: torch's fake tensors have no values."""

import weakref

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dicap.methods import build_method
from dicap.methods.base import Batch, Method, Roles
from dicap.randomness import generator
from dicap.settings import Settings
from dicap.training.loops.table import LOOPS

UNCERTAIN = 4  # every which entry is uncertain and contrasted: assumed
ENOUGH = 1024  # made-up images of each role: more than a step holds


class Alive(TorchDispatchMode):
    """Bytes of the tensors that are alive, and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.alive, self.peak = 0, 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.keep(out)
        return out

    def keep(self, tensors: object) -> None:
        """Count tensors, in containers of any kind, until they are gone; once, where several share their memory."""
        for tensor in tree_leaves(tensors):
            if not isinstance(tensor, Tensor) or tensor.untyped_storage()._cdata in self._known:
                continue
            storage = tensor.untyped_storage()
            key, size = storage._cdata, storage.nbytes()
            self._known.add(key)
            self.alive += size
            self.peak = max(self.peak, self.alive)
            weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.alive -= size


def step_on_paper(
    settings: Settings, classes: int, annotated: float, stage: str, mode: FakeTensorMode
) -> tuple[Method, nn.Module, Batch]:
    """The method, network and batch of a step of `warmup` or `train` at the settings' sizes, of tensors of the mode.

    Args:
        annotated: share of the training images that have labels, which composes the step.
    """
    method, main = build_method(settings, classes, annotated), stage == "train"
    roles = Roles(*np.arange(4 * ENOUGH).reshape(4, ENOUGH))
    phase = method.main(roles) if main else method.warmup(roles)
    labelled, unlabelled = phase.labelled[: phase.batch_labelled], phase.unlabelled[: phase.batch_unlabelled]
    b_l, b_u, size = len(labelled), len(unlabelled), settings.image_size
    if main:
        requests = method.main_views(labelled, unlabelled, np.ones(b_u, bool))
        entries = np.where(np.arange(b_u * classes) % UNCERTAIN, 0, -1).reshape(b_u, classes)
    else:
        requests = method.warmup_views(labelled, unlabelled)
        entries = np.full((b_l + b_u, classes), -1)
    pairs = np.empty((0, 3), np.int64) if phase.pairs is None else phase.pairs(entries, generator(0, stage, 0, 0, "pairs"))

    network = method.build_network(pretrained=False)
    if phase.begin is not None:
        phase.begin(network)
    network._apply(mode.from_tensor).train()
    with mode:
        views = {}
        for r in requests:
            tiles = (r.view.parts,) if r.view.parts > 1 else ()
            views[r.key] = torch.empty(len(r.rows), *tiles, 3, size, size, dtype=torch.uint8)
        n = b_u if main else 0
        y, label, weight = (
            torch.empty(k, classes, dtype=t) for k, t in ((b_l, torch.uint8), (n, torch.int8), (n, torch.float32))
        )
        batch = Batch(views, y, label, weight, soft=False, pairs=torch.empty(pairs.shape, dtype=torch.int64), images=b_l + b_u)
    return method, network, batch


def loss_of(method: Method, network: nn.Module, batch: Batch, stage: str, amp: torch.dtype | None) -> Tensor:
    """The step's loss, to go backward from."""
    losses = method.main_losses if stage == "train" else method.warmup_losses
    with torch.autocast("cpu", dtype=amp, enabled=amp is not None):
        return torch.stack(list(losses(network, batch).values())).sum()


def expected_peak(settings: Settings, classes: int, annotated: float, amp: torch.dtype | None) -> int:
    """Bytes at the peak of the dearest stage's step: network, AdamW, EMA, views, and what forward and backward pass hold.

    Not counted are the workspaces of cuDNN and what the allocator holds back; nor stages with a loop of their own
    (PCLP's warm-up, DRML's rounds on features), nor those that train the head alone: they hold less. 0 where all do.
    """
    peak, mode = 0, FakeTensorMode()
    for stage in ("warmup", "train"):
        if not settings.trains(stage) or settings.trainable(stage) == "head" or (stage, settings.method) in LOOPS:
            continue
        method, network, batch = step_on_paper(settings, classes, annotated, stage, mode)
        state = list(network.state_dict().values())
        with mode, Alive() as watch:
            watch.keep([state, batch])
            loss_of(method, network, batch, stage, amp).backward()
        trained = sum(p.nbytes for p in network.parameters() if p.grad is not None)
        peak = max(peak, watch.peak + 2 * trained + sum(t.nbytes for t in state))  # AdamW's two moments, EMA
    return peak
