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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import Parser, finish
from made_up import settings
from step_memory import Alive, expected_peak, loss_of, step_on_paper
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

GB = 1e9
# Dense half-precision products a second, bytes of memory a second. 3090: 71 of 142 TFLOP/s, the rate with float32 sums.
GPUS = {"RTX 3090": (71e12, 936e9), "H200": (989e12, 4.8e12)}
SHARES = (0.6, 0.8)  # of these figures that kernels of such sizes reach: assumed
# training images, D_sup at 5 %, classes, the paper's minutes of an epoch and GB (Table 4)
SETS = {"voc2012": (5717, 228, 20, 1.47, 2.98), "coco2014": (82081, 3283, 80, 18.29, 4.44)}


class Counted(Alive):
    """Bytes alive, operations and traffic of every operation, and the seconds on each GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.flops, self.traffic = 0, 0
        self.seconds = dict.fromkeys(GPUS, 0.0)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = super().__torch_dispatch__(func, types, args, kwargs)
        flops = flop_registry.get(func.overloadpacket)
        flops = flops(*args, **(kwargs or {}), out_val=out) if flops else 0
        # A view moves nothing.
        tensors = [t for t in tree_leaves((args, kwargs, out)) if isinstance(t, Tensor) and not func.is_view]
        self.add(flops, sum(t.nbytes for t in tensors))
        return out

    def add(self, flops: int, moved: int) -> None:
        """Count an operation that takes so much arithmetic and moves so many bytes."""
        self.flops, self.traffic = self.flops + flops, self.traffic + moved
        for name, (rate, bandwidth) in GPUS.items():
            self.seconds[name] += max(flops / (rate * SHARES[0]), moved / (bandwidth * SHARES[1]))


def measure(dataset: str, changes: dict, amp: torch.dtype | None = torch.bfloat16) -> dict:
    """One step and the scores of a batch, counted; the expected epoch."""
    n, n_sup, classes, paper_minutes, paper_gb = SETS[dataset]
    with tempfile.TemporaryDirectory() as folder:
        s = settings(Path(folder), {"dataset": dataset, "data_root": ".", "backbone_weights": "random"} | changes)
    mode = FakeTensorMode()
    method, network, batch = step_on_paper(s, classes, 1.0, "train", mode)
    labelled, unlabelled = len(batch.y), len(batch.label)
    state = list(network.state_dict().values())
    own = {t.untyped_storage()._cdata for t in state}
    parameters = sum(p.nbytes for p in network.parameters())
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage._cdata] = storage.nbytes() if storage._cdata not in own else 0
        return tensor

    score = min(256, unlabelled * 4)
    with mode, Counted() as counted:
        counted.keep([state, batch])
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = loss_of(method, network, batch, "train", amp)
        activations = sum(saved.values())
        loss.backward()
        counted.add(0, 7 * parameters)  # AdamW: weights, gradients and two moments read, all but the gradients written
        counted.add(0, 3 * parameters)  # EMA: both read, one written
    network.eval()
    with mode, Counted() as scored, torch.no_grad(), torch.autocast("cpu", dtype=amp, enabled=amp is not None):
        method.scores(network, torch.empty(score, 3, s.image_size, s.image_size, dtype=torch.uint8))
    unsup = n - n_sup
    steps, scores = -(-unsup // unlabelled), (unsup + n_sup) / score
    memory = {
        "parameters": parameters,
        "gradients": parameters,
        "optimiser": 2 * parameters,
        "ema": parameters,
        "batch": sum(v.nbytes for v in batch.views.values()),
        "saved for backward": activations,
        "peak": expected_peak(s, classes, 1.0, amp),
    }
    minutes = {gpu: (steps * counted.seconds[gpu] + scores * scored.seconds[gpu]) / 60 for gpu in GPUS}
    return {
        "images": [labelled, unlabelled],
        "steps": steps,
        "gb": {name: round(size / GB, 4) for name, size in memory.items()},
        "tflop_a_step": round(counted.flops / 1e12, 4),
        "gb_moved_a_step": round(counted.traffic / GB, 3),
        "tflop_an_epoch": round((steps * counted.flops + scores * scored.flops) / 1e12, 2),
        "minutes": {gpu: round(value, 3) for gpu, value in minutes.items()},
        "views_a_second": round((steps * sum(len(v) for v in batch.views.values()) + unsup + n_sup) / paper_minutes / 60),
        "paper": {"minutes": paper_minutes, "gb": paper_gb, "gpu": "RTX 3090"},
    }


def main() -> int:
    options = Parser(__doc__, "gpu_paper").options()
    toy = {"backbone": "test_resnet", "image_size": 32, "network.stride": 16} if options.smoke else {}
    toy |= {"train.batch_size": 8} if options.smoke else {}
    found = {name: measure(name, toy) for name in SETS}
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
