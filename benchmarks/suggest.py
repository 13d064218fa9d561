"""Which choice of the images to label next teaches most: test mAP by the number of labels, from none on.

    python benchmarks/suggest.py FILE.npz ... [--seeds 1 2 3 4 5] [--minutes 4]
    python benchmarks/suggest.py --smoke      to see that it runs

A FILE holds features x (n, D) and labels y (n, C), and x_test, y_test, which are put together; for each seed TEST rows are drawn
to test on. ROUNDS times ROUND of the others are labelled, chosen by

    random      a random draw
    spread      images that cover the others and the labelled ones (`dicap-stage suggest --by spread`)
    unsure      the least sure entries, the classes taking turns, without near copies
    margin      the images with the single least sure entry
    entropy     the images with the largest sum of their entries' entropies

The last three begin with a round of `spread`: without a label nothing is sure. After each round a head is solved on the labelled
rows, at one penalty, LOSS_WEIGHT, and without the unlabelled rows.

What is finished is kept: the same --out goes on where an earlier run stopped. Of each strategy the mean curve, and differences
from `random` on the same rows at AT labels, with 95 % t intervals over the seeds.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from common import Parser, paired
from counts import FOLDS, LOSS_WEIGHT
from populations import HELPING, draw
from scipy.special import expit

from dicap.calibration.ranks import curve_by_rank
from dicap.files.json_files import write_json
from dicap.frozen.folds import assign_folds, fold_weights, out_of_fold_scores
from dicap.frozen.solver import Solution, solve
from dicap.metrics.ranking import mean_average_precision
from dicap.photos.review import scaled
from dicap.photos.suggest import principal, spread
from dicap.report import style

STRATEGIES = ("random", "spread", "unsure", "margin", "entropy")
ROUND, ROUNDS, TEST = 40, 10, 1500
AT = (120, 200, 400)
ALIKE = 0.98  # cosine similarity of two images' features above which the second one is left out
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "suggest.svg"


def curve(x: np.ndarray, y: np.ndarray, test: int, rounds: int, strategy: str, seed: int) -> list[float]:
    """Test mAP after each round."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(x))
    y_test, y, rows, parts = y[order[:test]], y[order[test:]], scaled(x)[order], principal(x[order[test:]])
    near = x[order[test:]] / np.maximum(np.linalg.norm(x[order[test:]], axis=1, keepdims=True), 1e-12)
    test_rows, rows = rows[:test], rows[test:]
    known: list[int] = []
    maps, heads, own = [], None, np.empty(0)
    for _ in range(rounds):
        free = np.setdiff1d(np.arange(len(rows)), known)
        if strategy == "random":
            new = rng.choice(free, ROUND, replace=False)
        elif strategy == "spread" or heads is None:
            both = np.concatenate([known, free]).astype(int)
            new = both[spread(parts[both], ROUND, len(known))]
        else:
            new = free[least_sure(strategy, heads, own, rows[free], near[free], y[known])]
        known += [int(row) for row in new]
        own, labels = rows[known], y[known]
        heads = solve(own, labels, weight=seen(labels) if strategy == "unsure" else 1.0, loss_weight=LOSS_WEIGHT)
        maps.append(round(float(mean_average_precision(heads.logits(test_rows)[-1], y_test)), 3))
    return maps


def seen(labels: np.ndarray) -> np.ndarray:
    """Which rows each head sees: those without a fold and, last, the one of all."""
    return np.concatenate([fold_weights(assign_folds(labels, FOLDS, seed=0)), np.ones((1, len(labels), 1), np.float32)])


def least_sure(
    strategy: str, heads: Solution, own: np.ndarray, rows: np.ndarray, near: np.ndarray, labels: np.ndarray
) -> list[int]:
    """ROUND of the rows, by the scores of the last head."""
    z = heads.logits(rows)[-1].astype(np.float64)
    p = 1 / (1 + np.exp(-z))
    if strategy == "unsure":
        fold = assign_folds(labels, FOLDS, seed=0)
        held_out = out_of_fold_scores(heads.logits(own), fold).astype(np.float64)
        chance = np.interp(z, *curve_by_rank(expit(held_out), labels))
        return [i for i, _ in choose(1 - np.abs(2 * chance - 1), near, ROUND)]
    if strategy == "margin":
        return np.argsort(np.abs(p - 0.5).min(1), kind="stable")[:ROUND].tolist()
    return np.argsort((p * np.log(p) + (1 - p) * np.log1p(-p)).sum(1), kind="stable")[:ROUND].tolist()


def choose(open_: np.ndarray, embeddings: np.ndarray, count: int, alike: float = ALIKE) -> list[tuple[int, int]]:
    """(image, class) of the images to label, best first.

    The classes take turns, those with most open entries first; a class takes the image whose entry of it is most uncertain, ties
    broken by the image's total uncertainty. Near copies of an image chosen before are left out.

    Args:
        open_: (n, C) uncertainty; embeddings: (n, D) of length 1; count: images wanted.
    """
    n, classes = open_.shape
    order = [np.lexsort((-open_.sum(1), -open_[:, c])) for c in range(classes)]
    turns = np.argsort(-open_.sum(0), kind="stable")
    free, place = np.ones(n, bool), np.zeros(classes, int)
    chosen: list[tuple[int, int]] = []
    while len(chosen) < count and free.any():
        for c in turns:
            while place[c] < n and not free[order[c][place[c]]]:
                place[c] += 1
            if place[c] == n or len(chosen) == count:
                continue
            image = int(order[c][place[c]])
            chosen.append((image, int(c)))
            free &= embeddings @ embeddings[image] <= alike
            free[image] = False
    return chosen


def tables_of(cells: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, Any]]:
    """`table` of each set in which something is finished."""
    return {name: table(some) for name, some in cells.items() if some}


def table(cells: dict[str, list[float]]) -> dict[str, Any]:
    """Of one set's curves, by `strategy seed`: mean curves, and differences from `random` of equal seeds."""
    found: dict[str, Any] = {}
    seeds = sorted({key.split()[1] for key in cells})
    for strategy in STRATEGIES:
        done = [seed for seed in seeds if f"{strategy} {seed}" in cells and f"random {seed}" in cells]
        if not done:
            continue
        ours, drawn = (np.array([cells[f"{name} {seed}"] for seed in done]) for name in (strategy, "random"))
        found[strategy] = {"seeds": len(done), "mean": np.round(ours.mean(0), 2).tolist()}
        if strategy != "random" and len(done) > 1:
            found[strategy]["above_random"] = {
                str(at): paired(ours[:, at // ROUND - 1].tolist(), drawn[:, at // ROUND - 1].tolist(), 2)
                for at in AT
                if at // ROUND <= ours.shape[1]
            }
    return found


def plot(tables: dict[str, dict[str, Any]], path: Path) -> None:
    """The mean curves, a panel a set."""
    with style.house_style():
        figure = style.canvas(3.0, 7.4)
        axes = figure.subplots(1, len(tables), squeeze=False)[0]
        for ax, (name, found) in zip(axes, tables.items(), strict=True):
            for (strategy, one), look in zip(found.items(), style.LINES, strict=False):
                labels = ROUND * np.arange(1, len(one["mean"]) + 1)
                ax.plot(labels, one["mean"], **look, label=strategy)
            ax.set_title(name, loc="left", fontsize=9)
            ax.set_xlabel("labelled images")
        axes[0].set_ylabel("test mAP, %")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=5)
        style.save(figure, path)


def main() -> int:
    """Run what is not there yet, write after each."""
    parser = Parser(__doc__, "suggest", seeds=[1, 2])
    parser.add_argument("files", type=Path, nargs="*", help="feature sets, .npz with x, y, x_test, y_test")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no further curve after so many")
    options = parser.options()
    cells: dict[str, dict[str, list[float]]] = json.loads(options.out.read_text())["cells"] if options.out.exists() else {}
    begin, sets, sizes = time.perf_counter(), {}, (TEST, ROUNDS)
    for path in options.files:
        with np.load(path) as values:
            x, y = (np.concatenate([values[name], values[f"{name}_test"]]).astype(np.float32) for name in "xy")
        sets[path.stem] = x, (y > 0).astype(np.float32)
    if options.smoke:
        made, sizes = draw(HELPING, 1), (200, 3)
        sets["made up"] = made.x, made.y
    for seed in options.seeds:
        for strategy in STRATEGIES:
            for name, (x, y) in sets.items():
                key = f"{strategy} {seed}"
                if key in cells.setdefault(name, {}) or time.perf_counter() - begin > 60 * options.minutes:
                    continue
                cells[name][key] = curve(x, y, *sizes, strategy, seed)
                print(name, key, cells[name][key], flush=True)
                write_json({"round": ROUND, "test": sizes[0], "table": tables_of(cells), "cells": cells}, options.out)
    tables = tables_of(cells)
    plot(tables, options.out.with_suffix(".svg") if options.smoke else FIGURE)
    print(json.dumps(tables, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
