"""Which row of a table a finished experiment belongs to: that of the grid's cell whose settings it has.

An experiment is a dict: `name`, `rev`, `when` (sortable), `settings` (resolved, nested), `metrics` (details.json), `data` (what
tells its converted images and labels from others).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dicap.settings.catalogue import NAMED_WEIGHTS
from dicap.settings.methods import METHODS

if TYPE_CHECKING:
    import pandas as pd

# What may differ between the runs of a row: the columns of a table, its seeds, and where the images lie.
ANY = ("dataset", "data_root", "ratio", "seed")
SOLVED = "solved"  # in place of a number of steps
RECOMMENDED = "dicap_recommended"  # its row beside that of DiCaP's published rule
TABLES = ("main", "photographs", "ablation", "weighting", "cost", "readings")
_ROW = ["dataset", "ratio", "row", "head", "steps"]


def case_mark(settings: Mapping[str, Any]) -> str:
    """The same for settings that differ in seed, ratio and data_root alone."""
    return json.dumps({**settings, "seed": 0, "ratio": 1.0, "data_root": ""}, sort_keys=True)


def row_of(kind: str, case: str, settings: Mapping[str, Any]) -> str:
    """The row of table `kind` that a grid's cell fills: its case, in the main table its method (of any head and budget)."""
    if kind == "main" or not case:
        return settings["method"] if settings["iat"]["rule"] == "fixed" else f"{settings['method']}_{settings['iat']['rule']}"
    return case


def method_of(row: str) -> str:
    """The method of a row of the main table."""
    return row.partition("_")[0]


def frame_of(experiments: Sequence[Mapping[str, Any]], rows: Mapping[str, str]) -> tuple[pd.DataFrame, list[str]]:
    """The runs of a table, a line each.

    Columns: dataset, row, head, ratio, seed, map, minutes_per_epoch, peak_memory_gb, rev; steps (a number, SOLVED, or empty
    where nothing is known); network, in words; which, the network that was scored, and other, the mAP of the other one;
    best_on_test.

    Args:
        rows: `case_mark` of a grid's settings -> row. Other runs are left out.

    Of a data set only runs on the latest images and labels count, of a row those with the latest settings, where two grids have
    it with as many steps, and of several runs of one seed the latest. Returns the frame and sentences about what was left out.
    """
    import pandas as pd

    lines, others = [], 0
    for experiment in sorted(experiments, key=lambda one: one["when"] or ""):
        settings, metrics, mark = experiment["settings"], experiment["metrics"], case_mark(experiment["settings"])
        others += mark not in rows
        if mark not in rows or metrics.get("map") is None:
            continue
        lines.append(
            {
                "dataset": settings["dataset"],
                "row": rows[mark],
                "head": settings["head"],
                "ratio": round(float(settings["ratio"]), 6),  # so that equal ratios are equal
                "seed": int(settings["seed"]),
                "map": float(metrics["map"]),
                "steps": SOLVED if metrics.get("steps", "") is None else metrics.get("steps", ""),
                "which": metrics.get("model", ""),
                "other": metrics.get("map_ema" if metrics.get("model") == "raw" else "map_raw"),
                "best_on_test": metrics.get("best_on_test"),
                "network": _network(settings),
                "minutes_per_epoch": metrics.get("minutes_per_epoch"),
                "peak_memory_gb": metrics.get("peak_memory_gb"),
                "rev": experiment["rev"],
                "data": experiment["data"],
                "mark": mark,
            }
        )
    notes = [f"Not shown: {_runs(others)} with settings that no cell of the table's grids has."] if others else []
    if not lines:
        return pd.DataFrame(columns=["dataset", "row", "ratio", "seed", "map"]), notes
    frame = pd.DataFrame(lines)
    for place, what, which in ((["dataset"], "data", "on other images or labels"), (_ROW, "mark", "with other settings")):
        last = frame.groupby(place, sort=False)[what].transform("last")
        for names, part in frame[frame[what] != last].groupby(place, sort=False):
            notes.append(f"{' '.join(map(str, names))}: left out {_runs(len(part))} {which} than the latest.")
        frame = frame[frame[what] == last]
    frame = frame.drop(columns=["data", "mark"]).drop_duplicates([*_ROW, "seed"], keep="last")
    return frame.sort_values(["dataset", "ratio", "row", "seed"], kind="stable").reset_index(drop=True), notes


def method_titles() -> dict[str, str]:
    """Titles of the methods in the paper's order, that of METHODS with DiCaP as the last, and of a rule of ours after its own."""
    titles = {}
    for method in sorted(METHODS, key="dicap".__eq__):  # DiCaP last, the others as they are
        titles[method] = METHODS[method].title
        if method == "iat":
            titles["iat_matched"] = f"{titles[method]}, matched threshold (ours)"
    return titles


def _network(settings: Mapping[str, Any]) -> str:
    """Backbone, weights and size of the images, and whether the backbone was trained."""
    weights = settings["backbone_weights"] if settings["backbone_weights"] in NAMED_WEIGHTS else "own"
    frozen = ", frozen" if settings["train"]["trainable"] == "head" else ""
    return f"{settings['backbone']}, {weights} weights, {settings['image_size']} px{frozen}"


def _runs(number: int) -> str:
    return f"{number} run{'s' if number > 1 else ''}"
