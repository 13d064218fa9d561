"""A GPU that is not there: tensors that say they lie on `cuda`, and a record of what would make the host wait for it.

Shapes, types and devices are computed as on a GPU, values are not (torch's fake tensors). Where a program reads a value it gets a
made-up one, so that it goes on; that it read one is written down with the place in `dicap`. What depends on values on a GPU
(how many entries a mask has) is answered with half of what is possible. Backward passes need the device itself, so gradients are
made up there; on the device `meta`, which has no memory either, they are computed.
"""

import sys
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from dicap.machine.cost import Meter
from dicap.training.trainer import Trainer

CUDA = torch.device("cuda")
DICAP = str(Path(__file__).parents[2] / "dicap") + "/"
READ = {"_local_scalar_dense", "equal", "is_nonzero", "_linalg_check_errors"}
SHAPED = {"nonzero", "masked_select", "bincount", "_unique2", "unique_dim", "unique_consecutive", "histc"}


class Watch(TorchDispatchMode):
    """Notes what waits for the device in a step, by (place in `dicap`, kind), and answers in the device's place.

    Kinds: `reads` a value, `shape` depends on values, `to host`, `to device` (from memory that is not pinned), `host index`.
    """

    def __init__(self, device="cuda"):
        super().__init__()
        self.device, self.is_step, self.in_steps = device, False, set()

    def note(self, kind):
        if not self.is_step:
            return
        frame = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.startswith(DICAP):
            frame = frame.f_back
        place = "test"
        if frame is not None:
            function = frame.f_code.co_qualname.partition(".<locals>")[0]
            place = f"{frame.f_code.co_filename.removeprefix(DICAP).removesuffix('.py')}:{function}"
        self.in_steps.add((place, kind))

    def on_device(self, tensor):
        return isinstance(tensor, torch.Tensor) and tensor.device.type == self.device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, func._schema.name.removeprefix("aten::")
        first = args[0] if args else None
        if self.device == "meta" and name != "_to_copy" and isinstance(first, torch.Tensor) and first.device.type == "cpu":
            return func(*args, **kwargs)  # the host's own work, of true values
        if name in READ:
            if self.on_device(first):
                self.note("reads")
            if name != "_local_scalar_dense" or first.dtype == torch.bool:
                return None if name == "_linalg_check_errors" else True
            return 0.5 if first.is_floating_point() else -1
        if name in SHAPED:
            if self.on_device(first):
                self.note("shape")
            if name == "bincount":
                return first.new_empty(kwargs.get("minlength", 1))
            length = first.numel() // 2 + 1
            return first.new_empty((length, first.ndim), dtype=torch.int64) if name == "nonzero" else first.new_empty(length)
        if name in ("index", "index_put", "index_put_"):
            indices = [i for i in args[1] if i is not None]
            if any(self.on_device(i) != self.on_device(first) for i in indices):
                assert self.on_device(first), "a tensor of the host is indexed by one of the device"
                self.note("host index")
            masks = any(i.dtype in (torch.bool, torch.uint8) for i in indices)
            filled = name != "index" and args[2].numel() == 1  # a mask filled with one value
            if masks and not filled:
                if self.on_device(first):
                    self.note("shape")
                spread = []
                for i in args[1]:
                    is_mask = i is not None and i.dtype in (torch.bool, torch.uint8)
                    spread += [first.new_empty(i.numel() // 2 + 1, dtype=torch.int64)] * i.ndim if is_mask else [i]
                args = (first, spread, *args[2:])
        pairs = []
        if name == "_to_copy" and kwargs.get("device") is not None:
            pairs = [(first, torch.device(kwargs["device"]))]
        elif name == "copy_":
            pairs = [(args[1], first.device)]
        elif name == "_foreach_copy_":
            pairs = [(source, target.device) for target, source in zip(*args[:2], strict=True)]
        if name == "_to_copy" and pairs and first.device.type == "meta" and pairs[0][1].type == "cpu":
            self.note("to host")  # torch itself cannot: there is nothing to copy
            return torch.from_numpy(made_up(tuple(first.shape), kwargs.get("dtype") or first.dtype))
        for source, target in pairs:
            if self.on_device(source) and target.type == "cpu":
                self.note("to host")
            taken_in_turn = kwargs.get("non_blocking") and getattr(source, "pinned", False)
            if target.type == self.device and not self.on_device(source) and not taken_in_turn:
                self.note("to device")
        return func(*args, **kwargs)


class _Host(TorchFunctionMode):
    """What leaves torch: arrays, lists, texts and pinned memory."""

    def __init__(self, watch):
        super().__init__()
        self.watch = watch

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        first = args[0] if args else None
        if isinstance(first, FakeTensor) or self.watch.on_device(first):
            if name in ("__repr__", "tolist") and self.watch.on_device(first):
                self.watch.note("reads")
            if name == "__repr__":
                return "tensor"
            if name == "__deepcopy__":  # torch's own looks at the memory
                memo = args[1]
                if id(first) not in memo:
                    copied = torch.empty_like(first, requires_grad=False)
                    is_parameter = isinstance(first, nn.Parameter)
                    memo[id(first)] = nn.Parameter(copied, first.requires_grad) if is_parameter else copied
                return memo[id(first)]
            if name in ("numpy", "tolist"):
                assert name == "tolist" or not self.watch.on_device(first), "an array of a tensor on the device"
                values = made_up(tuple(first.shape), first.dtype)
                return values.tolist() if name == "tolist" else values
        if name == "pin_memory":
            copied = first.clone()
            copied.pinned = True
            return copied
        out = func(*args, **kwargs)
        if name in ("tensor", "as_tensor", "new_tensor") and self.watch.on_device(out):
            data = args[1] if name == "new_tensor" else first
            if not isinstance(data, torch.Tensor):
                self.watch.note("to device")
        return out


def made_up(shape, dtype):
    """An array of values that such a tensor may have: confidences, labels, pseudo-labels, truth values."""
    rng, kind = np.random.default_rng(0), np.dtype(str(dtype).removeprefix("torch."))
    if kind.kind == "f":
        return rng.random(shape).astype(kind)
    return rng.integers(-1 if dtype == torch.int8 else 0, 2, shape).astype(kind)


@contextmanager
def pretended(device=CUDA):
    """A machine with a GPU, or one whose tensors are on `meta`; yields its `Watch`."""
    watch = Watch(device.type)
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(nn.Module, "to", moved)
        patch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
        if device == CUDA:
            patch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
            patch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
            patch.setattr(torch.Tensor, "backward", made_up_gradients)
            patch.setattr(torch.autograd, "grad", lambda loss, inputs, **options: [torch.empty_like(p) for p in inputs])
            stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        else:
            patch.setattr(sys.modules["torch.optim.optimizer"], "_get_fused_kernels_supported_devices", lambda: ["meta", "cpu"])
            patch.setattr(torch, "autocast", lambda *_, **options: nullcontext())
        stack.enter_context(watch)
        stack.enter_context(_Host(watch))
        yield watch


def made_up_gradients(loss, inputs=()):
    """In the place of a backward pass, for which torch wants the device itself."""
    assert loss.device.type == "cuda" and loss.dtype == torch.float32 and loss.ndim == 0, loss
    for parameter in inputs:
        parameter.grad = torch.empty_like(parameter)


def moved(network: nn.Module, device: torch.device) -> nn.Module:
    """The network on the device, in place. A tensor that is neither a parameter nor a buffer would stay behind."""
    assert torch.device(device).type in ("cuda", "meta"), device
    for module in network.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None and tensor.device != device:
                    made = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
                    tensors[name] = nn.Parameter(made, tensor.requires_grad) if tensors is module._parameters else made
        left = [name for name, value in vars(module).items() if isinstance(value, torch.Tensor)]
        assert not left, f"{type(module).__name__}.{left} would stay on the host"
    return network


def on_host(state):
    """A state as its file holds it, arrays in the place of tensors."""
    return tree_map_only(torch.Tensor, lambda t: np.zeros(tuple(t.shape), str(t.dtype).removeprefix("torch.")), state)


def read_back(state):
    """The same with tensors of the host."""
    return tree_map_only(np.ndarray, torch.from_numpy, state)


class Views:
    """Inputs as the loader hands them over."""

    def __init__(self, size):
        self.size = size

    def views(self, runtime, steps, *, stage, epoch, start):
        for requests in steps[start:]:
            yield {r.key: self._of(runtime, len(r.rows), r.view.parts) for r in requests}

    def scoring(self, runtime, rows, weak):
        for some in (rows[:24], rows[24:]):
            if len(some):
                yield some, self._of(runtime, len(some), 1)

    def _of(self, runtime, count, parts):
        tiles = (parts,) if parts > 1 else ()
        return torch.empty(count, *tiles, 3, self.size, self.size, dtype=torch.uint8, device=runtime.device)


class Watched(Trainer):
    """A stage on the pretended GPU: everything of a trainer but what it writes."""

    def __init__(self, experiment, stage, watch, saved=None):
        super().__init__(experiment, stage, None, False, lambda lines: None)
        self.watch, self.published, self.saved = watch, False, saved
        self.meter = Meter(torch.device("cpu"))  # its events are the device's own

    def begin_with(self, learner, networks, phase, **options):
        self.state = type("Nothing", (), {"load": staticmethod(lambda: (self.saved, []))})()
        super().begin_with(learner, networks, phase, **options)

    def batches(self, source):
        self.watch.is_step = True
        yield from super().batches(source)
        self.watch.is_step = False

    def update(self, terms, *groups):
        for name, value in terms.items():
            assert value.device.type == self.watch.device and value.dtype == torch.float32, (name, value.device, value.dtype)
        super().update(terms, *groups)

    def _check_finite(self):
        """Each CHECK_EVERY steps it reads the flag."""

    def record_refresh(self, refresh, *, parquet=True):
        for tensor in (*refresh.pseudo[:3], refresh.labelled_weight, *(refresh.thresholds or ()), *(refresh.rates or ())):
            assert not isinstance(tensor, torch.Tensor) or tensor.device.type == self.watch.device
        assert refresh.pseudo.weight.dtype == torch.float32 and refresh.pseudo.label.dtype == torch.int8
        return super().record_refresh(refresh, parquet=False)

    def end_step(self):
        super().end_step()
        if self.checkpoint.step == 1:
            self.watch.is_step = False  # a state is saved each SAVE_SECONDS
            self.state_then = on_host({"learner": self.learner.state_dict(), "checkpoint": vars(self.checkpoint)})
            self.watch.is_step = True

    def _write(self):
        """Nothing is written."""

    def publish(self, source=None):
        self.published = True
