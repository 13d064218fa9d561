"""The refresh of an epoch of a large set without its forward pass: time of its parts, memory, and bytes of its record.

    python benchmarks/large.py [--images 1000000] [--classes 1000]

Scores are simulated block by block: of each class a share of positives that falls with its number, about five labels an image,
and log-odds around 1 for positives and -6 for negatives. A twentieth of the images is labelled, a fifth of these is D_est. On
them run the method's own refresh with calibration.storage sparse, the diagnostics, the record, and the saved state:

published: 20 bins, midrange thresholds. by_class: the estimator that ranks each class's scores, and CAP's quota.

On every thousandth image labels and weights are compared with those of single precision, and the record is read back and
compared with what was held. A dense record is written of the first tenth of the images.

Writes benchmarks/results/large.json and ends with `large ratio=R target=1`, R: 8 GB over the highest resident memory of the
process by the end of the first rule's record, simulated scores and hidden labels included. What the rest takes stands beside
it: saving the state needs a copy of its largest tensor. Exits 1 if R is below 1, or if the results differ.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from common import Parser, finish
from made_up import settings
from torch import Tensor, nn

from dicap.files.artifacts import epoch_file, pseudo_label_groups, write_pseudo_labels
from dicap.machine.progress import progress
from dicap.methods import build_method
from dicap.methods.base import Method, Refresh, Roles
from dicap.training.checkpoint.state import RunState
from dicap.training.diagnostics import Diagnostics
from dicap.training.records import record

T = TypeVar("T")
LIMIT_GB, BINS, BLOCK = 8.0, 20, 10_000  # images of a block
RULES = {
    "published": {"calibration.estimator": "bins", "thresholds.rule": "midrange"},
    "by_class": {"calibration.estimator": "class_score", "calibration.power": 2.0, "thresholds.rule": "quota"},
}


class Simulation:
    """A teacher, see `dicap.methods.base.Teacher`: it has scored all images; `y`: the hidden labels of the unlabelled ones."""

    epoch, carry, oracle = 0, {}, None

    def __init__(self, images: int, classes: int) -> None:
        labelled = np.random.default_rng(0).permutation(images)[: images // 20]
        est = np.sort(labelled[: len(labelled) // 5])
        nothing = np.empty(0, np.int64)
        self.roles = Roles(np.sort(labelled[len(est) :]), est, np.setdiff1d(np.arange(images), labelled), nothing)
        unsup = self.roles.unsup
        self._p = torch.empty(len(unsup), classes, dtype=torch.float16)
        self.y = torch.empty(len(unsup), classes, dtype=torch.uint8)
        self._of_sup, self._y_of_sup, start = [], [], 0
        for block in progress(range(0, images, BLOCK), desc="simulated scores", total=-(-images // BLOCK), unit="block"):
            rows = np.arange(block, min(block + BLOCK, images))
            p, y = simulated(block, len(rows), classes)
            is_sup = torch.from_numpy(np.isin(rows, self.roles.sup))
            here = slice(start, start + int((~is_sup).sum()))
            self._p[here], self.y[here], start = p[~is_sup], y[~is_sup], here.stop
            self._of_sup.append(p[is_sup].half())
            self._y_of_sup.append(y[is_sup])

    def scores(self, rows: np.ndarray) -> Tensor:
        """(n, C) float16 of D_unsup or of D_sup."""
        if np.array_equal(rows, self.roles.sup):
            return torch.cat(self._of_sup)
        assert np.array_equal(rows, self.roles.unsup)
        return self._p

    def labels(self, rows: np.ndarray) -> Tensor:
        """(n, C) of D_sup or of rows of D_unsup."""
        if np.array_equal(rows, self.roles.sup):
            return torch.cat(self._y_of_sup)
        return self.y[torch.from_numpy(np.searchsorted(self.roles.unsup, rows))]

    def outputs(self, rows: np.ndarray, function: Callable[[nn.Module, Tensor], Tensor], *, online: bool = False) -> Tensor:
        """There is no network."""
        raise NotImplementedError


def simulated(seed: int, images: int, classes: int) -> tuple[Tensor, Tensor]:
    """Scores (n, C) float32 and labels (n, C) uint8 of a block."""
    generator = torch.Generator().manual_seed(seed)
    share = 0.3 / torch.arange(1, classes + 1) ** 0.8
    y = torch.rand(images, classes, generator=generator) < share
    odds = torch.randn(images, classes, generator=generator).mul_(1.5).add_(y, alpha=7).sub_(6)
    return odds.sigmoid_(), y.to(torch.uint8)


def peak_gb() -> float:
    """The highest resident memory of this process so far, in GB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2)


def timed(seconds: dict[str, float], name: str, work: Callable[[], T]) -> T:
    begin = time.perf_counter()
    found = work()
    seconds[name] = round(time.perf_counter() - begin, 2)
    return found


def measured(teacher: Simulation, method: Method, ids: np.ndarray, place: Path) -> dict[str, Any]:
    """Seconds and bytes of one rule, and whether its results are those of single precision and of its record."""
    seconds: dict[str, float] = {}
    unsup, classes = teacher.roles.unsup, [str(c) for c in range(method.classes)]
    truly = torch.from_numpy(~np.isin(unsup, teacher.roles.est))
    diagnostics = Diagnostics(teacher.y, truly, BINS)
    refresh = timed(seconds, "refresh", lambda: method.refresh(teacher, teacher.roles))
    row = timed(seconds, "diagnostics", lambda: diagnostics.summary(refresh))
    known: dict[str, Any] = {"ids": ids, "classes": classes, "bins": BINS, "optimal": diagnostics.optimal}
    timed(seconds, "record", lambda: record(refresh, place, 0, **known, sparse=True))
    peak = peak_gb()
    path = epoch_file(place, "pseudo_labels", 0)
    same = timed(seconds, "read_back", lambda: is_recorded(refresh, path)) and is_of_single_precision(refresh, method)
    with RunState(place, "train", "large") as state:
        timed(seconds, "state", lambda: state.save({"refresh": refresh.without_confidences().state_dict()}))
        state_bytes = (state.folder / "state.pt").stat().st_size
        state.finish()
    entries = refresh.pseudo.label.numel()
    return {
        "seconds": seconds,
        "peak_resident_gb": peak,
        "sparse_bytes_per_entry": path.stat().st_size / entries,
        "sparse_bytes_per_image": path.stat().st_size / len(unsup),
        "state_bytes_per_entry": state_bytes / entries,
        "diagnostics": {name: round(float(value), 6) for name, value in row.items()},
        "same": same,
    }


def is_recorded(refresh: Refresh, path: Path) -> bool:
    """Whether the record holds all labels, and confidence and weight of all entries that are no confident negatives."""
    pseudo, start, same = refresh.pseudo, 0, True
    for ids, *parts in pseudo_label_groups(path):
        here = slice(start, start := start + len(ids))
        held = [tensor[here].numpy() for tensor in (pseudo.confidence, pseudo.label, pseudo.weight)]
        kept = held[1] == 1
        same = same and bool((held[1] == parts[1]).all()) and bool(np.isnan(parts[0][held[1] == 0]).all())
        same = same and all(bool((parts[i][kept] == held[i][kept]).all()) for i in (0, 2))
    return same and start == len(pseudo.label)


def is_of_single_precision(refresh: Refresh, method: Method) -> bool:
    """Whether the labels of every thousandth image are those of float32 arithmetic, and the weights those rounded once."""
    pseudo, rates, thresholds = refresh.pseudo, refresh.rates, refresh.thresholds
    some = slice(None, None, 1000 if len(pseudo.label) > 100_000 else 1)
    slow = method.pseudo_labels(pseudo.confidence[some].float(), rates, thresholds)  # type: ignore[operator]
    return torch.equal(slow.label, pseudo.label[some]) and torch.equal(slow.weight.half(), pseudo.weight[some])


def dense_bytes(teacher: Simulation, method: Method, ids: np.ndarray, place: Path) -> float:
    """Bytes per entry of a dense record, of the first tenth of the images."""
    few, roles = slice(0, max(1, len(ids) // 10)), teacher.roles
    p = teacher.scores(roles.unsup)
    refresh = method.refresh(teacher, roles)
    label, weight = refresh.pseudo.label[few].numpy(), refresh.pseudo.weight[few].numpy()
    write_pseudo_labels(ids[few], p[few].numpy(), label, weight, place / "dense.parquet")
    return (place / "dense.parquet").stat().st_size / label.size


def main() -> int:
    parser = Parser(__doc__, "large", images=4000, classes=30)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--rules", nargs="+", choices=list(RULES), default=list(RULES))
    options = parser.options()
    begin = time.perf_counter()
    teacher = Simulation(options.images, options.classes)
    simulation = time.perf_counter() - begin
    ids = np.array([f"train/{i // 1000:05d}/{i:08d}.jpg" for i in teacher.roles.unsup], dtype=object)
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.rules:
            s = settings(Path(folder), {"method": "dicap", "calibration.storage": "sparse"} | RULES[name])
            method = build_method(s, options.classes, 0.05)
            found[name] = measured(teacher, method, ids, Path(folder))
            print(f"{name}: {found[name]}", flush=True)
        per_entry = dense_bytes(teacher, method, ids, Path(folder))
    result = {
        "images": options.images,
        "unlabelled": len(ids),
        "classes": options.classes,
        "peak_resident_gb_of_all": peak_gb(),
        "dense_bytes_per_entry": per_entry,
        "simulation_seconds": round(simulation, 1),
        "rules": found,
    }
    same = all(each["same"] for each in found.values())
    peak = next(iter(found.values()))["peak_resident_gb"]
    return finish("large", result, LIMIT_GB / peak, 1.0, options, same=same)


if __name__ == "__main__":
    sys.exit(main())
