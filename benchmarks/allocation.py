"""A training step of a whole network on processors, with the memory kept that the step before it freed, and without.

    python benchmarks/allocation.py [--backbone tf_efficientnet_lite0] [--size 224] [--batch 64] [--steps 3]

glibc returns large blocks to the system as they are freed, and the system clears every page of them when the next step asks for
them again. `dicap.machine.processes.keep_freed_memory` tells it to keep them; the training stages call it where a whole
network is trained on processors. Each round runs both in processes of their own, one thread, random weights and images.

Writes allocation.json among the results and ends with `allocation ratio=R target=1.1`, R: seconds of a step without over with,
the median of the rounds. Exits 1 below it, or if the loss after the steps differs.
"""

import json
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import Parser, finish, median_ratio, run_apart

from dicap.machine.processes import keep_freed_memory

TARGET = 1.1


def steps(backbone: str, size: int, batch: int, count: int, kept: bool) -> dict[str, float]:
    """Seconds and processor seconds of a step, MiB at the peak, and the loss at the end, in this process."""
    if kept:
        keep_freed_memory()
    import timm
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = timm.create_model(backbone).train()
    optimiser = torch.optim.AdamW(network.parameters(), fused=True)
    images = torch.randn(batch, 3, size, size)

    def step() -> float:
        loss = network(images).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return float(loss)

    step()
    before, begin = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    losses = [step() for _ in range(count)]
    after, seconds = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - begin
    return {
        "seconds": seconds / count,
        "user": (after.ru_utime - before.ru_utime) / count,
        "system": (after.ru_stime - before.ru_stime) / count,
        "peak_mib": after.ru_maxrss / 1024,
        "loss": losses[-1],
    }


def main() -> int:
    """Run by turns, compare, write."""
    given = Parser(__doc__, "allocation", backbone="test_resnet", size=64, batch=4, steps=1)
    given.add_argument("--backbone", default="tf_efficientnet_lite0")
    for name, value in (("size", 224), ("batch", 64), ("steps", 3)):
        given.add_argument(f"--{name}", type=int, default=value)
    given.add_argument("--here", choices=["kept", "returned"], help="one of the two in this process (used by the benchmark)")
    options = given.options()
    chosen = (options.backbone, options.size, options.batch, options.steps)
    if options.here:
        print(json.dumps(steps(*chosen, kept=options.here == "kept")))
        return 0
    found: dict[str, list[dict[str, Any]]] = {"returned": [], "kept": []}
    for _ in range(options.rounds):
        for which, rounds in found.items():
            size = ["--size", str(options.size), "--batch", str(options.batch), "--steps", str(options.steps)]
            said = run_apart(Path(__file__), "--backbone", options.backbone, *size, "--here", which)
            rounds.append(json.loads(said))
    median = {
        which: {key: round(statistics.median(each[key] for each in rounds), 3) for key in rounds[0]}
        for which, rounds in found.items()
    }
    for which, of in median.items():
        print(
            f"{which:9} {of['seconds']:.2f} s a step, {of['user']:.2f} user, {of['system']:.2f} system; {of['peak_mib']:.0f} MiB"
        )
    seconds = {which: [each["seconds"] for each in rounds] for which, rounds in found.items()}
    same = median["returned"]["loss"] == median["kept"]["loss"]
    return finish(
        "allocation", {"sizes": chosen, **median}, median_ratio(seconds["returned"], seconds["kept"]), TARGET, options, same=same
    )


if __name__ == "__main__":
    sys.exit(main())
