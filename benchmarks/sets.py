"""The recommended rule on many feature sets and on made-up populations that mislead: ever below the labelled rows' own head?

    python benchmarks/sets.py FILE.npz ... [--ratios 0.05 0.1] [--seeds 1 2 3 4 5] [--draws 100]

A FILE holds features x (n, D) and labels y (n, C) of training rows, and x_test, y_test. At least 40 rows are labelled, by the
order of the published split; where two ratios come to the same rows the smaller is run. On the same folds, test mAP of

    regression      logistic regression on standardised features, C by cross-validation
    labelled_only   the same on `features: root`, and so are those below
    cap, cap_tenth  CAP's quota, pseudo-labelled rows of weight 0.3 or 0.1
    always          the student of `pseudo_weight` 0.5
    auto            `pseudo_weight: auto`: as much of that student as the labelled rows gain from out of fold

with paired differences and 95 % t intervals over seeds, the choice, seconds, and how far the stated chance lies from the share
that is right, over deciles of the test decisions (`fixed`: with the same weight of the logistic curve whatever the labels).
Then --draws made-up populations of the kinds of `populations.MISLEADING` in turn, and as many of `ORDINARY`, from seed 20000 on:
how often each ends more than 0.3 below `labelled_only`. What is finished is kept: the same --out goes on where an earlier run
stopped.

Ends with `sets ratio=R target=0.95`, R: share of the misleading draws in which `auto` is not more than 0.3 below `labelled_only`.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from common import Parser, finish, gap_of_deciles, paired
from populations import HELPING, MISLEADING, ORDINARY, Population, draw

from dicap.calibration import ranks
from dicap.calibration.quota import quota_of
from dicap.data.split import labelled_order
from dicap.frozen.crossfit import scores_out_of_fold, solve_students, solve_teachers
from dicap.frozen.folds import assign_folds, fold_weights
from dicap.frozen.loss_weight import choose_loss_weight
from dicap.frozen.recommended import PART, chosen, labels_of_students, teacher_rows
from dicap.frozen.solver import Solution, rotate, solve
from dicap.metrics.ranking import mean_average_precision
from dicap.randomness import torch_seed
from dicap.scaling import scaling_of

TARGET, BELOW, LEAST, FIRST = 0.95, 0.3, 40, 20000
DRAWN = {"misleading": MISLEADING, "ordinary": ORDINARY}
NAMES = ("regression", "labelled_only", "cap", "cap_tenth", "always", "auto")


def cell(p: Population, seed: int, *, peers: bool = True) -> dict[str, Any]:
    """mAP, seconds, choice and stated chance on one population."""
    y, n = p.y[: p.labelled], p.labelled
    fold = assign_folds(y, min(5, n), torch_seed(seed, "folds", 0) % 2**32)
    found: dict[str, Any] = {"map": {}, "seconds": {}}
    clock = [time.perf_counter()]

    def took(name: str) -> None:
        now = time.perf_counter()
        found["seconds"][name], clock[0] = round(now - clock[0], 2), now

    def keep(name: str, head: Solution, rows: np.ndarray) -> None:
        found["map"][name] = mean_average_precision(head.logits(rows)[-1], p.y_test)

    scaling = scaling_of(p.x, "root")
    rows, test = scaling.apply(p.x), scaling.apply(p.x_test)
    loss_weight = choose_loss_weight(rows[:n], y, fold)
    took("penalty")
    weight = np.concatenate([fold_weights(fold), np.ones((1, n, 1), np.float32)]) * (y >= 0)
    own = solve(rows[:n], y, weight=weight, loss_weight=loss_weight)
    took("labelled_only")
    open_entries = np.r_[y < 0, np.ones((len(rows) - n, y.shape[1]), bool)]
    axes = rotate(rows)
    near = teacher_rows(rows, min(10, len(rows) - 1), axes)
    teachers = solve_teachers(near, y, fold, loss_weight=loss_weight)
    pseudo = [labels.pseudo for labels in labels_of_students(teachers, y, open_entries)]
    took("teachers")
    students = solve_students(axes, y, fold, pseudo, loss_weight=loss_weight, pseudo_weight=PART)
    took("students")
    heads, choice = chosen(own, students, rows[:n], y, fold)
    took("choice")
    for name, some in {"labelled_only": own, "always": students, "auto": heads}.items():
        keep(name, some, test)
    found["choice"] = choice._asdict()
    for key, many in {"chance_gap": ranks.MANY, "chance_gap_fixed": 0}.items():
        found[key] = chance_gap(heads, rows, test, p, fold, many)
    if peers:
        standard = scaling_of(p.x, "standard")
        plain = standard.apply(p.x[:n])
        keep("regression", solve(plain, y, loss_weight=choose_loss_weight(plain, y, fold)), standard.apply(p.x_test))
        scores = own.logits(rows[n:])[-1]
        label = quota_of(scores, y).labels(scores)
        target, last = np.concatenate([y, label == 1])[None], own
        last = Solution(*(part[-1:] for part in own[:4]), iterations=0)
        for name, share in {"cap_tenth": 0.1, "cap": 0.3}.items():
            weights = np.concatenate([np.ones_like(y), share * (label >= 0)]).astype(np.float32)[None]
            last = solve(axes, target.astype(np.float32), weight=weights, loss_weight=loss_weight, start=last)
            keep(name, last, test)
    return found


def chance_gap(heads: Solution, rows: np.ndarray, test: np.ndarray, p: Population, fold: np.ndarray, many: int) -> float:
    """Mean over deciles of the test decisions of |mean stated chance - share right|."""
    before, ranks.MANY = ranks.MANY, many
    try:
        knots, rate = ranks.curve_by_rank(scores_out_of_fold(heads, rows, fold)[0], p.y[: p.labelled])
    finally:
        ranks.MANY = before
    present = np.interp(heads.logits(test)[-1].astype(np.float64), knots, rate)
    return gap_of_deciles(np.maximum(present, 1 - present), (present > 0.5) == (p.y_test > 0))


def populations(path: Path, ratios: list[float], seeds: list[int]) -> dict[str, tuple[Population, int]]:
    """Of a file, by `ratio seed`: the population and its seed."""
    with np.load(path) as values:
        x, y, x_test, y_test = (values[name].astype(np.float32) for name in ("x", "y", "x_test", "y_test"))
    found = {}
    for seed in seeds:
        order = labelled_order(len(x), seed)
        for labelled, ratio in {max(LEAST, int(ratio * len(x))): ratio for ratio in sorted(ratios, reverse=True)}.items():
            rows = np.concatenate([order[:labelled], np.sort(order[labelled:])])
            found[f"{ratio:g} {seed}"] = (Population(x[rows], y[rows], x_test, y_test, labelled), seed)
    return found


def table(cells: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Of the cells of a set: by ratio the means and paired differences."""
    found = {}
    for ratio in sorted({key.split()[0] for key in cells}):
        some = [value for key, value in cells.items() if key.split()[0] == ratio]
        maps = {name: [each["map"][name] for each in some] for name in NAMES}
        found[ratio] = {
            "seeds": len(some),
            "map": {name: round(float(np.mean(values)), 2) for name, values in maps.items()},
            "auto_against": {name: paired(maps["auto"], maps[name]) for name in NAMES if name != "auto"},
            "always_against_labelled_only": paired(maps["always"], maps["labelled_only"]),
            "share": [each["choice"]["share"] for each in some],
            "evidence": [round(each["choice"]["evidence"], 2) for each in some],
        }
        for name in ("chance_gap", "chance_gap_fixed"):
            found[ratio][name] = round(float(np.mean([each[name] for each in some])), 4)
    return found


def draws(cells: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """How often each of the two rules ends more than BELOW under the labelled rows' own head, over all kinds and by kind."""
    found: dict[str, Any] = {"draws": len(cells)}
    for kind in ("", *sorted({key.rsplit(" ", 1)[0] for key in cells})):
        some = [cell["map"] for key, cell in cells.items() if key.startswith(kind)]
        into = found.setdefault(kind, {}) if kind else found
        for name in ("always", "auto"):
            gains = np.array([each[name] - each["labelled_only"] for each in some])
            below, mean, worst = (gains < -BELOW).mean(), gains.mean(), gains.min()
            into[name] = {"below": round(float(below), 4), "mean": round(float(mean), 3), "worst": round(float(worst), 2)}
    return found


def main() -> int:
    """Run what is not there yet, write after each."""
    parser = Parser(__doc__, "sets", draws=4, seeds=[1])
    parser.add_argument("files", type=Path, nargs="*", help="feature sets, .npz with x, y, x_test, y_test")
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.05, 0.1])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--draws", type=int, default=100)
    options = parser.options()
    kept = json.loads(options.out.read_text()) if options.out.exists() else {}
    cells: dict[str, dict[str, Any]] = kept.get("cells", {})
    todo = [
        (path.stem, key, *value)
        for path in options.files
        for key, value in populations(path, options.ratios, options.seeds).items()
    ]
    todo = sorted(todo, key=lambda each: each[3])  # seed by seed
    for name, kinds in DRAWN.items():
        drawn = [(kinds[i % len(kinds)], FIRST + i) for i in range(options.draws)]
        todo += [(name, f"{kind} {seed}", draw(kind, seed), seed) for kind, seed in drawn]
    if options.smoke:
        todo.append(("helping", f"0.1 {FIRST}", draw(HELPING, FIRST), FIRST))
    for name, key, population, seed in todo:
        if key in cells.setdefault(name, {}):
            continue
        cells[name][key] = found = cell(population, seed, peers=name not in DRAWN)
        print(name, key, {a: round(b, 2) for a, b in found["map"].items()}, found["seconds"], flush=True)
        if name in DRAWN:  # there are many
            cells[name][key] = {"map": {a: round(b, 3) for a, b in found["map"].items()}, "share": found["choice"]["share"]}
        write(cells, options)
    return write(cells, options)


def write(cells: dict[str, dict[str, Any]], options: Any) -> int:
    """The result so far; the exit code."""
    drawn = {name: draws(cells[name]) if cells.get(name) else None for name in DRAWN}
    tables = {name: table(some) for name, some in cells.items() if name not in DRAWN and some}
    result = {"part": PART, "table": tables, **drawn, "cells": cells}
    misled = drawn["misleading"]
    return finish("sets", result, 1 - misled["auto"]["below"] if misled else 1.0, TARGET, options)


if __name__ == "__main__":
    sys.exit(main())
