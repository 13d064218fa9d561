"""The contrastive loss in chunks against the plain one, in one run: seconds, peak memory, loss and gradient.

    python benchmarks/contrastive.py [--pairs 4800] [--dim 768]

The plain one makes the whole (2B, 2B) matrix of similarities, takes cross entropy over its rows, and leaves the gradient to
autograd, as public implementations of NT-Xent do. Both get the same embeddings and compute loss and gradient. They take turns.
Peak memory: on a GPU the allocator's; elsewhere the kernel's count of resident memory, in a process for each.

Writes benchmarks/results/contrastive.json and ends with `contrastive ratio=R target=4`, R: plain peak over ours. Exits 1 if R
is below 4, if loss or gradient differ by more than 1e-5, or if ours is slower than the plain one.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.nn.functional as F
from common import Parser, finish, highest_above, median_ratio, run_apart, take_turns
from torch import Tensor

from dicap.losses import nt_xent

TARGET = 4.0
SLOWER = 1.0  # times the plain one's seconds: not slower


def plain(z_w: Tensor, z_s: Tensor, temperature: float = 0.5) -> Tensor:
    """NT-Xent with the whole matrix at once."""
    z = F.normalize(torch.cat([z_w, z_s]), dim=1)
    n = len(z)
    similarity = z @ z.T / temperature
    similarity = similarity.masked_fill(torch.eye(n, dtype=torch.bool, device=z.device), -torch.inf)
    return F.cross_entropy(similarity, (torch.arange(n, device=z.device) + n // 2) % n)


WAYS = {"plain": plain, "chunks": nt_xent}


def embeddings(pairs: int, dim: int, device: str) -> tuple[Tensor, Tensor]:
    """(B, D) of both views, alike but for noise; only the strong one takes a gradient."""
    generator = torch.Generator().manual_seed(0)
    z_w = torch.randn(pairs, dim, generator=generator)
    z_s = z_w + torch.randn(pairs, dim, generator=generator)
    return z_w.to(device), z_s.to(device).requires_grad_()


def both(way, z_w: Tensor, z_s: Tensor) -> tuple[float, Tensor]:
    """Loss and gradient."""
    z_s.grad = None
    loss = way(z_w, z_s)
    loss.backward()
    value = loss.item()  # waits for a GPU
    assert z_s.grad is not None
    return value, z_s.grad


def peak(name: str, pairs: int, dim: int, device: str) -> int:
    """Bytes that one loss with its gradient needs on top of the embeddings."""
    if device == "cuda":
        z_w, z_s = embeddings(pairs, dim, device)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        both(WAYS[name], z_w, z_s)
        return torch.cuda.max_memory_allocated() - before
    return int(run_apart(Path(__file__), "--peak", name, str(pairs), str(dim)))


def main() -> int:
    if sys.argv[1:2] == ["--peak"]:
        name, pairs, dim = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
        z_w, z_s = embeddings(pairs, dim, "cpu")
        both(WAYS[name], *embeddings(2, dim, "cpu"))  # threads and buffers of the libraries exist from here on
        print(highest_above(lambda: both(WAYS[name], z_w, z_s)))
        return 0
    options = Parser(__doc__, "contrastive", pairs=64, dim=16)
    options.add_argument("--pairs", type=int, default=4800)
    options.add_argument("--dim", type=int, default=768)
    options = options.options()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    z_w, z_s = embeddings(options.pairs, options.dim, device)
    seconds = take_turns({name: lambda way=way: both(way, z_w, z_s) for name, way in WAYS.items()}, options.rounds)
    loss, gradient = {}, {}
    for name, way in WAYS.items():
        loss[name], gradient[name] = both(way, z_w, z_s)
    apart = abs(loss["plain"] - loss["chunks"])
    gradient_apart = float((gradient["plain"] - gradient["chunks"]).abs().max())
    relative = gradient_apart / float(gradient["plain"].abs().max())
    peaks = {name: peak(name, options.pairs, options.dim, device) for name in WAYS}
    speed = median_ratio(seconds["plain"], seconds["chunks"])
    ratio = peaks["plain"] / max(peaks["chunks"], 1)
    mib = {name: round(value / 2**20, 1) for name, value in peaks.items()}
    print(f"{options.pairs} pairs of {options.dim} numbers on {device}")
    print(f"{'':24}{'plain':>10}{'chunks':>10}{'ratio':>8}")
    print(f"{'peak MiB':24}{mib['plain']:>10}{mib['chunks']:>10}{ratio:>8.2f}")
    print(f"{'seconds':24}{min(seconds['plain']):>10.3f}{min(seconds['chunks']):>10.3f}{speed:>8.2f}")
    print(f"loss differs by {apart:.1e}, the gradient by {gradient_apart:.1e} (relative to its largest entry {relative:.1e})")
    same = apart <= 1e-5 and max(gradient_apart, relative) <= 1e-5
    result = {
        "pairs": options.pairs,
        "dim": options.dim,
        "device": device,
        "peak_mib": mib,
        "seconds": {name: [round(value, 4) for value in values] for name, values in seconds.items()},
        "speed_ratio": round(speed, 3),
        "loss_difference": apart,
        "gradient_difference": gradient_apart,
        "gradient_relative_difference": relative,
    }
    return finish("contrastive", result, ratio, TARGET, options, same=same, quick=speed >= SLOWER)


if __name__ == "__main__":
    sys.exit(main())
