"""Finished runs and the published numbers side by side, as Markdown and CSV. Pure functions from frames to text."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ruamel.yaml import YAML

from dicap.lab.experiments import RECOMMENDED, method_titles

Column = tuple[str, float]  # data set, ratio
PLACE = ["row", "dataset", "ratio"]  # of a cell
PUBLISHED = Path(__file__).with_name("published.yaml")
PAPERS_NETWORK = "resnet50, imagenet weights, 224 px, trained whole, with each method's own budget (experiments/paper.yaml)"


@dataclass(frozen=True)
class Spec:
    """What a table shows.

    rows: key -> title, in order. ours: the row that Delta compares with the best other one; None: no Delta.
    value: the frame's column. higher: whether more is better.
    against: row -> the row that it is compared with, seed by seed; gain: the title of these differences.
    shared: rows that other tables' grids run too; where others are there, a column of these alone is those grids'.
    average: whether a column has the mean of the others; before: row -> the row that the paper's gain of that mean is over.
    """

    kind: str
    title: str
    head: str
    rows: Mapping[str, str]
    ours: str | None = None
    value: str = "map"
    higher: bool = True
    against: Mapping[str, str] = field(default_factory=dict)
    gain: str = ""
    shared: Collection[str] = ()
    average: bool = False
    before: Mapping[str, str] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The function that picks the best value."""
        return "max" if self.higher else "min"


@dataclass(frozen=True)
class Table:
    """What was run, and what was printed, as `collect` puts it together.

    cells: a line for each row and column, under (row, dataset, ratio): mean, sd (NaN for one run) and n over the seeds;
    published; best; of rows that are compared with another against, gain and gain_half.
    facts, more: further columns of text, title -> row -> text, before the scores and after them.
    notes: sentences below it; of `spec.ours` by how much it beats the best other row.
    """

    spec: Spec
    columns: list[Column]
    cells: pd.DataFrame
    facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    more: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def rows(self) -> list[str]:
        """The rows that have a number, in order."""
        return list(self.cells.index.unique("row"))


def spec_of(kind: str) -> list[Spec]:
    """The tables that `kind` (main, photographs, ablation, weighting, cost) consists of."""
    methods = method_titles()
    with_ours = methods | {RECOMMENDED: "DiCaP (recommended)"}
    steps = {
        "baseline": "Baseline (labelled only)",
        "dcw": "+ DCW (soft targets)",
        "dcw_hard": "+ DCW (hard labels)",
        "dth": "+ DTH",
        "urrl": "+ URRL",
        "wcl": "+ WCL",
        "fte": "+ FTE",
    }
    before = {"dcw": "baseline", "dth": "dcw", "urrl": "dth", "wcl": "urrl", "fte": "wcl"}
    against = before | {"dcw_hard": "baseline", "dth": "dcw_hard"}  # the step that differs by thresholds alone
    policies = {
        "uniform": "Uniform",
        "confidence": "Confidence",
        "labeled": "Labeled",
        "estimated": "Estimated (ours)",
        "optimal": "Optimal (true labels)",
    }
    return {
        "main": [Spec("main", "mAP (%)", "method", methods, ours="dicap", gain="minus labelled-only")],
        "photographs": [Spec("photographs", "Frozen features, mAP (%)", "method", with_ours, ours=RECOMMENDED)],
        "ablation": [
            Spec(
                "ablation",
                "Ablation, mAP (%)",
                "step",
                steps,
                against=against,
                gain="over the step before",
                shared=("baseline", "dth", "fte"),
                average=True,
                before=before,
            )
        ],
        "weighting": [
            Spec(
                "weighting",
                "Weighting policies, mAP (%)",
                "policy",
                policies,
                against={row: "estimated" for row in policies if row != "estimated"},
                gain="minus Estimated",
                shared=("estimated",),
                average=True,
            )
        ],
        "cost": [
            Spec("cost", "Minutes per epoch", "method", methods, value="minutes_per_epoch", higher=False),
            Spec("cost", "Peak device memory (GiB)", "method", methods, value="peak_memory_gb", higher=False),
        ],
    }[kind]


def published_numbers(spec: Spec) -> dict[tuple[str, str, float], float]:
    """The paper's numbers for a table: (row, data set, ratio) -> value."""
    content = YAML(typ="safe", pure=True).load(PUBLISHED.read_text(encoding="utf-8")).get(spec.kind)
    if content is None:
        return {}  # a table that the paper does not have
    if spec.kind == "cost":
        rows = content[spec.value].items()
        return {(row, name, 0.05): v for row, values in rows for name, v in zip(content["datasets"], values, strict=True)}
    return {
        (row, dataset, ratio): value
        for dataset, rows in content[spec.value].items()
        for row, values in rows.items()
        for ratio, value in zip(content["ratios"], values, strict=True)
    }


def published_averages(spec: Spec) -> dict[str, dict[str, float]]:
    """The paper's mean over its columns by row, as `average`, and by how much it beats the row before, as `gain`."""
    content = YAML(typ="safe", pure=True).load(PUBLISHED.read_text(encoding="utf-8")).get(spec.kind) or {}
    return {name: content.get(name, {}) for name in ("average", "gain")}


def collect(
    runs: pd.DataFrame,
    spec: Spec,
    published: Mapping[tuple[str, str, float], float] | None = None,
    averages: Mapping[str, Mapping[str, float]] | None = None,
    facts: Mapping[str, Mapping[str, str]] | None = None,
) -> Table:
    """A table from one row per run: columns dataset, row, ratio, seed and `spec.value`, and where known network and steps.

    `published` and `averages` are as `published_numbers` and `published_averages` give them, `facts` are the table's.

    Only the data sets and ratios that were run become columns; there, rows known only from the paper are shown too.
    The best goes by what is printed (two decimals): equal means share the place. It needs at least two rows.
    """
    published = published or {}
    runs = runs[runs["row"].isin(list(spec.rows)) & runs[spec.value].notna()]
    own = runs[~runs["row"].isin(list(spec.shared))]
    columns = _columns(own) or _columns(runs)
    places = [(row, *column) for row in spec.rows for column in columns]
    index = pd.MultiIndex.from_tuples(places, names=PLACE) if places else pd.MultiIndex.from_arrays([[]] * 3, names=PLACE)
    cells = runs.groupby(PLACE)[spec.value].agg(mean="mean", sd="std", n="count").reindex(index)
    cells["n"] = cells["n"].fillna(0).astype(int)
    cells["published"] = pd.Series([published.get(place) for place in places], index, dtype=float)
    known = (cells["n"] > 0) | cells["published"].notna()
    cells = cells[known.groupby(level="row").transform("any")].copy()
    printed = cells["mean"].round(2).groupby(level=PLACE[1:])
    cells["best"] = (cells["mean"].round(2) == printed.transform(spec.best)) & (printed.transform("count") > 1)

    table = Table(spec, columns, cells, facts or {})
    _compare_rows(table, runs)
    table.notes.extend(delta for column in columns if (delta := _delta(table, runs, column)))
    if spec.average and len(columns) > 1:
        theirs = averages if averages and set(columns) == {place[1:] for place in published} else {}
        table.more.update(_averages(table, theirs))
    if "network" in runs and cells["published"].notna().any():
        table.notes.append(_networks(runs))
    return table


def to_markdown(table: Table) -> str:
    """A GitHub table: mean ± deviation, the best bold, the published value in brackets."""
    cells: Any = table.cells
    most, further = cells["n"].max(), table.more | _gain_columns(table)
    head = [table.spec.head, *table.facts, *(f"{dataset} {_percent(ratio)} %" for dataset, ratio in table.columns), *further]
    lines = [head, ["---"] * (1 + len(table.facts)) + ["---:"] * (len(head) - 1 - len(table.facts))]
    for row in table.rows:
        values = [_shown(cells.loc[(row, *column)], most) for column in table.columns]
        facts, more = ([texts.get(row, "–") for texts in part.values()] for part in (table.facts, further))
        lines.append([re.sub(r"([|*_<>`\\])", r"\\\1", table.spec.rows[row]), *facts, *values, *more])
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([f"**{table.spec.title}**", "", *rows, "", _caption(table), *table.notes]) + "\n"


def to_csv(table: Table) -> str:
    """One line a cell: dataset, ratio, row, title, mean, sd, n, best, published.

    Where rows are compared with one another also against, gain, gain_half; and the further columns of text under their titles.
    """
    frame = table.cells.reset_index()
    frame.insert(2, "title", frame["row"].map(dict(table.spec.rows)))
    names = ["dataset", "ratio", "row", "title", "mean", "sd", "n", "best", "published"]
    names += ["against", "gain", "gain_half"] if frame["gain"].notna().any() else []
    frame = frame[names].assign(
        **{title: frame["row"].map(dict(texts)) for title, texts in [*table.facts.items(), *table.more.items()]}
    )
    return frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def number(mean: float, half: float = np.nan, printed: float = np.nan, form: str = ".2f") -> str:
    """`mean ± half (printed)`, of what is known."""
    text = "–" if np.isnan(mean) else f"{mean:{form}}" + ("" if np.isnan(half) else f" ± {half:.2f}")
    return text if np.isnan(printed) else f"{text} ({printed:{form}})"


def gain(ours: pd.Series, theirs: pd.Series) -> tuple[float, float, int]:
    """Ours minus theirs over the seeds that both have: mean, half of its 95 % interval, number of seeds; NaN where none is known.

    Args:
        ours, theirs: a value (mAP in %) per seed, the seeds as index.

    The interval is Student's: the differences of a few trainings say little, and it says how little.
    """
    from scipy.stats import t

    difference = (ours - theirs).dropna().to_numpy(dtype=float)
    n = len(difference)
    if n < 2:
        return (float(difference[0]) if n else np.nan), np.nan, n
    return float(difference.mean()), float(t.ppf(0.975, n - 1) * difference.std(ddof=1) / np.sqrt(n)), n


def _columns(runs: pd.DataFrame) -> list[Column]:
    return sorted(set(zip(runs["dataset"], runs["ratio"], strict=True)))


def _seeds(runs: pd.DataFrame, row: str, column: Column, spec: Spec) -> pd.Series:
    """The values of a cell by seed."""
    here = (runs["row"] == row) & (runs["dataset"] == column[0]) & (runs["ratio"] == column[1])
    return runs[here].set_index("seed")[spec.value]


def _delta(table: Table, runs: pd.DataFrame, column: Column) -> str:
    """By how much ours beats the best other row, and the published ours the best published other one; empty without both."""
    here: Any = table.cells.xs(column, level=PLACE[1:])
    spec, ours = table.spec, table.spec.ours
    if ours is None or ours not in here.index or not here["n"][ours] or not (others := here.drop(ours))["n"].any():
        return ""
    best = others["mean"].agg(f"idx{spec.best}")
    delta, half, _ = gain(*(_seeds(runs, row, column, spec) for row in (ours, best)))
    printed = here["published"][ours] - others["published"].agg(spec.best)
    one, other = (", ".join([spec.rows[row], *(texts[row] for texts in table.facts.values())]) for row in (ours, best))
    where = f"{column[0]} {_percent(column[1])} %"
    return f"Delta, {where}: {number(delta, half, printed, '+.2f')}, {one}, minus the best other row, {other}."


def _compare_rows(table: Table, runs: pd.DataFrame) -> None:
    """Each row of `spec.against` with its other one, seed by seed."""
    cells, spec, gain_of = table.cells, table.spec, {}
    for row, column in ((row, column) for row in spec.against if row in table.rows for column in table.columns):
        seeds = (_seeds(runs, name, column, spec) for name in (row, spec.against[row]))
        gain_of[row, *column] = gain(*seeds)[:2]
    gains = [gain_of.get(place, (np.nan, np.nan)) for place in cells.index]
    cells[["gain", "gain_half"]] = np.array(gains, float).reshape(-1, 2)
    cells["against"] = cells.index.get_level_values("row").map(dict(spec.against)).where(cells["gain"].notna())


def _averages(table: Table, theirs: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, str]]:
    """The mean of a row's columns, where it has all of them, and the differences of these means that the paper prints."""
    means = table.cells["mean"].groupby(level="row").agg(lambda values: values.mean(skipna=False)).to_dict()
    gains = {row: means[row] - means.get(before, np.nan) for row, before in table.spec.before.items() if row in means}
    columns = {}
    for name, title, ours, form in (("average", "Avg.", means, ".2f"), ("gain", "gain of Avg.", gains, "+.2f")):
        printed = theirs.get(name, {})
        texts = {row: number(ours.get(row, np.nan), printed=printed.get(row, np.nan), form=form) for row in table.rows}
        if texts := {row: text for row, text in texts.items() if text != "–"}:
            columns[title] = texts
    return columns


def _networks(runs: pd.DataFrame) -> str:
    """What the runs of a table were made with, beside what the paper's were."""
    networks = ", ".join(dict.fromkeys(f"{network} ({dataset})" for dataset, network in runs[["dataset", "network"]].values))
    steps = sorted({int(n) for n in runs["steps"] if isinstance(n, int)})
    budget = "" if not steps else f"; {steps[0]:,}" + (f" to {steps[-1]:,}" if steps[-1] > steps[0] else "") + " steps"
    return f"Ours: {networks}{budget}. The paper's: {PAPERS_NETWORK}."


def _gain_columns(table: Table) -> dict[str, dict[str, str]]:
    """The differences to other rows as further columns of text, title -> row -> text."""
    columns = {}
    for column in table.columns if table.cells["gain"].notna().any() else ():
        here: Any = table.cells.xs(column, level=PLACE[1:])
        where = f" ({column[0]} {_percent(column[1])} %)" if len(table.columns) > 1 else ""
        columns[table.spec.gain + where] = {
            row: "" if np.isnan(mean) else number(mean, half, form="+.2f")
            for row, mean, half in zip(here.index, here["gain"], here["gain_half"], strict=True)
        }
    return columns


def _shown(cell: pd.Series, most: int) -> str:
    """A cell in Markdown; its number of seeds where others have more."""
    text = number(cell["mean"], cell["sd"]) + ("" if cell["n"] in (0, most) else f" [{cell['n']}]")
    text = f"**{text}**" if cell["best"] else text
    return text if np.isnan(cell["published"]) else f"{text} ({cell['published']:.2f})"


def _caption(table: Table) -> str:
    cells, most = table.cells, table.cells["n"].max()
    text = "One seed" if most == 1 else f"Mean and sample standard deviation over {most} seeds [or as many as in square brackets]"
    text += "; best bold"
    if cells["published"].notna().any():
        text += "; in round brackets the published number"
    return (
        f"{text}. Differences are means over the seeds that both have, from two on with half of the 95 % interval (Student's t)."
    )


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.4g}"
