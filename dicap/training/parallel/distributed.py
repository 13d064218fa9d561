"""Several processes that train one network: each takes a part of every step, and sums cross between them.

What crosses: gradients and losses (summed), BatchNorm's running statistics (averaged), scores (each image scored by one
process), embeddings to contrast (gathered, with gradient), requests to stop, and the saved state. Losses are sums over a
step's images divided by their number in the whole step, so the sum of the processes' gradients is the gradient of one
process that takes the whole step. torch's own wrapper averages instead and expects one forward pass a step; here a step may
have several, without gradient or through parts of the network only, so the gradients are summed after the backward pass.

A run of one process imports nothing of this.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from dicap.errors import DataError, SettingsError, Stopped, first_line
from dicap.machine.processes import LAUNCHED
from dicap.methods.base import PairShard
from dicap.training.parallel.process_group import ProcessGroup

T = TypeVar("T")


def join(device: torch.device) -> "TorchProcessGroup":
    """Join the other processes, as torchrun (or `dicap-stage --nproc`) described them in the environment.

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
        raise DataError(f"the processes of this run could not meet ({first_line(error)}); start them again") from None
    return TorchProcessGroup(device)


class TorchProcessGroup(ProcessGroup):
    """One of several processes, joined by torch.distributed."""

    def __init__(self, device: torch.device) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._device = device
        # Requests travel between the hosts: on the device they would make every step wait for it.
        hosts = dist.group.WORLD if device.type == "cpu" else dist.new_group(backend="gloo")
        assert isinstance(hosts, dist.ProcessGroup)
        self._hosts = hosts
        self._pending: tuple[dist.Work, Tensor] | None = None

    def all_gather(self, piece: Tensor, own: slice, n: int) -> Tensor:
        """(n, ...) from every process's `own` piece of it."""
        if own.stop - own.start == n:
            return piece
        with _peer_errors():
            return _all_gather(piece, own, n)

    def pair_shard(self, total: int, own: slice) -> PairShard:
        """How to gather entries of this step from all processes."""
        return PairShard(total, own, lambda entries: _AllGather.apply(entries, own, total))  # type: ignore[arg-type, return-value]

    def all_reduce_(self, tensors: list[Tensor]) -> None:
        """Add up each tensor over the processes, in place; those of a type are sent as one."""
        with _peer_errors():
            for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
                alike = [tensor for tensor in tensors if tensor.dtype == dtype]
                flat = torch.cat([tensor.reshape(-1) for tensor in alike])
                dist.all_reduce(flat)
                for tensor, values in zip(alike, flat.split([tensor.numel() for tensor in alike]), strict=True):
                    tensor.copy_(values.view(tensor.shape))

    def average_statistics_(self, network: nn.Module) -> None:
        """Make BatchNorm's running statistics the mean over the processes, in place."""
        norms = [m for m in network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        statistics = [t for m in norms for t in (m.running_mean, m.running_var) if t is not None]
        if statistics:
            self.all_reduce_(statistics)
            for tensor in statistics:
                tensor.div_(self.size)

    def agree(self, stop: bool, save: bool) -> tuple[bool, bool]:
        """Whether to stop and whether to save: what any process asked for one step ago, so that no step waits for the answer."""
        with _peer_errors():
            answer = (False, False)
            if self._pending is not None:
                work, flags = self._pending
                work.wait()
                answer = bool(flags[0]), bool(flags[1])
            flags = torch.tensor([stop, save and self.is_main], dtype=torch.int32)
            self._pending = (dist.all_reduce(flags, dist.ReduceOp.MAX, group=self._hosts, async_op=True), flags)
        return answer

    def any(self, flag: bool) -> bool:
        """Whether any process says so, now."""
        with _peer_errors():
            flags = torch.tensor([flag], dtype=torch.int32)
            dist.all_reduce(flags, dist.ReduceOp.MAX, group=self._hosts)
        return bool(flags[0])

    def broadcast(self, make: Callable[[], T]) -> T:
        """What the main process makes, on all of them: plain containers, numbers, texts, tensors."""
        values: list[Any] = [make() if self.is_main else None]
        with _peer_errors():
            dist.broadcast_object_list(values, 0, group=self._hosts)
        return values[0]

    def close(self) -> None:
        """Leave the group."""
        if dist.is_initialized():
            dist.destroy_process_group()


class _AllGather(torch.autograd.Function):
    """(m, ...) of this process -> (total, ...) of all; what the others' losses say of its entries comes back."""

    @staticmethod
    def forward(ctx: Any, entries: Tensor, own: slice, total: int) -> Tensor:
        ctx.own = own
        with _peer_errors():
            return _all_gather(entries, own, total)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        gradient = gradient.contiguous().clone()
        with _peer_errors():
            dist.all_reduce(gradient)
        return gradient[ctx.own], None, None


def _all_gather(piece: Tensor, own: slice, n: int) -> Tensor:
    out = piece.new_zeros(n, *piece.shape[1:])
    out[own] = piece
    dist.all_reduce(out)  # every place is filled by one process: adding zeros changes nothing
    return out


@contextmanager
def _peer_errors() -> Iterator[None]:
    """A failed collective means that another process is gone, of which whoever started both says why."""
    try:
        yield
    except RuntimeError as error:
        if os.environ.get("TORCHELASTIC_RUN_ID") == LAUNCHED:
            raise Stopped from None
        raise DataError(
            f"another process of this run ended ({first_line(error)}); the last state that was saved is whole, "
            "run again to continue"
        ) from None
