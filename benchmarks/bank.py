"""The bank is no cheat: a head trained on V strong views computed once, against one whose views are drawn anew at each step.

    python benchmarks/bank.py --data FOLDER [--ratio 0.05] [--seeds 1 2 3] [--views 4]

FOLDER holds photographs with labels.csv, as the data set `table` takes them; conversion and features as in photographs.py, of
configs/table.yaml, and kept in --cache. The backbone is frozen. A head is trained by steps on strong views of the labelled
images, ML-Decoder as configs/table.yaml has it: from the bank, where a step draws one of V views of an image, and drawn
anew, where every step augments its images and the backbone looks at them. Same seeds, same steps, same first weights. mAP on
the test images, of the network in training and of its average.

Writes bank.json among the results and ends with `bank ratio=R target=1`, R: 0.5 over the size of the mean difference of mAP,
drawn anew minus bank, over the seeds (of the raw network and of the average, the larger). Exits 1 below it. The difference of a
seed alone is as large as that of two trainings with other random numbers, so its 95 % t interval over the seeds stands beside.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import Parser, finish, paired
from made_up import ROOT
from photographs import SMOKE, Place, warmup_maps
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from dicap.data.loader import Request
from dicap.frozen.features.recipe import pretrained_network
from dicap.frozen.inputs import BankFeatures
from dicap.machine.runtime import Runtime
from dicap.training.inputs import Images

TARGET, SLACK = 1.0, 0.5
HEAD = {"method": "mld"}


@dataclass(frozen=True)
class Anew(BankFeatures):
    """Features of views that are drawn at each step, by the network that filled the bank; plain images come from it."""

    images: Images
    network: nn.Module

    def views(
        self, runtime: Runtime, steps: Sequence[Sequence[Request]], *, stage: str, epoch: int, start: int
    ) -> Iterator[dict[str, Tensor]]:
        """(B, D, g, g) float32, rounded to halves as the bank's."""
        for views in self.images.views(runtime, steps, stage=stage, epoch=epoch, start=start):
            yield {key: self._pooled(pixels) for key, pixels in views.items()}

    def _pooled(self, pixels: Tensor) -> Tensor:
        with torch.inference_mode():
            maps = adaptive_avg_pool2d(self.network.features(pixels).float(), self.bank.grid)  # type: ignore[operator]
        return maps.half().float().clone()


def main() -> int:
    """Train on both, compare, write."""
    given = Parser(__doc__, "bank", ratio=0.4, seeds=[1], views=2, epochs=2)
    given.add_argument("--data", type=Path, help="folder of photographs with labels.csv; not needed at toy size")
    given.add_argument("--ratio", type=float, default=0.05)
    given.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    given.add_argument("--views", type=int, default=4, help="V, strong views of each image in the bank")
    given.add_argument("--epochs", type=int, default=24, help="passes over the labelled images")
    given.add_argument("--lr", type=float, default=1e-3, help="peak learning rate of the head")
    given.add_argument("--image-size", type=int, default=224)
    given.add_argument("--cache", type=Path, default=ROOT / ".dicap" / "photographs", help="where the features are kept")
    options = given.options()
    if options.data is None and not options.smoke:
        given.error("--data: name a folder of photographs with labels.csv")
    common = (SMOKE if options.smoke else {"image_size": options.image_size}) | {"features.views": options.views}
    changes: dict[str, Any] = HEAD | {
        "optimiser.lr": options.lr, "warmup.epochs": options.epochs, "warmup.eval_every": options.epochs,
    }  # fmt: skip
    cells = []
    with tempfile.TemporaryDirectory() as scratch:
        place = Place(Path(scratch) / "place" if options.smoke else options.cache, options.data, common)
        for seed in options.seeds:
            experiment = place.experiment(changes, options.ratio, seed)
            s, inputs = experiment.settings, experiment.inputs
            assert isinstance(inputs, BankFeatures)
            network = pretrained_network(s).to(place.runtime.device)
            images = Images(experiment.store, s.seed, s.augment.flip)
            anew = replace(experiment, inputs=Anew(inputs.bank, inputs.seed, inputs.flip, images, network))
            found: dict[str, Any] = {"seed": seed, "labelled": len(experiment.roles.labelled)}
            for name, each in (("bank", experiment), ("anew", anew)):
                found[name], found[f"{name}_seconds"] = warmup_maps(
                    place, each, each.roles.test, Path(scratch) / f"{name}-{seed}"
                )
            cells.append(found)
            print(found, flush=True)
        counts = {"images": place.store.n, "classes": len(place.store.classes), "image_size": s.image_size}
    maps = {name: {which: [found[name][which] for found in cells] for which in cells[0][name]} for name in ("anew", "bank")}
    gaps = {which: paired(maps["anew"][which], maps["bank"][which]) for which in maps["bank"]}
    for which, gap in gaps.items():
        print(f"V = {options.views}, {which}: drawn anew minus bank {gap['mean']:+.2f} ± {gap['half']:.2f}, {len(cells)} seeds")
    result = {"views": options.views, "ratio": options.ratio, "settings": changes, "difference": gaps}
    worst = max(abs(gap["mean"]) for gap in gaps.values())
    return finish("bank", counts | result | {"cells": cells}, SLACK / max(worst, 1e-3), TARGET, options)


if __name__ == "__main__":
    sys.exit(main())
