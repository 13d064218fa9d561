"""The parts of a day on a GPU (benchmarks/gpu_day.py), each with what it finds as one JSON file that grows as it goes.

    python benchmarks/gpu_parts.py PART OUT PLACE [--toy]

correct: an epoch of every method's last stage, refresh and scores among it, on the GPU and on the processor, in float32, from the
same network on the same made-up images; DiCaP again, and stopped and resumed, on the GPU; the tests that need one.
tables: the paper's tables in miniature, on photographs: the cells of experiments/miniature.yaml and miniature_more.yaml,
in float32, several at once; those that differ only after the warm-up share it.
step: DiCaP's main step at the published sizes (4 + 60 images of COCO's size): an undisturbed epoch, where its time goes, and turn
by turn the bare network (benchmarks/step.py); minutes of an epoch of COCO's size.
loader: pairs of views a second by the number of processes that draw them.
features: images a second of the features stage (benchmarks/features.py).
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context, set_start_method
from pathlib import Path
from typing import Any
from zipfile import ZipFile

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import pandas as pd
import torch
from made_up import ROOT, converted, opened, settings
from runs import finished
from safetensors.torch import load_file
from step import PRESETS, measure
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, schedule

from dicap.data.augment import View
from dicap.data.loader import Request, load, worker_count
from dicap.data.store import Store
from dicap.errors import Stopped
from dicap.machine.processes import cores
from dicap.machine.runtime import Runtime
from dicap.settings import read_yaml
from dicap.settings.catalogue import OWN_HEAD
from dicap.settings.methods import METHODS
from dicap.training.checkpoint.state import RunState
from dicap.training.experiment import Experiment
from dicap.training.loops.table import loop_of
from dicap.training.loops.warmup import initial_network
from dicap.training.trainer import Trainer

Put = Callable[..., None]  # adds what is found to the part's file

MADE_UP = {"data_root": ".", "backbone_weights": "random", "linear.solver": "steps"}
TINY = {"backbone": "test_resnet", "image_size": 32, "network.stride": 16, "network.decoder_dim": 16, "network.decoder_ffn": 16}
TINY |= {"network.decoder_heads": 2}

# -- correct

LOSS, SHARE, SCORE = 1e-2, 0.02, 1e-2  # largest differences of devices that sum in another order: relative, and of shares, scores
SMALL = MADE_UP | TINY | {"dataset": "coco2014", "network.dropout": 0.0, "optimiser.lr": 1e-4, "ratio": 0.2}
SMALL |= {"train.batch_size": 16, "train.epochs": 1, "warmup.epochs": 1, "train.eval_every": 1, "loss.reduction": "sum"}
SMALL |= {"drml.rounds": 1, "drml.iterations": 3, "pclp.epochs": 1}


class After:
    """A stop signal that comes after so many looks, one a step; None: never."""

    def __init__(self, looks: int | None, then: Callable[[], object] = lambda: None) -> None:
        self.left, self.then = looks, then

    def __bool__(self) -> bool:
        self.then()
        self.left = None if self.left is None else self.left - 1
        return self.left is not None and self.left < 0


def trained(experiment: Experiment, place: Path, stop: After, stage: str = "train") -> Path | None:
    """What a stage publishes, from a new network; None where it was stopped. Called again it resumes."""
    with RunState(place, stage, "benchmark") as state, suppress(Stopped):
        loop_of(stage, experiment.settings)(
            Trainer(experiment, stage, state, stop, lambda lines: None),  # type: ignore[arg-type]
            experiment.place(initial_network(experiment)),
        )
        return state.products
    return None


def epoch_of(method: str, runtime: Runtime, place: Path, *stops: int, **changes: Any) -> tuple[dict, np.ndarray, dict]:
    """History's last row, scores (n, C) of the test images and weights after a method's last stage."""
    place.mkdir(parents=True)
    head = METHODS[method].head
    s = settings(place, SMALL | {"method": method, "head": None if head == OWN_HEAD else head} | changes)
    experiment = opened(place, s, runtime, images=80, tests=16, classes=6)
    stage = "train" if METHODS[method].unlabelled else "warmup"
    for stop in stops:
        assert trained(experiment, place, After(stop), stage) is None
    products = trained(experiment, place, After(None), stage)
    assert products is not None
    network = experiment.method.build_network(pretrained=False)
    weights = load_file(products / "model.safetensors")
    network.load_state_dict(weights, strict=False)
    scores = experiment.predict(network.to(runtime.device), experiment.roles.test).cpu().numpy()
    row = pd.read_csv(products / "history.csv").iloc[-1].drop(["epoch", "lr", "steps"])
    return row.dropna().astype(float).to_dict(), scores, weights


def correct(put: Put, device: str, place: Path, toy: bool, limit: float) -> None:
    """Whether the GPU computes what the processor does, the same twice, and the same after a stop."""
    torch.backends.cudnn.allow_tf32 = False  # its convolutions would round to ten bits; the step is measured with them
    table, repeated = {}, {}
    for method in ("dicap", "drml") if toy else METHODS:
        table[method] = tried(lambda method=method: beside_the_processor(method, device, place))
        put(methods=table)
    for amp in ("off", "auto"):
        repeated[amp] = tried(lambda amp=amp: again_and_resumed(Runtime.choose(device, amp, 0), place / amp))
        put(largest_difference_of_weights=repeated)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/training/test_cuda.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout[-8000:], done.stderr[-2000:])
    put(tests=(done.stdout or done.stderr).strip().splitlines()[-1])  # of pytest, or that it is not there


def beside_the_processor(method: str, device: str, place: Path) -> dict[str, Any]:
    """The largest differences of an epoch on the two devices."""
    one, p, _ = epoch_of(method, Runtime.choose("cpu", "off", 0), place / f"{method}-1")
    other, q, _ = epoch_of(method, Runtime.choose(device, "off", 0), place / f"{method}-2")
    losses = [abs(one[key] - other[key]) / max(abs(one[key]), 1e-9) for key in one if key.startswith("loss")]
    shares = [abs(one[key] - other[key]) for key in one if key.startswith("share")]
    row = {"loss": max(losses), "shares": max(shares, default=0.0), "scores": float(np.abs(p - q).max())}
    return row | {"same": row["loss"] <= LOSS and row["shares"] <= SHARE and row["scores"] <= SCORE}


def again_and_resumed(runtime: Runtime, place: Path) -> dict[str, float]:
    """The largest difference of a weight after two epochs of DiCaP, from those of the first run: run again, and stopped twice."""
    runs = {"first": (), "again": (), "resumed": (2, 5)}
    weights = {name: epoch_of("dicap", runtime, place / name, *stops, **{"train.epochs": 2})[2] for name, stops in runs.items()}
    first = weights.pop("first")
    return {name: max(float((w[key] - value).abs().max()) for key, value in first.items()) for name, w in weights.items()}


def tried(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a piece of work found, or the error that it ended with, after which others go on."""
    try:
        return work()
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


# -- tables

GRIDS = ("miniature", "miniature_more")  # of experiments/, the most wanted first
AFTER = ("calibration", "contrastive", "finetune", "thresholds")  # sections that no warm-up of DiCaP reads, if WCL is off
STAGES = ("split", "warmup", "train", "finetune")  # one that a method has not ends at once
WARMUP = "warmup"  # the cell that others of its seed go on from
TOY = TINY | {"backbone_weights": "random", "ratio": 0.5, "warmup.epochs": 1, "train.epochs": 1, "train.batch_size": 8}
TOY |= {"warmup.eval_every": 1}


@dataclass(frozen=True)
class Cell:
    """A row of a grid with a seed."""

    case: str
    seed: int
    changes: dict[str, Any]
    goes_on: bool = False  # from its seed's warm-up

    @property
    def name(self) -> str:
        """As runs.py wants it."""
        return f"{self.case}_s{self.seed}"


def cells_of(grid: Path, common: dict[str, Any]) -> list[Cell]:
    """The cells of a grid, seed by seed, each seed's warm-up first."""
    values, cells = read_yaml(grid), []
    base = values["settings"] | {"ratio": values["axes"]["ratio"][0]}
    for seed in values["axes"]["seed"]:
        cells.append(Cell(WARMUP, seed, base | {"seed": seed} | common))
        for case, changes in values["cases"].items():
            goes_on = all(key.split(".")[0] in AFTER for key in changes)
            cells.append(Cell(case, seed, base | {"seed": seed} | changes | common, goes_on))
    return cells


def command_in(folder: Path, changes: dict[str, Any], *words: str) -> None:
    """A command of `dicap-stage` in a folder with these settings."""
    from stages.cli import main

    settings(folder, changes)
    os.chdir(folder)
    if code := main(["--quiet", *words], standalone_mode=False):
        raise RuntimeError(f"dicap-stage {' '.join(words)} in {folder.name} ended with {code}")


def run_cell(cell: Cell, place: Path, commit: str) -> dict[str, Any]:
    """A cell as runs.py writes it, by the commands of `dicap-stage`, in a folder of its own."""
    begin, folder = time.monotonic(), place / cell.name
    folder.mkdir(parents=True)
    start = place / f"{WARMUP}_s{cell.seed}"
    (folder / "data").symlink_to(place / "converted" / "data")
    if cell.goes_on:
        shutil.copytree(start / "artifacts", folder / "artifacts")
    for stage in STAGES[2 * cell.goes_on : 2 if cell.case == WARMUP else None]:
        command_in(folder, cell.changes, stage)
    run = finished(cell.name, folder, commit)
    shutil.rmtree(folder / ".dicap", ignore_errors=True)
    return run | {"seconds": round(time.monotonic() - begin, 1)}


def forking() -> None:
    """Let a cell's loader fork its processes at every epoch: spawned ones, the default in a spawned process, load torch anew.

    A function of its own: `set_start_method` is a method, and what a spawned process is given of it acts on a copy.
    """
    set_start_method("fork", force=True)


def tables(put: Put, device: str, place: Path, toy: bool, limit: float) -> None:
    """Cells of GRIDS until the limit, as many at once as the processor feeds."""
    at_once = max(1, cores() // 2)  # a small network leaves most of a GPU idle; a cell starts kernels and draws views
    os.environ |= {"DICAP_DEVICE": device, "DICAP_AMP": "off", "OMP_NUM_THREADS": "1"}
    ZipFile(ROOT / "gpu_day" / "photographs.zip").extractall(place / "photographs")
    commit = file.read_text().strip() if (file := ROOT / "gpu_day" / "commit").exists() else "unknown"
    common = {"dataset": "table", "data_root": str(place / "photographs"), "linear.solver": "steps"} | (TOY if toy else {})
    grids = [cells_of(ROOT / "experiments" / f"{name}.yaml", common) for name in GRIDS]
    waiting = [*{cell.name: cell for grid in grids for cell in grid if not toy or cell.seed == 1}.values()]
    begin = time.monotonic()
    (place / "converted" / "data").mkdir(parents=True)
    command_in(place / "converted", waiting[0].changes, "convert", *(["--workers", "0"] if toy else []))
    os.environ["DICAP_WORKERS"] = "0" if toy else "1"  # of a cell; convert has all cores
    put(at_once=at_once, seconds_to_convert=round(time.monotonic() - begin, 1), cells={}, failed={})
    cells: dict[str, dict] = {}
    failed: dict[str, dict] = {}
    longest = 0.0
    with ProcessPoolExecutor(at_once, get_context("spawn"), forking) as pool:
        running: dict[Future, Cell] = {}
        while True:
            ready = [cell for cell in waiting if not cell.goes_on or f"{WARMUP}_s{cell.seed}" in cells]
            if time.monotonic() - begin + longest > limit:
                ready = []
            for cell in ready[: at_once - len(running)]:
                waiting.remove(cell)
                running[pool.submit(run_cell, cell, place, commit)] = cell
            if not running:
                return
            for job in wait(running, return_when=FIRST_COMPLETED).done:
                cell, run = running.pop(job), tried(job.result)
                (failed if "error" in run else cells)[cell.name] = run
                longest = max(longest, run.get("seconds", 0.0))
                put(cells=cells, failed=failed, seconds=round(time.monotonic() - begin, 1))


# -- step, loader, features

COCO_STEPS, COCO_SCORED = 1314, 82081  # of an epoch at 5 % labelled; images that its refresh scores
STEPS = 120  # of an epoch


def step(put: Put, device: str, place: Path, toy: bool, limit: float) -> None:
    """DiCaP's main step as published: an undisturbed epoch, the bare network beside it, and where the time goes."""
    preset = "digits" if toy else "coco"
    changes, classes = PRESETS[preset]
    runtime = Runtime.choose(device)
    place.mkdir()
    s = settings(place, MADE_UP | changes | {"ratio": 0.05, "train.epochs": 2, "train.eval_every": 2})
    experiment = opened(place, s, runtime, images=100 if toy else STEPS * 60, tests=16, classes=classes)
    products = trained(experiment, place, After(None))
    assert products is not None
    costs = pd.read_csv(products.parent / "cost.csv").iloc[-1].dropna().to_dict()  # of two epochs the first warms up
    steps = int(pd.read_csv(products / "history.csv")["steps"].iloc[-1])
    seconds = 60 * (costs["minutes_step"] + costs["minutes_data"]) / steps
    put(seconds_a_step=seconds, costs=costs, steps=steps)
    if runtime.device.type == "cuda":
        put(peak_gb=costs["peak_memory_gb"] * 2**30 / 1e9, reserved_gb=torch.cuda.max_memory_reserved() / 1e9)
    begin = time.perf_counter()
    scored = np.arange(experiment.store.n)[: 64 if toy else 4096]
    experiment.predict(experiment.place(initial_network(experiment)), scored).cpu()  # waits for the device
    rate = len(scored) / (time.perf_counter() - begin)
    put(images_scored_a_second=rate, minutes_an_epoch=(COCO_STEPS * seconds + COCO_SCORED / rate) / 60)
    put(beside_the_bare_network=tried(lambda: measure(preset, 2 if toy else STEPS, runtime, None)))
    put(profile=tried(lambda: profiled(experiment, place / "watched", 1 if toy else 10)))


def profiled(experiment: Experiment, place: Path, steps: int) -> dict[str, Any]:
    """Milliseconds of a step by operation, the largest first, on the device where it has times of its own."""
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if experiment.runtime.device.type == "cuda" else [])]
    with profile(activities=kinds, schedule=schedule(wait=0, warmup=steps, active=steps, repeat=1)) as watched:
        trained(experiment, place, After(None, watched.step))
    # A kernel's time is also that of the operation that started it; the profiler's own steps span all of them.
    rows = [row for row in watched.key_averages() if row.device_type == DeviceType.CPU and not row.key.startswith("Profiler")]
    which = "self_device_time_total" if any(row.self_device_time_total for row in rows) else "self_cpu_time_total"
    times = sorted(((getattr(row, which) / 1000 / steps, row.count / steps, row.key) for row in rows), reverse=True)
    table = [{"ms": round(ms, 3), "calls": calls, "name": name[:100]} for ms, calls, name in times[:30]]
    return {"of": which, "ms_a_step": round(sum(time for time, _, _ in times), 3), "operations": table}


def loader(put: Put, device: str, place: Path, toy: bool, limit: float) -> None:
    """Pairs of views a second by the number of processes that draw them, of batches as large as a step's."""
    size, images, batch = (32, 64, 8) if toy else (224, 4096, 60)
    store = Store.open(converted(place, images, 1, 2, size))
    rates = {}
    for workers in (0, 1) if toy else sorted({2, 4, 8, worker_count(), max(cores() - 1, 1)}):
        rows = np.resize(np.arange(images), (8 if toy else 50 * workers, batch))  # some seconds
        steps = [[Request("weak", some, View("weak")), Request("strong", some, View("strong", cutout=0.5))] for some in rows]
        batches = load(store, steps, seed=1, stage="train", epoch=0, workers=workers, device=device)
        next(batches)  # the processes have started
        begin = time.perf_counter()
        count = sum(len(views["weak"]) for views in batches)
        if device != "cpu":
            torch.cuda.synchronize()
        rates[workers] = round(count / (time.perf_counter() - begin), 1)
        put(pairs_a_second_by_workers=rates, chosen=worker_count())


def features(put: Put, device: str, place: Path, toy: bool, limit: float) -> None:
    """The features stage beside the backbone alone."""
    from features import measure as measured  # here: the other parts need none of it

    place.mkdir()
    put(**measured(place, 32 if toy else 224, 16 if toy else 4096, 0, 1 if toy else 3, None, toy))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=("correct", "tables", "step", "loader", "features"))
    parser.add_argument("out", type=Path)
    parser.add_argument("place", type=Path)
    parser.add_argument("--toy", action="store_true")
    parser.add_argument("--limit", type=float, default=600, help="seconds after which it is ended")
    options = parser.parse_args()
    found: dict[str, Any] = {}

    def put(**more: Any) -> None:
        found.update(more)
        temporary = options.out / f"{options.part}.tmp"
        temporary.write_text(json.dumps(found, indent=1) + "\n")
        temporary.replace(options.out / f"{options.part}.json")

    globals()[options.part](put, "cpu" if options.toy else "cuda", options.place, options.toy, options.limit)


if __name__ == "__main__":
    main()
