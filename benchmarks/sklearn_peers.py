"""DiCaPClassifier on features that are there already, against what scikit-learn offers for several labels at once.

    python benchmarks/sklearn_peers.py --features FOLDER --set FOLDER [--ratios 0.05 0.1] [--seeds 1 2 3 4 5] [--more 0.02 0.2]

FOLDER of --features is a feature bank (`artifacts/features`), that of --set the converted set it was made of (`data/converted`).
An image's row is the mean of its features over positions. For each ratio and seed of the published split: mAP on the
test images, and seconds of fitting and scoring, of

    regression      LogisticRegression, class by class, on the labelled rows
    components      the same on the first 256 principal components of all training rows
    self_training   SelfTrainingClassifier of that regression on the components, class by class, threshold 0.95: on all features
                    it takes many minutes a split
    spreading       LabelSpreading, class by class, on the graph of 30 nearest rows, which is made once for all classes
    ours            DiCaPClassifier with its defaults

The rows of scikit-learn's are standardised by all training rows. C of the regressions is chosen by cross-validation on the
labelled rows as DiCaPClassifier chooses its own; the search is not counted in their seconds. Threshold and neighbours were the
best of (0.75, 0.95) and (7, 30) on 500 training images of seed 11, whose labels were used for nothing else.

Then, at the ratios --half, half of the labelled entries are made unknown, at random, and ways to go on are compared:

    unknown         DiCaPClassifier, which takes -1 for unknown
    negative        DiCaPClassifier, told that they are negative
    dropped         DiCaPClassifier on the rows without an unknown entry; None where fewer than two are left, as with many
                    classes, and then `constant` stands for it
    constant        mAP of equal scores
    known_rows      the regression of each class on the rows where it is known

`--more` are ratios for the learning curve alone, of the first two seeds and without self-training. The plot is written beside the
JSON, or to --figure. Ctrl-C ends with the cells that are finished.

Writes sklearn_peers.json among the results and ends with `sklearn_peers ratio=R target=1`, R: mAP points of `ours` above the best
peer, mean over the seeds, the smaller of the ratios. Exits 1 below it, above 60 seconds for a fit, or where `unknown` is less
than 2 points above `negative` or `dropped`.
"""

import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from common import Parser, finish, paired
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from dicap.data import format as files
from dicap.data.labels import read_labels
from dicap.data.split import labelled_order
from dicap.frozen.features.bank import FeatureBank
from dicap.frozen.folds import FOLDS, assign_folds
from dicap.frozen.loss_weight import choose_loss_weight
from dicap.metrics.ranking import mean_average_precision
from dicap.sklearn import DiCaPClassifier

TARGET, SECONDS, PARTIAL = 1.0, 60.0, 2.0
THRESHOLD, NEIGHBOURS = 0.95, 30
COMPONENTS = 256
PEERS = ("regression", "components", "self_training", "spreading")
NEVER = -30.0  # score of a class without a labelled positive
Scores = np.ndarray  # (m, C) of the test rows


class Features:
    """Rows and labels of training and test images."""

    def __init__(self, x: np.ndarray, y: np.ndarray, test: np.ndarray) -> None:
        self.x, self.y, self.x_test, self.y_test = x[~test], y[~test], x[test], y[test]

    @staticmethod
    def read(bank: Path, converted: Path) -> "Features":
        """Of a feature bank and the converted set it was made of; truly unlabelled images are left out."""
        views = FeatureBank.open(bank)
        x = views.view("plain").astype(np.float32).mean(1)
        split = np.array(files.read_index(converted, ["split"])["split"].to_pylist())
        rows = np.flatnonzero(split != "unlabeled")
        return Features(x[rows], read_labels(converted, rows), split[rows] == "test")

    @staticmethod
    def made_up() -> "Features":
        """A toy: four labels that are directions among sixteen features."""
        rng = np.random.default_rng(0)
        x = rng.standard_normal((160, 16)).astype(np.float32)
        return Features(x, (x[:, :4] + 0.5 * rng.standard_normal((160, 4)) > 0.7).astype(np.uint8), np.arange(160) >= 120)

    def labels(self, ratio: float, seed: int) -> np.ndarray:
        """(n, C) of the published split: 1, 0, and -1 where the label is hidden."""
        labelled = labelled_order(len(self.x), seed)[: int(ratio * len(self.x))]
        y = np.full(self.y.shape, -1)
        y[labelled] = self.y[labelled]
        return y


def by_class(x: np.ndarray, y: np.ndarray, x_test: np.ndarray, fit: Callable[[np.ndarray, np.ndarray], Any]) -> Scores:
    """Scores of `fit(rows, labels)` for each class; a class of one known value is a constant."""
    columns = []
    for labels in y.T:
        known = labels[labels >= 0]
        if not known.size or known.min() == known.max():
            columns.append(np.full(len(x_test), -NEVER if known.size and known[0] else NEVER))
        else:
            columns.append(fit(x, labels).predict_proba(x_test)[:, 1])
    return np.stack(columns, axis=1)


def regressions(c: float) -> Callable[[np.ndarray, np.ndarray], LogisticRegression]:
    """A regression on the rows whose label is known."""
    return lambda x, y: LogisticRegression(C=c, max_iter=1000).fit(x[y >= 0], y[y >= 0])


def self_training(c: float) -> Callable[[np.ndarray, np.ndarray], SelfTrainingClassifier]:
    """The regression, which labels more and more rows itself."""
    # tol: the default takes nearly twice as long
    return lambda x, y: SelfTrainingClassifier(LogisticRegression(C=c, max_iter=1000, tol=1e-2), threshold=THRESHOLD).fit(x, y)


def spreading(x: np.ndarray, x_test: np.ndarray) -> Callable[[np.ndarray, np.ndarray], LabelSpreading]:
    """LabelSpreading with its kernel `knn`, whose graphs are made once instead of for each class."""
    nearest = NearestNeighbors(n_neighbors=min(NEIGHBOURS, len(x) - 1)).fit(x)
    own, of_test = nearest.kneighbors_graph(x), nearest.kneighbors_graph(x_test).T.tocsr()

    def kernel(rows: np.ndarray, others: np.ndarray | None = None) -> Any:
        return own if others is None or others is rows else of_test

    return lambda x, y: LabelSpreading(kernel=kernel).fit(x, y)


def penalty(x: np.ndarray, y: np.ndarray, seed: int) -> float:
    """C of the regressions, by the log loss of five folds."""
    labelled = (y >= 0).any(1)
    x, y = x[labelled].astype(np.float32), y[labelled].astype(np.float32)
    return choose_loss_weight(x, y, assign_folds(y, min(FOLDS, len(y)), seed))


def ours(features: Features, y: np.ndarray, seed: int) -> Scores:
    """DiCaPClassifier with its defaults."""
    return DiCaPClassifier(random_state=seed).fit(features.x, y).decision_function(features.x_test)


def half_unknown(features: Features, y: np.ndarray, x: np.ndarray, x_test: np.ndarray, seed: int) -> dict[str, float | None]:
    """mAP where half of the labelled entries are unknown."""
    hidden = (y >= 0) & (np.random.default_rng(seed).random(y.shape) < 0.5)
    labelled, complete = (y >= 0).any(1), (y >= 0).all(1) & ~hidden.any(1)
    partial = np.where(hidden, -1, y)
    found: dict[str, float | None] = {}

    def score(scores: Scores) -> float:
        return mean_average_precision(scores, features.y_test)

    found["unknown"] = score(ours(features, partial, seed))
    found["negative"] = score(ours(features, np.where(hidden, 0, y), seed))
    rows = np.where(complete[:, None], y, -1)
    found["dropped"] = score(ours(features, rows, seed)) if complete.sum() > 1 and (rows >= 0).any() else None
    found["constant"] = score(np.zeros(features.y_test.shape))
    found["known_rows"] = score(by_class(x[labelled], partial[labelled], x_test, regressions(penalty(x, partial, seed))))
    return found


def cell(features: Features, ratio: float, seed: int, *, whole: bool, half: bool) -> dict[str, Any]:
    """mAP and seconds of everything at one ratio and seed; `whole`: all of it; `half`: with half unknown too."""
    y = features.labels(ratio, seed)
    scaler = StandardScaler().fit(features.x)
    x, x_test = scaler.transform(features.x), scaler.transform(features.x_test)
    c = penalty(x, y, seed)
    passes: dict[str, Callable[[], Scores]] = {
        "regression": lambda: by_class(x, y, x_test, regressions(c)),
        "spreading": lambda: by_class(x, y, x_test, spreading(x, x_test)),
        "ours": lambda: ours(features, y, seed),
    }
    if whole:
        parts = PCA(min(COMPONENTS, *x.shape), random_state=0).fit(x)
        part, part_test = parts.transform(x), parts.transform(x_test)
        passes["components"] = lambda: by_class(part, y, part_test, regressions(c))
        passes["self_training"] = lambda: by_class(part, y, part_test, self_training(c))
    found: dict[str, Any] = {"ratio": ratio, "seed": seed, "C": c, "map": {}, "seconds": {}}
    for name, scores in passes.items():
        begin = time.perf_counter()
        found["map"][name] = mean_average_precision(scores(), features.y_test)
        found["seconds"][name] = round(time.perf_counter() - begin, 2)
    if half:
        found["half_unknown"] = half_unknown(features, y, x, x_test, seed)
    return found


def summary(cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Means and paired differences of the cells of one ratio."""
    maps = {name: [found["map"][name] for found in cells] for name in (*PEERS, "ours")}
    found = {
        "map": {name: round(float(np.mean(values)), 2) for name, values in maps.items()},
        "ours_against": {name: paired(maps["ours"], maps[name]) for name in PEERS},
        "slowest": {name: max(found["seconds"][name] for found in cells) for name in maps},
    }
    if any("half_unknown" not in each for each in cells):
        return found
    parts = {name: [each["half_unknown"][name] for each in cells] for name in cells[0]["half_unknown"]}
    dropped = [c if d is None else d for d, c in zip(parts["dropped"], parts["constant"], strict=True)]
    return found | {
        "half_unknown": {name: None if None in values else round(float(np.mean(values)), 2) for name, values in parts.items()},
        "unknown_against": {
            "negative": paired(parts["unknown"], parts["negative"]),
            "dropped": paired(parts["unknown"], dropped),
            "known_rows": paired(parts["unknown"], parts["known_rows"]),
        },
    }


def draw(cells: list[dict[str, Any]], labels: int, path: Path) -> None:
    """The learning curve: mean mAP over seeds by labelled samples, with the range of the seeds."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.hashsalt": "dicap", "font.size": 9}
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(5.2, 3.2))
    titles = {"ours": "DiCaPClassifier", "regression": "LogisticRegression"}
    titles |= {"self_training": "SelfTrainingClassifier", "spreading": "LabelSpreading"}
    for (name, title), marker in zip(titles.items(), "osv^", strict=True):
        ratios = sorted({found["ratio"] for found in cells if name in found["map"]})
        values = [[found["map"][name] for found in cells if found["ratio"] == r and name in found["map"]] for r in ratios]
        mean = np.array([np.mean(each) for each in values])
        spread = np.abs(np.array([[min(each), max(each)] for each in values]).T - mean)
        axis.errorbar([r * labels for r in ratios], mean, spread, marker=marker, markersize=4, capsize=2, lw=1.2, label=title)
    axis.set(xscale="log", xlabel=f"labelled samples of {labels:,}", ylabel="test mAP (%)")
    ticks = sorted({found["ratio"] * labels for found in cells})
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=8)
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)


def main() -> int:
    parser = Parser(__doc__, "sklearn_peers", ratios=[0.3], seeds=[1, 2], half=[0.3])
    parser.add_argument("--features", type=Path, help="feature bank (not needed with --smoke)")
    parser.add_argument("--set", type=Path, help="converted set of the bank")
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.05, 0.1])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument(
        "--half", type=float, nargs="*", default=[0.1], help="ratios at which half of the entries are made unknown"
    )
    parser.add_argument("--more", type=float, nargs="*", default=[], help="further ratios of the learning curve")
    parser.add_argument("--figure", type=Path, help="the learning curve, an SVG")
    options = parser.options()
    if not options.smoke and (options.features is None or options.set is None):
        parser.error("give --features and --set")
    warnings.simplefilter("ignore", ConvergenceWarning)
    features = Features.made_up() if options.smoke else Features.read(options.features, options.set)

    todo = [(ratio, seed) for seed in options.seeds for ratio in options.ratios]
    todo += [(ratio, seed) for ratio in options.more for seed in options.seeds[:2]]
    cells: list[dict[str, Any]] = []
    try:
        for ratio, seed in todo:
            cells.append(cell(features, ratio, seed, whole=ratio in options.ratios, half=ratio in options.half))
            print(
                ratio, seed, {name: round(value, 2) for name, value in cells[-1]["map"].items()}, cells[-1]["seconds"], flush=True
            )
    except KeyboardInterrupt:
        print(f"stopped after {len(cells)} of {len(todo)}", flush=True)
    by_ratio = {str(ratio): summary([found for found in cells if found["ratio"] == ratio]) for ratio in options.ratios}
    for ratio, found in by_ratio.items():
        print(ratio, found)
    draw(cells, len(features.x), options.figure or options.out.with_suffix(".svg"))

    best = min(min(one["mean"] for one in found["ours_against"].values()) for found in by_ratio.values())
    slowest = max(found["slowest"]["ours"] for found in by_ratio.values())
    partly = [found["unknown_against"] for found in by_ratio.values() if "unknown_against" in found]
    gains = [found[name]["mean"] for found in partly for name in ("negative", "dropped")]
    result = {
        "samples": len(features.x),
        "features": features.x.shape[1],
        "classes": features.y.shape[1],
        "seconds": slowest,
        "summary": by_ratio,
        "cells": cells,
    }
    quick = slowest <= SECONDS and min(gains, default=PARTIAL) >= PARTIAL
    return finish("sklearn_peers", result, best, TARGET, options, quick=quick)


if __name__ == "__main__":
    sys.exit(main())
