"""Several processes that train one network: each takes a part of every step, and sums cross between them.

What crosses: gradients and losses (summed), BatchNorm's running statistics (averaged), scores (each image scored by one
process), embeddings to contrast (in line, with gradient), the wish to stop, and the saved state. Losses are sums over a
step's images divided by their number in the whole step, so the sum of the processes' gradients is the gradient of one
process that takes the whole step. torch's own wrapper averages instead and expects one forward pass a step; here a step may
have several, without gradient or through parts of the network only, so the gradients are summed after the backward pass.

A run of one process imports nothing of this.
"""

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dicap.errors import DataError, SettingsError
from dicap.methods.base import Others
from dicap.training.world import Alone

T = TypeVar("T")
BUCKET = 16 * 2**20  # elements of gradient sent at once (64 MiB)


def join(device: torch.device) -> "Together":
    """Meet the other processes, as torchrun (or `dicap-stage --nproc`) described them in the environment.

    Raises:
        SettingsError: the environment does not say where to meet.
        DataError: the others did not come.
    """
    missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise SettingsError(f"environment: {missing[0]} is not set; start several processes with torchrun or DICAP_NPROC")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(minutes=30))
    except (RuntimeError, ValueError) as error:
        raise DataError(f"the processes of this run could not meet ({_first_line(error)}); start them again") from None
    return Together(device)


class Together(Alone):
    """The world of one of several processes."""

    def __init__(self, device: torch.device) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._device = device
        # Wishes travel between the hosts: on the device they would make every step wait for it.
        hosts = dist.group.WORLD if device.type == "cpu" else dist.new_group(backend="gloo")
        assert isinstance(hosts, dist.ProcessGroup)
        self._hosts = hosts
        self._wish: tuple[dist.Work, Tensor] | None = None

    def whole(self, piece: Tensor, own: slice, n: int) -> Tensor:
        """(n, ...) from every process's `own` piece of it."""
        if own.stop - own.start == n:
            return piece
        with _together():
            return _in_line(piece, own, n)

    def others(self, total: int, own: slice) -> Others:
        """How to stand entries of this step in line with those of the other processes."""
        return Others(total, own, lambda entries: _InLine.apply(entries, own, total))  # type: ignore[arg-type, return-value]

    def sum_(self, tensors: list[Tensor]) -> None:
        """Add up each tensor over the processes, in place; they are sent in a few large pieces."""
        with _together():
            sent = []
            for bucket in _buckets(tensors):
                flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
                sent.append((bucket, flat, dist.all_reduce(flat, async_op=True)))
            for bucket, flat, work in sent:
                work.wait()
                for tensor, values in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
                    tensor.copy_(values.view(tensor.shape))

    def average_statistics_(self, network: nn.Module) -> None:
        """Make BatchNorm's running statistics the mean over the processes, in place."""
        norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        found = [t for m in norms for t in (m.running_mean, m.running_var) if t is not None]
        if found:
            self.sum_(found)
            for tensor in found:
                tensor.div_(self.size)

    def agree(self, stop: bool, save: bool) -> tuple[bool, bool]:
        """Whether to stop and whether to save: what any process wished one step ago. The answer is never waited for long."""
        with _together():
            answer = (False, False)
            if self._wish is not None:
                work, flags = self._wish
                work.wait()
                answer = bool(flags[0]), bool(flags[1])
            flags = torch.tensor([stop, save and self.first], dtype=torch.int32)
            self._wish = (dist.all_reduce(flags, dist.ReduceOp.MAX, group=self._hosts, async_op=True), flags)
        return answer

    def any(self, flag: bool) -> bool:
        """Whether any process says so, now."""
        with _together():
            flags = torch.tensor([flag], dtype=torch.int32)
            dist.all_reduce(flags, dist.ReduceOp.MAX, group=self._hosts)
        return bool(flags[0])

    def same(self, make: Callable[[], T]) -> T:
        """What the first process makes, on all of them: plain containers, numbers, texts, tensors."""
        made: list[T] = [make()] if self.first else []
        buffer = io.BytesIO()
        if self.first:
            torch.save(made[0], buffer)
        content = torch.frombuffer(bytearray(buffer.getvalue() or b" "), dtype=torch.uint8)
        with _together():
            length = torch.tensor([len(content)])
            dist.broadcast(length, 0, group=self._hosts)
            if not self.first:
                content = torch.empty(int(length), dtype=torch.uint8)
            dist.broadcast(content, 0, group=self._hosts)
        if not self.first:
            made.append(torch.load(io.BytesIO(content.numpy().tobytes()), map_location="cpu", weights_only=True))
        return made[0]

    def leave(self) -> None:
        """Say goodbye."""
        if dist.is_initialized():
            dist.destroy_process_group()


class _InLine(torch.autograd.Function):
    """(m, ...) of this process -> (total, ...) of all; what the others' losses say of its entries comes back."""

    @staticmethod
    def forward(ctx: Any, entries: Tensor, own: slice, total: int) -> Tensor:
        ctx.own = own
        with _together():
            return _in_line(entries, own, total)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        gradient = gradient.contiguous().clone()
        with _together():
            dist.all_reduce(gradient)
        return gradient[ctx.own], None, None


def _in_line(piece: Tensor, own: slice, n: int) -> Tensor:
    out = piece.new_zeros(n, *piece.shape[1:])
    out[own] = piece
    dist.all_reduce(out)  # every place is filled by one process: adding zeros changes nothing
    return out


def _buckets(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for tensor in tensors:
        full = sum(t.numel() for t in bucket) + tensor.numel() > BUCKET
        if bucket and (full or tensor.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


@contextmanager
def _together() -> Iterator[None]:
    """A word that cannot be passed on means that another process is gone."""
    try:
        yield
    except RuntimeError as error:
        raise DataError(
            f"another process of this run ended ({_first_line(error)}); the last state that was saved is whole, "
            "run again to continue"
        ) from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
