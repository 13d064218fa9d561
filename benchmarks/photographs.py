"""Own photographs on frozen features: is DiCaP worth more than the ten lines that people would write instead?

    python benchmarks/photographs.py --data FOLDER [--ratios 0.05 0.1 0.2] [--seeds 1 2 3 4 5]

FOLDER holds photographs with labels.csv, as the data set `table` takes them. They are converted and their features computed once,
with the settings of configs/table.yaml, and kept in --cache. Then, for each ratio and seed, mAP on the test images and seconds of

    regression        scikit-learn's LogisticRegression, class by class, on standardised features: of each image and its mirror
                      image, the mean, which take twice the seconds of what the heads below see
    regression_plain  the same with the same C on the features of the image alone, which is what the heads below see
    labelled_only     this project's solved head on the labelled images (method bce)
    cap, cap_tenth    CAP with the same head; pseudo-labelled rows weigh 0.3 (the default), or 0.1 (its best on validation images)
    published         DiCaP's published rule, with a holdout, on the same head; then its fine-tuning (published_finetuned)
    recommended       `protocol: recommended`

Every C is chosen by cross-validation on the labelled images, by log loss, among the same candidates. That of the regression by
`dicap.frozen`, which is 40 times as fast as scikit-learn and finds the same (benchmarks/linear.py): its seconds are those of
nobody who has scikit-learn alone. With --grid-search it is scikit-learn that searches. No setting is chosen here.
Beside the table: paired differences with 95 % t intervals over seeds; how far the stated chance lies from the share that is
right, over deciles of the test decisions; error and log loss of the curves on the hidden labels of the unlabelled images (what
the main stage begins with) and on the test images (what is published). The excess log loss is that above the optimal curve of
the same scores; two models with scores of their own are not compared by it.

Writes photographs.json among the results and ends with `photographs ratio=R target=1`, R: mAP points of `recommended` above
the better regression, mean over the seeds, the smaller of ratios 0.05 and 0.1 (of those that ran). Exits 1 below it, or if in
any seed it is below the regression, if the labelled-only head is more than 0.3 below it, or if the chance is off by more than
0.02 on average.
"""

import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from common import Parser, finish, gap_of_deciles, paired
from made_up import ROOT, converted, settings
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss as sklearn_loss
from sklearn.model_selection import KFold
from sklearn.preprocessing import StandardScaler

from dicap.calibration.rates import count_bins, curve_error, estimate_rates, interpolated, surprisals
from dicap.data.convert import convert
from dicap.data.sources import read_raw
from dicap.data.split import split_index, split_roles
from dicap.data.store import Store
from dicap.evaluation.answers import Answers
from dicap.files.artifacts import write_split
from dicap.files.features import BACKBONE
from dicap.frozen.features.accelerated import accelerated
from dicap.frozen.features.bank import FeatureBank
from dicap.frozen.features.compute import fill
from dicap.frozen.features.recipe import Recipe, pretrained_network
from dicap.frozen.folds import FOLDS
from dicap.frozen.inputs import BankFeatures
from dicap.frozen.loss_weight import CANDIDATES, log_losses, logits_out_of_fold
from dicap.machine.processes import keep_freed_memory
from dicap.machine.runtime import Runtime
from dicap.metrics.ranking import mean_average_precision
from dicap.models import load_model, load_weights
from dicap.network.stored import save_backbone
from dicap.settings import Settings
from dicap.training.experiment import Experiment
from dicap.training.hidden import HiddenLabelReader
from dicap.training.loops.warmup import initial_network
from dicap.training.run import run_stage

TARGET, BELOW, GAP = 1.0, 0.3, 0.02
RECOMMENDED = {"method": "dicap", "protocol": "recommended"}
RUNS: dict[str, dict[str, Any]] = {
    "labelled_only": {"method": "bce", "head": "linear"},
    "cap": {"method": "cap", "head": "linear"},
    "cap_tenth": {"method": "cap", "head": "linear", "linear.pseudo_weight": 0.1},
    "published": {"method": "dicap", "head": "linear"},
    "recommended": RECOMMENDED,
}
BASE = {"dataset": "table", "data_root": ".", "features.views": 1}
SMOKE = {"backbone": "test_resnet", "backbone_weights": "random", "network.stride": 16, "image_size": 32}


def regression(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, c: float) -> np.ndarray:
    """What people write: standardised features and one logistic regression a class. Logits (m, C)."""
    scaler = StandardScaler().fit(x)
    x, x_test = scaler.transform(x), scaler.transform(x_test)
    columns = []
    for labels in y.T:
        if labels.min() == labels.max():  # nothing to learn in this class
            columns.append(np.full(len(x_test), -5.0 if labels[0] == 0 else 5.0))
        else:
            columns.append(LogisticRegression(C=c, max_iter=1000).fit(x, labels).decision_function(x_test))
    return np.stack(columns, axis=1)


def grid_search(x: np.ndarray, y: np.ndarray) -> float:
    """C by cross-validation as people write it: the log loss of the folds, all classes together."""
    losses = {}
    for c in CANDIDATES:
        folds = KFold(FOLDS, shuffle=True, random_state=0).split(x)
        p = [(y[o].ravel(), 1 / (1 + np.exp(-regression(x[i], y[i], x[o], c).ravel()))) for i, o in folds]
        losses[c] = np.mean([sklearn_loss(true, stated, labels=[0, 1]) for true, stated in p])
    return min(losses, key=losses.__getitem__)


def quick_search(x: np.ndarray, y: np.ndarray) -> float:
    """The same folds and candidates in one solve (dicap/frozen), which finds the weights that scikit-learn does."""
    fold = np.empty(len(x), np.int64)
    for k, (_, outside) in enumerate(KFold(FOLDS, shuffle=True, random_state=0).split(x)):
        fold[outside] = k
    rows = StandardScaler().fit_transform(x).astype(np.float32)
    y = y.astype(np.float32)
    return CANDIDATES[int(np.argmin(log_losses(logits_out_of_fold(rows, y, fold, CANDIDATES), y)))]


class Place:
    """A converted set, its features, and experiments on them."""

    def __init__(self, folder: Path, data: Path | None, common: dict[str, Any]) -> None:
        self.folder, self.common = folder, common
        folder.mkdir(parents=True, exist_ok=True)
        s = self.settings({})
        self.set = folder / "set"
        if not self.set.exists():
            if data is None:
                converted(self.set, 80, 20, 3, s.image_size)
            else:
                convert(read_raw("table", data), self.set, image_size=s.image_size)
        self.store = Store.open(self.set)
        self.runtime = Runtime.choose()
        self.banks: dict[int, FeatureBank] = {}
        begin = time.perf_counter()
        self.bank = self.bank_of(s)
        self.seconds = time.perf_counter() - begin
        self.labels = HiddenLabelReader(self.set).labels(np.arange(self.store.n))[0].numpy()

    def settings(self, changes: dict[str, Any]) -> Settings:
        return settings(self.folder, BASE | self.common | changes)

    def bank_of(self, s: Settings) -> FeatureBank:
        """The features that the settings ask for, computed where they are not there."""
        key = s.features.views
        if key not in self.banks:
            device = self.runtime.device
            network = pretrained_network(s).to(device)
            recipe = Recipe.of(s, self.store, network)
            bank = self.folder / f"features-{recipe.fingerprint[:16]}"
            if not (bank / "meta.json").exists():
                computing = network
                if self.runtime.amp is None:  # as the stage does
                    keep_freed_memory()
                    computing, _ = accelerated(network, recipe.n * len(recipe.files), s.image_size, device)
                known = self.folder / "known"
                fill(bank, recipe, self.store, computing, known, device=device, autocast=self.runtime.amp)
                save_backbone(network.backbone, bank / BACKBONE)
            self.banks[key] = FeatureBank.open(bank)
        return self.banks[key]

    def split(self, ratio: float, seed: int, est_fraction: float) -> Path:
        ids, *more = split_index(self.set)
        path = self.folder / "split.parquet"
        write_split(ids, split_roles(ids, *more, ratio=ratio, seed=seed, est_fraction=est_fraction), path)
        return path

    def experiment(self, changes: dict[str, Any], ratio: float, seed: int) -> Experiment:
        s = self.settings(changes | {"ratio": ratio, "seed": seed})
        split = self.split(ratio, seed, s.split.est_fraction)
        bank = BankFeatures(self.bank_of(s), s.seed, s.augment.flip) if s.needs_features else None
        return Experiment.open(s, self.runtime, self.set, split, bank=bank)


def run(experiment: Experiment, stages: tuple[str, ...], place: Path) -> tuple[dict[str, Path], float]:
    """The model of each stage, and the seconds of all."""
    models: dict[str, Path] = {}
    source: Path | None = None
    begin = time.perf_counter()
    for stage in stages:

        def network(source: Path | None = source) -> torch.nn.Module:
            if source is None:
                return initial_network(experiment)
            made = experiment.method.build_network(pretrained=False)
            load_weights(made, source)
            return made

        inputs = [] if source is None else [source]
        folder = None if source is None else source.parent
        run_stage(
            stage, experiment, network, inputs=inputs, root=place, out=place / stage, log=lambda lines: None,
            source=folder,
        )  # fmt: skip
        source = models[stage] = place / stage / "model.safetensors"
    return models, time.perf_counter() - begin


def curve_figures(scores: np.ndarray, labels: np.ndarray, answers: Answers) -> dict[str, float]:
    """Of a published model's curve: error against the optimal curve of 20 bins, log loss, and the part above that curve's."""
    p, y = torch.from_numpy(scores), torch.from_numpy(labels)
    n_pos, n_neg = count_bins(p, y, 20)
    optimal, stated = estimate_rates(n_pos, n_neg).r_pos, torch.from_numpy(answers.present(scores))
    index = (p * 20).long().clamp(max=19).flatten()
    mean = torch.zeros(20, dtype=torch.float64).index_add_(0, index, stated.flatten()) / (n_pos + n_neg).clamp_min(1)
    loss = float(surprisals(stated, y).mean())
    return {
        "curve_error": curve_error(mean, optimal, n_pos + n_neg),
        "log_loss": loss,
        "excess_log_loss": loss - float(surprisals(interpolated(p, optimal, anchor="centre"), y).mean()),
    }


def cell(place: Place, ratio: float, seed: int, search: bool) -> dict[str, Any]:
    """mAP, seconds and curves of everything at one ratio and seed."""
    maps: dict[str, float] = {}
    seconds: dict[str, float] = {}
    curves: dict[str, dict[str, float]] = {}
    chance: dict[str, float] = {}
    for name, changes in RUNS.items():
        experiment = place.experiment(changes, ratio, seed)
        test = experiment.roles.test
        y_test = place.labels[test]
        if name == "labelled_only":
            known, mirrored = experiment.roles.labelled, place.bank.view("mirror").astype(np.float32).mean(1)
            plain = place.bank.view("plain").astype(np.float32).mean(1)
            begin, y = time.perf_counter(), place.labels[known]
            mean = (plain + mirrored) / 2
            c = (grid_search if search else quick_search)(mean[known], y)
            maps["regression"] = mean_average_precision(regression(mean[known], y, mean[test], c), y_test)
            seconds["regression"] = time.perf_counter() - begin
            maps["regression_plain"] = mean_average_precision(regression(plain[known], y, plain[test], c), y_test)
        stages = ("warmup", "train", "finetune")[: {"labelled_only": 1, "published": 3}.get(name, 2)]
        with tempfile.TemporaryDirectory() as scratch:
            models, seconds[name] = run(experiment, stages, Path(scratch))
            for stage, model in models.items():
                if stage == "warmup" and len(models) > 1:
                    continue
                network = experiment.method.build_network(pretrained=False)
                load_weights(network, model)
                scores = experiment.predict(experiment.place(network), test).cpu().numpy()
                title = name + ("_finetuned" if stage == "finetune" else "")
                maps[title] = mean_average_precision(scores, y_test)
                answers = Answers.of(load_model(model).evidence)
                if answers.curve is not None and stage == "train":
                    answer, stated = answers.decide(scores)
                    chance[title] = gap_of_deciles(stated, answer == y_test)
                    curves[title] = {f"test_{key}": value for key, value in curve_figures(scores, y_test, answers).items()}
                    curves[title] |= begun(models["train"].parent)
    return {"ratio": ratio, "seed": seed, "map": maps, "seconds": seconds, "chance_gap": chance, "curves": curves}


def begun(folder: Path) -> dict[str, float]:
    """Of the curve that the main stage begins with, on hidden labels: its history says so."""
    import pandas as pd

    row = pd.read_csv(folder / "history.csv").iloc[0]
    return {f"unlabelled_{key}": float(row[key]) for key in ("curve_error", "log_loss", "excess_log_loss")}


def paired_maps(cells: list[dict[str, Any]], ours: str, theirs: str) -> dict[str, float]:
    """The paired difference of two methods' mAP."""
    return paired(*([found["map"][name] for found in cells] for name in (ours, theirs)))


PAIRS = (
    ("labelled_only", "regression"),
    ("labelled_only", "regression_plain"),
    ("recommended", "regression"),
    ("recommended", "regression_plain"),
    ("recommended", "labelled_only"),
    ("recommended", "cap"),
    ("recommended", "cap_tenth"),
    ("recommended", "published"),
)


def mean_of(cells: list[dict[str, Any]], kind: str, name: str, key: str | None = None) -> float:
    """Mean over cells of a figure."""
    return float(np.mean([found[kind][name] if key is None else found[kind][name][key] for found in cells]))


def main() -> int:
    """Run, compare, write."""
    given = Parser(__doc__, "photographs", ratios=[0.4], seeds=[1], grid_search=True)
    given.add_argument("--data", type=Path, help="folder of photographs with labels.csv; not needed at toy size")
    given.add_argument("--ratios", type=float, nargs="+", default=[0.05, 0.1, 0.2])
    given.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    given.add_argument("--cache", type=Path, default=ROOT / ".dicap" / "photographs", help="where the features are kept")
    given.add_argument(
        "--grid-search", action="store_true", help="choose the regression's C by scikit-learn itself: minutes a seed"
    )
    options = given.options()
    if options.data is None and not options.smoke:
        given.error("--data: name a folder of photographs with labels.csv")
    if not options.smoke:
        warnings.simplefilter("error", RuntimeWarning)  # a solve that ends above its tolerance fails the benchmark
    with tempfile.TemporaryDirectory() as scratch:
        place = Place(Path(scratch) if options.smoke else options.cache, options.data, SMOKE if options.smoke else {})
        cells = []
        for ratio in options.ratios:
            for seed in options.seeds:
                cells.append(cell(place, ratio, seed, options.grid_search))
                shown = ", ".join(f"{name} {value:.2f}" for name, value in cells[-1]["map"].items())
                took = sum(cells[-1]["seconds"].values())
                print(f"{ratio:g} {seed}: {shown}; {took:.0f} s", flush=True)
    by_ratio = {ratio: [found for found in cells if found["ratio"] == ratio] for ratio in options.ratios}
    table = {}
    for ratio, some in by_ratio.items():
        table[str(ratio)] = {
            "map": {name: round(mean_of(some, "map", name), 2) for name in some[0]["map"]},
            "seconds": {name: round(mean_of(some, "seconds", name), 2) for name in some[0]["seconds"]},
            "difference": {f"{a} - {b}": paired_maps(some, a, b) for a, b in PAIRS},
            "chance_gap": {name: round(mean_of(some, "chance_gap", name), 5) for name in some[0]["chance_gap"]},
            "curves": {
                name: {key: round(mean_of(some, "curves", name, key), 5) for key in values}
                for name, values in some[0]["curves"].items()
            },
        }
    show(table)
    better = {r: max(("regression", "regression_plain"), key=lambda name, r=r: table[str(r)]["map"][name]) for r in by_ratio}
    gains = {r: table[str(r)]["difference"][f"recommended - {better[r]}"] for r in by_ratio}
    few = [r for r in by_ratio if r in (0.05, 0.1)] or list(by_ratio)
    checks = {
        "never below the regression": all(gain["least"] >= 0 for gain in gains.values()),
        "labelled-only reaches it": all(
            table[str(r)]["difference"][f"labelled_only - {better[r]}"]["mean"] >= -BELOW for r in by_ratio
        ),
        "chance": all(part["chance_gap"]["recommended"] <= GAP for part in table.values()),
    }
    print("; ".join(f"{name}: {'yes' if value else 'NO'}" for name, value in checks.items()))
    result = {
        "images": place.store.n,
        "classes": len(place.store.classes),
        "seeds": options.seeds,
        "features_seconds": round(place.seconds, 1),
        "settings": RUNS,
        "regression_searched_by": "scikit-learn" if options.grid_search else "dicap.frozen",
        "table": table,
        "checks": checks,
        "cells": cells,
    }
    ratio = min(gains[r]["mean"] for r in few)
    return finish("photographs", result, ratio, TARGET, options, quick=all(checks.values()))


def show(table: dict[str, Any]) -> None:
    """The table, on the terminal."""
    ratios = list(table)
    print(f"{'mAP (seconds)':22}" + "".join(f"{ratio:>18}" for ratio in ratios))
    for name in table[ratios[0]]["map"]:
        row = [(table[r]["map"][name], table[r]["seconds"].get(name)) for r in ratios]
        print(f"{name:22}" + "".join(f"{f'{value:.2f}' + (f' ({s:.1f})' if s is not None else ''):>18}" for value, s in row))
    for name in table[ratios[0]]["difference"]:
        row = [table[r]["difference"][name] for r in ratios]
        print(f"{name:34}" + "  ".join(f"{d['mean']:+.2f} ± {d['half']:.2f} (least {d['least']:+.2f})" for d in row))
    for name in table[ratios[0]]["chance_gap"]:
        print(f"{'chance gap, ' + name:34}" + "  ".join(f"{table[r]['chance_gap'][name]:.4f}" for r in ratios))
    for name, values in table[ratios[0]]["curves"].items():
        for key in values:
            print(f"{name + ' ' + key:44}" + "  ".join(f"{table[r]['curves'][name][key]:.5f}" for r in ratios))


if __name__ == "__main__":
    sys.exit(main())
