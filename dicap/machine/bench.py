"""What a machine can do, measured in a minute, and what a run of a data set would take on it: the model of docs/scaling.md."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from dicap.calibration.rates import correctness_weight, count_bins, estimate_rates
from dicap.calibration.thresholds import dual_thresholds, hard_labels
from dicap.data.augment import View, render_batch
from dicap.data.loader import worker_count
from dicap.data.policy import COLUMNS
from dicap.machine.runtime import Runtime
from dicap.methods import build_method
from dicap.settings import Settings
from dicap.settings.batch_sizes import labelled_batch


class Size(NamedTuple):
    """Images and classes of a data set."""

    train: int
    test: int
    classes: int


SIZES = {
    "digits": Size(4000, 1000, 10),
    "pictograms": Size(4000, 1000, 15),
    "voc2007": Size(5011, 4952, 20),
    "voc2012": Size(5717, 5823, 20),
    "awa2": Size(30337, 6985, 85),
    "coco2014": Size(82081, 40137, 80),
    "coco2017": Size(117266, 4952, 80),
    "nuswide": Size(150000, 60260, 81),
}


@dataclass(frozen=True)
class Speeds:
    """Of one network and image size, a second: images trained (forward, backward, AdamW), images scored (forward), strong
    views made (by all loader processes), and entries (image, class) refreshed."""

    trained: float
    scored: float
    views: float
    entries: float
    loader_beside: bool  # views are made beside the network, not in turn with it

    @property
    def limit(self) -> str:
        """What a main step waits for: `loader` or `network`."""
        return "loader" if self.loader_beside and self.views < self.trained else "network"


@dataclass(frozen=True)
class Minutes:
    """What a run would take. main: an epoch, refresh included and the scoring of test images not."""

    warmup: float
    main: float
    refresh: float
    evaluation: float
    total: float


def measure(s: Settings, classes: int, runtime: Runtime, *, images: int, seconds: float = 2.0) -> Speeds:
    """Measure with a new network of these settings and random pixels.

    Args:
        images: of a batch; a processor needs few to be busy.
        seconds: how long each part is repeated, at least twice.
    """
    method = build_method(s, classes)
    network = method.build_network(pretrained=False).to(runtime.device)
    pixels = torch.randint(0, 256, (images, s.image_size, s.image_size, 3), dtype=torch.uint8)
    batch = pixels.to(runtime.device).permute(0, 3, 1, 2)
    optimiser = torch.optim.AdamW(network.parameters(), fused=True)

    def train() -> None:
        optimiser.zero_grad(set_to_none=True)
        with runtime.autocast():
            logits = network(batch)[0]
        logits.float().square().mean().backward()
        optimiser.step()

    def score() -> None:
        with torch.inference_mode(), runtime.autocast():
            method.scores(network, batch)

    view, rng = View("strong", cutout=0.5, policy=s.augment.policy), np.random.default_rng(0)
    array, draws = pixels.numpy(), rng.random((images, view.parts, COLUMNS))
    p, y = torch.rand(4096, classes), torch.randint(0, 2, (4096, classes), dtype=torch.uint8)
    p, y = p.to(runtime.device), y.to(runtime.device)

    def draw() -> None:
        render_batch(array, view, draws)

    def refresh() -> None:
        rates = estimate_rates(*count_bins(p, y, s.calibration.bins))
        label = hard_labels(p, dual_thresholds(p, y))
        correctness_weight(p, label, rates)

    workers = worker_count() if runtime.workers is None else runtime.workers
    network.train()
    trained = images / _seconds(train, runtime, seconds)
    network.eval()
    scored = images / _seconds(score, runtime, seconds)
    views = images / _seconds(draw, runtime, seconds / 2)
    entries = p.numel() / _seconds(refresh, runtime, seconds / 4)
    return Speeds(trained, scored, views * max(workers, 1), entries, workers > 0)


def predict(s: Settings, size: Size, speeds: Speeds) -> Minutes:
    """DiCaP's run on a data set of this size (docs/scaling.md).

    Every unlabelled image is taken to have an uncertain entry, which the later epochs' have less and less; losses, EMA and checks
    count as nothing, which a network of a few layers notices.
    """
    labelled = int(s.ratio * size.train)
    sup = int((1 - s.split.est_fraction) * labelled)
    unsup, est = size.train - sup, labelled - sup
    of_step = labelled_batch(s.train.batch_labelled, s.ratio, s.train.batch_size)
    share = s.train.batch_size / (s.train.batch_size - of_step)  # images of a step over its unlabelled ones
    warmup = _step_seconds(2 * sup if s.warmup.wcl else sup, 2 * sup if s.warmup.wcl else 0, speeds)
    steps = _step_seconds(unsup * share, unsup if s.contrastive.enabled else 0, speeds)
    refresh = size.train / speeds.scored + unsup * size.classes / speeds.entries
    evaluation = 2 * size.test / speeds.scored
    finetune = est / speeds.scored + est / speeds.views  # the backbone is frozen
    looks = s.warmup.epochs / s.warmup.eval_every + s.train.epochs / s.train.eval_every + 2
    total = s.warmup.epochs * warmup + s.train.epochs * (steps + refresh) + s.finetune.epochs * finetune + looks * evaluation
    return Minutes(warmup / 60, (steps + refresh) / 60, refresh / 60, evaluation / 60, total / 60)


def _step_seconds(strong: float, weak: float, speeds: Speeds) -> float:
    """Seconds of steps with so many strong and weak views; a weak view costs a forward pass and next to nothing to make."""
    network, loader = strong / speeds.trained + weak / speeds.scored, strong / speeds.views
    return max(network, loader) if speeds.loader_beside else network + loader


def _seconds(work: Callable[[], None], runtime: Runtime, seconds: float) -> float:
    """Of one call, the median of those that fit into the time; the first one warms up."""

    def once() -> float:
        begin = time.perf_counter()
        work()
        if runtime.device.type == "cuda":
            torch.cuda.synchronize(runtime.device)
        return time.perf_counter() - begin

    once()
    taken: list[float] = []
    while len(taken) < 2 or sum(taken) < seconds:
        taken.append(once())
    return float(np.median(taken))
