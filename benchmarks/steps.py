"""What each step of the recommended rule is worth: test mAP with it, minus without it.

    python benchmarks/steps.py FILE.npz ... [--ratios 0.05 0.1] [--seeds 1]

Files, rows and folds are those of `sets.py`. A variant leaves one step out, or has the plain thing in its place:

    roots, one length       features standardised only; roots not brought to one length
    penalty                 0.01 in place of cross-validation
    neighbours              the teacher on rows as they are
    weights, square         pseudo-labels of weight 1; weights that are the chance itself
    quota                   positive from 0.5 on
    pairs of folds          a fold's student on labels of teachers that saw the fold
    choice, margin          the student always used; used whenever the loss falls at all

`map` is of the heads that were chosen, `student` of the student. What is finished is kept, as in `sets.py`.
Ends with `steps ratio=R target=0.2`, R: mAP of the rule minus that of the labels alone, mean over the rows.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from common import Parser, finish
from numpy.typing import NDArray
from populations import HELPING, Population, draw
from sets import FIRST, chance_gap, populations

from dicap.calibration import ranks
from dicap.calibration.quota import Quota, quota_of
from dicap.frozen import recommended
from dicap.frozen.crossfit import Pseudo, solve_labelled, solve_students, solve_teachers
from dicap.frozen.folds import assign_folds, n_folds
from dicap.frozen.loss_weight import choose_loss_weight
from dicap.frozen.recommended import PART, chosen, labels_and_weights, labels_of_students, teacher_rows
from dicap.frozen.solver import Solution, rotate
from dicap.metrics.ranking import mean_average_precision
from dicap.randomness import torch_seed
from dicap.scaling import scaling_of


@contextmanager
def replaced(owner: Any, **values: Any) -> Iterator[None]:
    """Other attributes of a module or class for a while."""
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


def from_one_half(p: NDArray, y: NDArray) -> Quota:
    """In the quota's place: positive from 0.5 on, else negative."""
    half = np.full(p.shape[1], 0.5)
    return quota_of(p, y)._replace(tau_pos=half, tau_neg=np.nextafter(half, 0))


class Cell:
    """One population: the rule and its variants."""

    def __init__(self, p: Population, seed: int) -> None:
        self.p, self.y, self.n = p, p.y[: p.labelled], len(p.x)
        self.open = recommended.entries_of_unlabelled(self.n, self.y)
        self.fold = assign_folds(self.y, min(5, p.labelled), torch_seed(seed, "folds", 0) % 2**32)
        self.map: dict[str, float] = {}
        self.student: dict[str, float] = {}
        self.chance_gap: dict[str, float] = {}

    def scale(self, kind: str = "root", one_length: bool = True, loss_weight: float | None = None) -> None:
        """Steps 1 and 2."""
        scaling = scaling_of(self.p.x, kind)  # type: ignore[arg-type]

        def apply(x: NDArray) -> NDArray:
            if one_length:
                return scaling.apply(x)
            return ((np.copysign(np.sqrt(np.abs(x)), x) - scaling.mean) / scaling.scale).astype(np.float32)

        self.rows, self.test = apply(self.p.x), apply(self.p.x_test)
        self.axes = rotate(self.rows)
        labelled = self.rows[: len(self.y)]
        self.loss_weight = loss_weight or choose_loss_weight(labelled, self.y, self.fold)
        self.own = solve_labelled(labelled, self.y, self.fold, loss_weight=self.loss_weight)

    def teach(self, neighbours: int = 10) -> None:
        """Step 3."""
        near = teacher_rows(self.rows, min(neighbours, self.n - 1), self.axes)
        self.teachers = solve_teachers(near, self.y, self.fold, loss_weight=self.loss_weight)

    def learn(self, name: str, made: list[Pseudo] | None = None, **instead: Any) -> Solution:
        """Steps 4 to 7, with other functions of `recommended` in place of its own; keeps the mAP of a variant."""
        if made is None:
            with replaced(recommended, **instead):
                made = [labels.pseudo for labels in labels_of_students(self.teachers, self.y, self.open)]
        students = solve_students(self.axes, self.y, self.fold, made, loss_weight=self.loss_weight, pseudo_weight=PART)
        self.student[name] = self.score(students)
        self.keep(name, students)
        return students

    def keep(self, name: str, students: Solution) -> None:
        """Step 7."""
        heads, _ = chosen(self.own, students, self.rows[: len(self.y)], self.y, self.fold)
        self.map[name], self.chance_gap[name] = self.score(heads), self.gap(heads)

    def score(self, heads: Solution) -> float:
        """Test mAP."""
        return round(mean_average_precision(heads.logits(self.test)[-1], self.p.y_test), 3)

    def gap(self, heads: Solution) -> float:
        """How far the stated chance is off, over deciles of the test decisions."""
        return round(chance_gap(heads, self.rows, self.test, self.p, self.fold, ranks.MANY), 5)

    def run(self) -> dict[str, Any]:
        """Everything."""
        self.scale()
        self.teach()
        students = self.learn("rule")
        self.map["labelled only"], self.map["choice"] = self.score(self.own), self.student["rule"]
        with replaced(recommended, CLEAR=0.0):
            self.keep("margin", students)
        self.learn("square", CHANCE_POWER=1)
        known = [np.where((self.fold == k)[:, None], np.float32(-1), self.y) for k in range(n_folds(self.fold))]
        seen = self.teachers.scores()
        self.learn("pairs of folds", [labels_and_weights(seen, y, self.open).pseudo for y in (*known, self.y)])
        made = [labels.pseudo for labels in labels_of_students(self.teachers, self.y, self.open)]
        self.learn("weights", [part._replace(weight=np.float32(part.weight > 0)) for part in made])
        self.learn("quota", quota_of=from_one_half)
        self.teach(neighbours=0)
        self.learn("neighbours")
        for name, kind in {
            "penalty": {"loss_weight": 0.01}, "roots": {"kind": "standard"}, "one length": {"one_length": False},
        }.items():  # fmt: skip
            self.scale(**kind)
            self.teach()
            self.learn(name)
        return {"map": self.map, "student": self.student, "chance_gap": self.chance_gap}


def table(cells: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By variant: mean over the rows (a set at a ratio) of mAP with the step minus without it, heads taken and students."""
    found: dict[str, dict[str, float]] = {}
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, some in cells.items():
        for key, cell in some.items():
            rows.setdefault(f"{name} {key.split()[0]}", []).append(cell)
    for variant in dict.fromkeys(variant for some in rows.values() for each in some for variant in each["map"]):
        for kind in ("map", "student"):
            worth = [
                np.mean([each[kind]["rule"] - each[kind].get(variant, each[kind]["rule"]) for each in some])
                for some in rows.values()
            ]
            found.setdefault(variant, {"rows": len(rows)})[kind] = round(float(np.mean(worth)), 3)
        gaps = [each["chance_gap"][variant] for some in rows.values() for each in some if variant in each["chance_gap"]]
        if gaps:
            found[variant]["chance_gap"] = round(float(np.mean(gaps)), 4)
    return found


def main() -> int:
    """Run what is not there yet, write after each."""
    parser = Parser(__doc__, "steps", seeds=[1])
    parser.add_argument("files", type=Path, nargs="*", help="feature sets, .npz with x, y, x_test, y_test")
    parser.add_argument("--ratios", type=float, nargs="+", default=[0.05, 0.1])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    options = parser.options()
    kept = json.loads(options.out.read_text()) if options.out.exists() else {}
    cells: dict[str, dict[str, Any]] = kept.get("cells", {})
    todo = [(path.stem, k, *v) for path in options.files for k, v in populations(path, options.ratios, options.seeds).items()]
    if options.smoke:
        todo = [("helping", f"0.1 {FIRST}", draw(HELPING, FIRST), FIRST)]
    for name, key, population, seed in todo:
        if key not in cells.setdefault(name, {}):
            cells[name][key] = Cell(population, seed).run()
            print(name, key, cells[name][key]["map"], flush=True)
            write(cells, options)
    return write(cells, options)


def write(cells: dict[str, dict[str, Any]], options: Any) -> int:
    """The result so far; the exit code."""
    found = table(cells)
    return finish("steps", {"table": found, "cells": cells}, found["labelled only"]["map"], 0.2, options)


if __name__ == "__main__":
    sys.exit(main())
