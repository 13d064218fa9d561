"""How often the 95 % interval of a test set holds the true mAP: populations whose mAP is known, a thousand test sets from each.

    python benchmarks/coverage.py [--draws 1000] [--bootstraps 150]

A population is 200,000 images with labels and scores; its own mAP is the truth. An image has a mood that its labels share and
one that its scores share, so that classes are dependent. From each, test sets of 100 to 1,000 images are drawn with
replacement. Four ways to an interval: ours (`dicap.metrics.ranking.map_interval`, the bias-corrected jackknife), and the
percentile, basic and BCa bootstrap (300 resamples, on the
first of the test sets alone: they take a thousand times as long). Ours for
the paired difference of two models is counted beside them. Classes without positives
in a test set count 0, the published rule, in the estimate and in the truth; leaving them out of both scales both alike, so the
shares are those of mAP over testable classes too.

Writes benchmarks/results/coverage.json and docs/figures/coverage.svg and ends with `coverage ratio=R target=0.93`, R: the
smallest share of ours, of mAP and of differences, where at most 6 % of the testable classes have fewer than three positives.
Exits 1 if that is below 0.93, or if a share of mAP there is above 0.97.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from common import Parser, finish
from scipy.stats import norm

from dicap.metrics.ranking import average_precision, jackknife_interval, leave_one_out
from dicap.report import style

TARGET, HIGHEST = 0.93, 0.97
RARE, RARE_SHARE = 3, 0.06  # positives below which a class is rare, and the share of rare classes that is still fine
SIZES = (100, 200, 500, 1000)
RESAMPLES = 300
# Shares of positives of the classes; lowest and highest distance of their scores from the negatives', in standard deviations.
POPULATIONS = {
    "ten common classes": (np.geomspace(0.3, 0.08, 10), (1.0, 3.0)),
    "twenty, well recognised": (np.r_[0.4, np.geomspace(0.1, 0.03, 19)], (2.5, 4.0)),
    "thirty, badly recognised": (np.geomspace(0.15, 0.01, 30), (0.3, 1.0)),
    "forty with a long tail": (np.geomspace(0.3, 0.005, 40), (0.8, 3.0)),
}
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "coverage.svg"


@dataclass(frozen=True)
class Population:
    """Scores of two models and labels, (N, C) each, and both models' true AP of each class, (C,)."""

    scores: np.ndarray
    rival: np.ndarray
    labels: np.ndarray
    aps: np.ndarray
    rival_aps: np.ndarray


def population(share: np.ndarray, distance: tuple[float, float], images: int) -> Population:
    """Draw one. The rival sees the same scores through more noise."""
    rng = np.random.default_rng(0)
    classes = len(share)
    of_labels, of_scores = rng.normal(size=(2, images, 1)) * 0.5
    labels = rng.random((images, classes)) < 1 / (1 + (1 - share) / share * np.exp(-of_labels))
    scores = labels * rng.uniform(*distance, classes) + rng.normal(size=labels.shape) + of_scores
    rival = scores + rng.normal(0, 0.5, scores.shape)
    return Population(scores, rival, labels, average_precision(scores, labels), average_precision(rival, labels))


def resampled(scores: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """mAP in percent of RESAMPLES resamples of the images; classes without a positive in one are left out there: (R,)."""
    n, tested = len(scores), np.flatnonzero(labels.any(0))
    counts = rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.float32)  # (R, N) how often each image occurs
    total, counted = np.zeros(RESAMPLES), np.zeros(RESAMPLES)
    for c in tested:
        order = np.argsort(-scores[:, c])
        weights = counts[:, order]
        hits = weights * labels[order, c]
        seen, true = weights.cumsum(1), hits.cumsum(1)
        total += (hits * true / np.maximum(seen, 1)).sum(1) / np.maximum(true[:, -1], 1)
        counted += true[:, -1] > 0
    return 100 * total / counted * len(tested) / labels.shape[1]


def bootstraps(value: float, left_out: np.ndarray, maps: np.ndarray) -> dict[str, tuple[float, float]]:
    """The three bootstrap intervals from the same resamples."""
    low, high = np.quantile(maps, [0.025, 0.975])
    bias = norm.ppf(np.clip((maps < value).mean(), 1 / RESAMPLES, 1 - 1 / RESAMPLES))
    off = left_out.mean() - left_out
    acceleration = (off**3).sum() / (6 * (off**2).sum() ** 1.5)
    z = bias + norm.ppf([0.025, 0.975])
    corrected = np.quantile(maps, norm.cdf(bias + z / (1 - acceleration * z)))
    return {"percentile": (low, high), "basic": (2 * value - high, 2 * value - low), "BCa": tuple(corrected)}


def cell(world: Population, n: int, draws: int, with_bootstrap: int) -> dict[str, float]:
    """Shares of the test sets of n images whose interval holds the truth, by method, and what else is worth knowing."""
    rng = np.random.default_rng([1, n])
    held: dict[str, list[bool]] = {}
    values, widths, above, rare, empty = [], [], [], [], []
    for i in range(draws):
        rows = rng.integers(0, len(world.labels), n)
        scores, rival, labels = world.scores[rows], world.rival[rows], world.labels[rows]
        tested = labels.any(0)
        truth = 100 * (world.aps * tested).mean()
        value, left_out = leave_one_out(scores, labels)
        low, high = jackknife_interval(value, left_out)  # what `map_interval` gives, which would leave out anew
        found = {"jackknife": low <= truth <= high}
        rival_value, rival_left_out = leave_one_out(rival, labels)
        low_gain, high_gain = jackknife_interval(value - rival_value, left_out - rival_left_out)
        found["paired difference"] = low_gain <= truth - 100 * (world.rival_aps * tested).mean() <= high_gain
        if i < with_bootstrap:
            intervals = bootstraps(value, left_out, resampled(scores, labels, rng))
            found |= {name: a <= truth <= b for name, (a, b) in intervals.items()}
        for name, holds in found.items():
            held.setdefault(name, []).append(bool(holds))
        values.append(value - truth)
        widths.append(high - low)
        above.append(value > high)
        rare.append((labels.sum(0) < RARE)[tested].mean())
        empty.append((~tested).mean())
    shares = {name: round(float(np.mean(found)), 4) for name, found in held.items()}
    more = {"bias": values, "width": widths, "value_above_interval": above, "rare_classes": rare, "empty_classes": empty}
    return shares | {name: round(float(np.mean(found)), 4) for name, found in more.items()}


def draw(rows: list[dict], path: Path) -> None:
    """The shares over the size of the test set, a panel a population."""
    lines = {
        "jackknife": (style.BLUE, "-", "o", "jackknife (ours)"),
        "BCa": (style.GREEN, "-.", "^", "BCa bootstrap"),
        "basic": (style.ORANGE, "--", "D", "basic bootstrap"),
        "percentile": (style.VERMILLION, ":", "s", "percentile bootstrap"),
    }
    with style.house_style():
        figure = style.canvas(4.6, 7.4)
        axes = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
        for ax, name in zip(axes, POPULATIONS, strict=True):
            part = [row for row in rows if row["population"] == name]
            ax.axhspan(93, 97, color=style.GREY, alpha=0.25, linewidth=0)
            for key, (colour, dash, marker, label) in lines.items():
                shown = [(row["images"], 100 * row[key]) for row in part if key in row]
                ax.plot(*zip(*shown, strict=True), color=colour, linestyle=dash, marker=marker, label=label)
            ax.set_title(f"{name} (mAP {part[0]['true_map']:.0f})", loc="left", fontsize=9)
            ax.set_xscale("log")
            sizes = [row["images"] for row in part]
            ax.set_xticks(sizes, [str(size) for size in sizes])
            ax.minorticks_off()
            ax.set_ylim(0, 101)
        for ax in axes[2:]:
            ax.set_xlabel("test images")
        for ax in axes[::2]:
            ax.set_ylabel("intervals that hold, %")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=4)
        style.save(figure, path)


def main() -> int:
    options = Parser(__doc__, "coverage", draws=4, bootstraps=2, images=2000)
    options.add_argument("--draws", type=int, default=1000, help="test sets of a size from a population")
    options.add_argument("--bootstraps", type=int, default=150, help="of these, how many also get the bootstraps")
    options.add_argument("--images", type=int, default=200_000, help="of a population")
    options = options.options()
    sizes, figure = SIZES, FIGURE
    if options.smoke:
        sizes, figure = SIZES[:2], options.out.with_name("coverage.svg")
    rows, begin = [], time.perf_counter()
    for name, (share, distance) in POPULATIONS.items():
        world = population(share, distance, options.images)
        for n in sizes:
            row = {"population": name, "true_map": round(100 * float(world.aps.mean()), 2), "images": n}
            rows.append(row | cell(world, n, options.draws, options.bootstraps))
            shares = ", ".join(f"{key} {100 * rows[-1][key]:.1f}" for key in list(rows[-1])[3:8])
            print(f"{name}, {n} images: {shares} (rare classes {100 * rows[-1]['rare_classes']:.0f} %)", flush=True)
    fine = [row for row in rows if row["rare_classes"] <= RARE_SHARE]
    lowest = min(min(row["jackknife"], row["paired difference"]) for row in fine)
    highest = max(row["jackknife"] for row in fine)
    draw(rows, figure)
    result = {
        "draws": options.draws,
        "draws_with_bootstrap": options.bootstraps,
        "resamples": RESAMPLES,
        "minutes": round((time.perf_counter() - begin) / 60, 1),
        "highest": highest,
        "cells": rows,
    }
    return finish("coverage", result, lowest, TARGET, options, quick=highest <= HIGHEST)


if __name__ == "__main__":
    sys.exit(main())
