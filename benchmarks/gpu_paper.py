"""What DiCaP's main stage needs on a GPU, on paper: memory by part, operations, minutes of an epoch, beside the paper's Table 4.

    python benchmarks/gpu_paper.py

One step at the published sizes (ResNet-50, ML-Decoder, 2 + 30 images of VOC 2012, 4 + 60 of COCO 2014, every unlabelled image
with a weak view) runs with tensors that have shapes but no memory (torch's fake tensors), in half precision, forward, backward
and AdamW. Counted are the bytes that are alive (their peak, and those saved for the backward pass), the operations of every
matrix product and convolution (torch's formulas), and the bytes that every operation reads and writes.

Minutes are a roofline: an operation takes as long as its arithmetic or its memory traffic, whichever is longer, at the shares
of the GPU's figures named in `SHARES`. Not counted: fused kernels (cuDNN saves traffic), the workspaces of cuDNN and what the
allocator holds back, the loader, the host. An epoch is a pass over D_unsup and the refresh's scores of D_sup and D_unsup.

Writes benchmarks/results/gpu_paper.json and ends with `gpu_paper ratio=R target=T`: R: the peak memory expected on COCO over the
paper's 4.44 GB (T 0.5: the same order of size).
"""

import sys
import tempfile
import weakref
from pathlib import Path
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import Parser, finish
from made_up import settings
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from dicap.machine.runtime import Runtime
from dicap.methods import build_method
from dicap.methods.base import Batch
from dicap.training.optimisation import Optimisation

GB = 1e9
# Dense half-precision products a second, bytes of memory a second. 3090: 71 of 142 TFLOP/s, the rate with float32 sums.
GPUS = {"RTX 3090": (71e12, 936e9), "H200": (989e12, 4.8e12)}
SHARES = (0.6, 0.8)  # of these figures that kernels of such sizes reach: assumed
# training images, D_sup at 5 %, classes, the paper's minutes of an epoch and GB (Table 4)
SETS = {"voc2012": (5717, 228, 20, 1.47, 2.98), "coco2014": (82081, 3283, 80, 18.29, 4.44)}


class Counted(TorchDispatchMode):
    """Bytes alive and their peak, operations and traffic of every operation, and the seconds on each GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.alive, self.peak, self.flops, self.traffic = 0, 0, 0, 0
        self.seconds = dict.fromkeys(GPUS, 0.0)
        self._known: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        made = [t for t in tree_leaves(out) if isinstance(t, Tensor)]
        for tensor in made:
            self.keep(tensor)
        read = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        flops = flop_registry.get(func.overloadpacket)
        flops = flops(*args, **(kwargs or {}), out_val=out) if flops else 0
        # A view moves nothing.
        moved = 0 if func.is_view else sum(t.numel() * t.itemsize for t in (*read, *made))
        self.flops, self.traffic = self.flops + flops, self.traffic + moved
        for name, (rate, bandwidth) in GPUS.items():
            self.seconds[name] += max(flops / (rate * SHARES[0]), moved / (bandwidth * SHARES[1]))
        return out

    def keep(self, tensor: Tensor) -> None:
        """Count a tensor's memory until it is gone."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.alive += size
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.alive -= size


def copied(tensor: Tensor, memo: dict[int, Tensor]) -> Tensor:
    """The EMA is a deep copy of the network, for which torch's own asks where the memory lies."""
    if id(tensor) not in memo:
        out = torch.empty_like(tensor, requires_grad=False)
        memo[id(tensor)] = torch.nn.Parameter(out) if isinstance(tensor, torch.nn.Parameter) else out
    return memo[id(tensor)]


def measure(mode: FakeTensorMode, dataset: str, changes: dict, images: list[int] | None = None) -> dict:
    """One step and the scores of a batch, counted; the expected epoch."""
    n, n_sup, classes, paper_minutes, paper_gb = SETS[dataset]
    with tempfile.TemporaryDirectory() as folder:
        s = settings(Path(folder), {"dataset": dataset, "data_root": ".", "backbone_weights": "random"} | changes)
    method = build_method(s, classes, 0.05)
    labelled, unlabelled = images or ((2, 30) if dataset == "voc2012" else (4, 60))
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage._cdata] = storage.nbytes()
        return tensor

    network = method.build_network(pretrained=False)
    with mode, patch.object(FakeTensor, "__deepcopy__", copied, create=True):
        for module in network.modules():
            for name, p in list(module.named_parameters(recurse=False)):
                setattr(
                    module,
                    name,
                    torch.nn.Parameter(
                        torch.empty(p.shape).to(memory_format=torch.channels_last if p.ndim == 4 else torch.contiguous_format)
                    ),
                )
            for name, b in list(module.named_buffers(recurse=False)):
                module._buffers[name] = torch.empty(b.shape, dtype=b.dtype)
        o = Optimisation(
            network, Runtime(torch.device("cpu")), lr=1e-4, weight_decay=1e-4, pct_start=0.2, ema_decay=0.9997, cycle_steps=10
        )
        parameters = sum(p.numel() * p.itemsize for p in network.parameters())
        size = s.image_size
        views = {
            "strong": torch.empty(labelled + unlabelled, 3, size, size, dtype=torch.uint8),
            "weak": torch.empty(unlabelled, 3, size, size, dtype=torch.uint8),
        }
        m = min(s.contrastive.max_pairs, unlabelled * classes // 4)  # a quarter of the entries is uncertain: assumed
        batch = Batch(
            views=views,
            y=torch.empty(labelled, classes, dtype=torch.uint8),
            label=torch.empty(unlabelled, classes, dtype=torch.int8),
            weight=torch.empty(unlabelled, classes),
            soft=False,
            pairs=torch.zeros(m, 3, dtype=torch.int64),
            images=labelled + unlabelled,
        )
        for state in (network, o.ema):
            state.train()

        def step() -> None:
            saved.clear()
            hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
            with hooks, torch.autocast("cpu", dtype=torch.bfloat16):
                losses = method.main_losses(network, batch)
            o.update(torch.stack(list(losses.values())).sum())
            o.average()

        step()  # the optimiser's moments are made by the first
        with Counted() as counted:
            for tensor in (*network.state_dict().values(), *o.ema.state_dict().values(), *views.values()):
                counted.keep(tensor)
            for state in o.optimiser.state.values():
                for tensor in state.values():
                    counted.keep(tensor)
            for p in network.parameters():
                p.grad = None
            resident = counted.alive
            step()
        own = {t.untyped_storage()._cdata for t in network.state_dict().values()}
        activations = sum(size for key, size in saved.items() if key not in own)
        network.eval()
        score = min(256, unlabelled * 4)
        with Counted() as scored, torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            method.scores(network, torch.empty(score, 3, size, size, dtype=torch.uint8))
    unsup = n - n_sup
    steps, scores = -(-unsup // unlabelled), (unsup + n_sup) / score
    memory = {
        "parameters": parameters,
        "gradients": parameters,
        "optimiser": sum(t.numel() * t.itemsize for st in o.optimiser.state.values() for t in st.values()),
        "ema": parameters,
        "batch": sum(v.numel() for v in views.values()),
        "saved for backward": activations,
        "peak": counted.peak,
    }
    minutes = {gpu: (steps * counted.seconds[gpu] + scores * scored.seconds[gpu]) / 60 for gpu in GPUS}
    return {
        "images": [labelled, unlabelled],
        "steps": steps,
        "gb": {name: round(size / GB, 4) for name, size in memory.items()},
        "resident_gb": round(resident / GB, 4),
        "tflop_a_step": round(counted.flops / 1e12, 4),
        "gb_moved_a_step": round(counted.traffic / GB, 3),
        "tflop_an_epoch": round((steps * counted.flops + scores * scored.flops) / 1e12, 2),
        "minutes": {gpu: round(value, 3) for gpu, value in minutes.items()},
        "paper": {"minutes": paper_minutes, "gb": paper_gb, "gpu": "RTX 3090"},
    }


def main() -> int:
    options = Parser(__doc__, "gpu_paper").options()
    toy = {"backbone": "test_resnet", "image_size": 32, "network.stride": 16} if options.smoke else {}
    mode = FakeTensorMode()
    found = {name: measure(mode, name, toy, [2, 6] if options.smoke else None) for name in SETS}
    for name, row in found.items():
        print(f"{name}: {row['images'][0]} + {row['images'][1]} images, {row['steps']} steps of {row['tflop_a_step']:.2f} TFLOP")
        for part, gb in row["gb"].items():
            print(f"  {part:<20}{gb:>8.2f} GB")
        print(f"  {'paper, peak':<20}{row['paper']['gb']:>8.2f} GB")
        for gpu, minutes in row["minutes"].items():
            print(f"  {gpu:<20}{minutes:>8.2f} minutes an epoch")
        print(f"  {'paper, RTX 3090':<20}{row['paper']['minutes']:>8.2f} minutes an epoch")
    ratio = found["coco2014"]["gb"]["peak"] / found["coco2014"]["paper"]["gb"]
    result = {"sets": found, "assumed": {"gpus": GPUS, "shares of arithmetic and memory": SHARES}}
    return finish("gpu_paper", result, ratio, 0.5, options)


if __name__ == "__main__":
    sys.exit(main())
