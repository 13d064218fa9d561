"""How often the intervals of `dicap-stage count` hold, and how wide they are beside those of the labels alone.

    python benchmarks/counts.py FILE.npz ... [--draws 300] [--sizes 50 100 200 400] [--minutes 4]

A FILE holds features x (n, D) and labels y (n, C), and x_test, y_test, which are put together. In each draw so many rows at
random are labelled, and the others are the folder. As in the pipeline the chances of the labelled rows are out of fold, of
classes with enough positives on the scale of the head of all labels, which gives those of the folder; both through the curve that
a published model carries; the heads are solved at one penalty, LOSS_WEIGHT, and without the unlabelled rows. Counted over draws
and classes:

    held, least     share of intervals that hold the true count; of the class with the least
    alone           the same of the labels alone; normal: of the normal interval of the labels alone
    width, error    mean width, root mean square error of the count: beside those of the labels alone
    alarm           share of draws in which any class is said to be shifted, which none is

Then seven in ten rows with one class, another one in each draw, are taken out of the folder: `noticed` is how often that class
is said to be shifted, `shifted_held` how often its interval holds all the same, `by_shift_held` that of the other estimate.

What is finished is kept: the same --out goes on where an earlier run stopped. Ends with `counts ratio=R target=0.93`, R: the
smallest `held` of the sets and sizes.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from common import Parser, finish
from populations import HELPING, draw
from scipy.special import expit

from dicap.calibration.counts import ENOUGH, Counts, Labelled, Moments, counts
from dicap.calibration.ranks import curve_by_rank
from dicap.frozen.crossfit import at_rank
from dicap.frozen.folds import assign_folds, fold_weights, out_of_fold_scores
from dicap.frozen.solver import solve
from dicap.metrics.operating_point import Z
from dicap.scaling import scaling_of

TARGET, LOSS_WEIGHT, FOLDS = 0.93, 0.003, 5
LEFT, COMMON = 0.3, 0.05  # of the rows with the class whose share is changed; the share it has at least


def population(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows (N, D) float32, scaled, and labels (N, C) of 0 and 1."""
    with np.load(path) as values:
        x, y = (np.concatenate([values[name], values[f"{name}_test"]]).astype(np.float32) for name in "xy")
    return scaling_of(x, "root").apply(x), (y > 0).astype(np.float32)


def chances(x: np.ndarray, y: np.ndarray, folder: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Chances (n, C) of labelled rows out of fold, and (N, C) of a folder's rows by the head of all labels."""
    fold = assign_folds(y, FOLDS, seed)
    weight = np.concatenate([fold_weights(fold), np.ones((1, len(y), 1), np.float32)])
    heads = solve(x, y, weight=weight, loss_weight=LOSS_WEIGHT)
    own = out_of_fold_scores(heads.logits(x), fold).astype(np.float64)
    knots, rate = curve_by_rank(expit(own), y)
    there = folder @ heads.w[-1].T.astype(np.float32) + heads.b[-1]
    own = np.where(y.sum(0) >= ENOUGH, at_rank(own, fold, heads.logits(folder).astype(np.float64)), own)
    return np.interp(own, knots, rate), np.interp(there, knots, rate)


def cell(x: np.ndarray, y: np.ndarray, n: int, draws: int) -> dict[str, float]:
    """What `draws` labelled samples of n rows give."""
    common = np.flatnonzero(y.mean(0) >= COMMON)
    rows: list[dict[str, Any]] = []
    for seed in range(draws):
        rng = np.random.default_rng([seed, n])
        order = rng.permutation(len(x))
        labelled, folder = order[:n], order[n:]
        known, unknown = chances(x[labelled], y[labelled], x[folder], seed)
        moments, truth = Labelled.of(known, y[labelled]), y[folder].sum(0)
        found = counts(moments, Moments.of(unknown))
        alone = counts(Labelled.of(0 * known, y[labelled]), Moments.of(0 * unknown))
        share = y[labelled].mean(0)
        half = Z * np.sqrt(share * (1 - share) * (1 / n + 1 / len(folder))) * len(folder)
        c = common[seed % len(common)]
        left = (y[folder, c] == 0) | (rng.random(len(folder)) < LEFT)
        other = counts(moments, Moments.of(unknown[left]))
        there = y[folder][left, c].sum()
        rows.append(
            {
                "held": held(found, truth),
                "alone": held(alone, truth),
                "normal": np.abs(alone.count - truth) <= half,
                "widths": np.stack([found.high - found.low, alone.high - alone.low]),
                "errors": np.stack([found.count - truth, alone.count - truth]) ** 2,
                "alarm": found.shifted.any(),
                "noticed": other.shifted[c],
                "shifted_held": other.low[c] <= there <= other.high[c],
                "by_shift_held": np.nan if np.isnan(other.by_shift[c]) else other.shift_low[c] <= there <= other.shift_high[c],
            }
        )
    means = {name: np.nanmean([row[name] for row in rows], axis=0) for name in rows[0]}
    result = {name: float(np.mean(values)) for name, values in means.items() if name not in ("widths", "errors")}
    width, error = (float(np.divide(*means[name].mean(1))) for name in ("widths", "errors"))
    result |= {"least": float(means["held"].min()), "width": width, "error": error**0.5}
    return {name: round(value, 4) for name, value in result.items()}


def held(found: Counts, truth: np.ndarray) -> np.ndarray:
    """Whether each interval holds the true count, (C,)."""
    return (found.low <= truth) & (truth <= found.high)


def main() -> int:
    """Run what is not there yet, write after each."""
    parser = Parser(__doc__, "counts", draws=3, sizes=[60])
    parser.add_argument("files", type=Path, nargs="*", help="feature sets, .npz with x, y, x_test, y_test")
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 100, 200, 400])
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no further cell after so many")
    options = parser.options()
    cells: dict[str, dict[str, Any]] = json.loads(options.out.read_text())["cells"] if options.out.exists() else {}
    begin = time.perf_counter()
    populations: dict[str, Callable[[], Any]] = {path.stem: partial(population, path) for path in options.files}
    if options.smoke:
        made = draw(HELPING, 1)
        populations["made up"] = lambda: (made.x, made.y)
    for n in options.sizes:
        for name, read in populations.items():
            x, y = read()
            if str(n) in cells.setdefault(name, {}) or time.perf_counter() - begin > 60 * options.minutes:
                continue
            cells[name][str(n)] = cell(x, y, n, options.draws)
            print(name, n, cells[name][str(n)], flush=True)
            write(cells, options)
    return write(cells, options)


def write(cells: dict[str, dict[str, Any]], options: Any) -> int:
    """The result so far; the exit code."""
    least = min((one["held"] for some in cells.values() for one in some.values()), default=0.0)
    return finish("counts", {"draws": options.draws, "cells": cells}, least, TARGET, options)


if __name__ == "__main__":
    sys.exit(main())
