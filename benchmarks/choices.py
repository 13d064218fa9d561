"""What the step and the refresh do for speed, each choice against its plain alternative, in one run.

    python benchmarks/choices.py [--preset table] [--images 16]

Channels last (forward and backward), fused AdamW, the EMA in one call, the refresh in pieces that fit the processor's cache.

Writes benchmarks/results/choices.json and ends with `choices ratio=R target=0.95`, R: the smallest of the ratios of the
alternative's seconds over ours. Exits 1 if a choice costs more than a twentieth.
"""

import copy
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import Parser, finish, median_ratio, take_turns
from made_up import settings
from step import PRESETS
from timm.utils.model_ema import ModelEmaV3
from torch import Tensor, nn

from dicap.calibration import rates as calibration
from dicap.calibration import thresholds
from dicap.machine.runtime import Runtime
from dicap.methods import build_method
from dicap.network.backbone import feature_map
from dicap.training.optimisation import Optimisation

TARGET = 0.95
WHOLE = 1 << 40  # rows of a piece: more than there are
Passes = tuple[str, Callable[[], object], Callable[[], object]]


def network_of(preset: str) -> tuple[nn.Module, int]:
    """A new network of the preset, and the side of its images."""
    changes, classes = PRESETS[preset]
    with tempfile.TemporaryDirectory() as folder:
        s = settings(Path(folder), changes)
    return build_method(s, classes).build_network(pretrained=False).train(), s.image_size


def loss_of(logits: Tensor, z: Tensor) -> Tensor:
    return logits.float().square().mean() + z.float().square().mean()


def of_the_network(network: nn.Module, pixels: Tensor) -> list[Passes]:
    """Channels last against torch's own order."""
    plain = copy.deepcopy(network).to(memory_format=torch.contiguous_format)

    def ours() -> None:
        loss_of(*network(pixels)).backward()

    def in_order() -> None:
        x = (pixels / 255 - 0.5).contiguous()
        loss_of(*plain.head(feature_map(plain.backbone, x))).backward()  # type: ignore[operator]

    return [("channels last", ours, in_order)]


def of_the_update(network: nn.Module) -> list[Passes]:
    """AdamW and EMA of tensors that have a gradient."""
    runtime = Runtime.choose("cpu")
    optimisation = Optimisation(
        network, runtime, lr=1e-5, weight_decay=1e-4, pct_start=0.2, ema_decay=0.99, cycle_steps=10**6
    )  # fmt: skip
    loop = torch.optim.AdamW(network.parameters(), lr=1e-5, weight_decay=1e-4, foreach=False)
    ema = ModelEmaV3(network, decay=0.99)
    ours = optimisation.optimiser
    return [("fused AdamW", ours.step, loop.step), ("EMA in one call", optimisation.average, lambda: ema.update(network))]


def of_the_refresh() -> list[Passes]:
    """Weights of 20,000 images and 80 classes."""
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(20000, 80, generator=generator)
    y = (torch.rand(20000, 80, generator=generator) < p).to(torch.uint8)
    rates = calibration.estimate_rates(*calibration.count_bins(p[:1000], y[:1000], 20))
    label = thresholds.hard_labels(p, thresholds.dual_thresholds(p[:1000], y[:1000]))

    def weigh() -> None:
        calibration.correctness_weight(p, label, rates)

    def weigh_whole() -> None:
        with mock.patch.multiple(calibration, ENTRIES=WHOLE):
            weigh()

    return [("refresh in pieces", weigh, weigh_whole)]


def main() -> int:
    options = Parser(__doc__, "choices", preset="digits", images=2)
    options.add_argument("--preset", choices=list(PRESETS), default="table")
    options.add_argument("--images", type=int, default=16, help="of a batch")
    options = options.options()
    network, side = network_of(options.preset)
    pixels = torch.randint(0, 256, (options.images, 3, side, side), dtype=torch.uint8)
    rows = {}
    for name, ours, other in [*of_the_network(network, pixels), *of_the_update(network), *of_the_refresh()]:
        ours(), other()  # the first of each warms up
        seconds = take_turns({"ours": ours, "other": other}, options.rounds * 4)
        ratio = median_ratio(seconds["other"], seconds["ours"])
        rows[name] = {key: round(1000 * statistics.median(values), 3) for key, values in seconds.items()} | {"ratio": ratio}
        print(f"{name:18}{rows[name]['ours']:>9.2f} ms  instead of{rows[name]['other']:>9.2f} ms  ratio {ratio:.2f}", flush=True)
    result = {"preset": options.preset, "images": options.images, "milliseconds": rows}
    return finish("choices", result, min(row["ratio"] for row in rows.values()), TARGET, options)


if __name__ == "__main__":
    sys.exit(main())
