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

COLUMN = ["dataset", "ratio"]  # of a table
PLACE = ["row", *COLUMN]  # of a cell
PUBLISHED = Path(__file__).with_name("published.yaml")
PAPERS_NETWORK = "resnet50, imagenet weights, 224 px, trained whole, with each method's own budget (experiments/paper.yaml)"


@dataclass(frozen=True)
class Spec:
    """What a table shows.

    rows: key -> title, in order. ours: the row that Delta compares with the best other one; None: no Delta.
    value: the frame's column. best: `max` or `min`, which picks its best.
    against: row -> the row that it is compared with, seed by seed; gain: the title of these differences.
    shared: rows that other tables' grids run too; where others are there, a column of these alone is those grids'.
    """

    kind: str
    title: str
    head: str
    rows: Mapping[str, str]
    ours: str | None = None
    value: str = "map"
    best: str = "max"
    against: Mapping[str, str] = field(default_factory=dict)
    gain: str = ""
    shared: Collection[str] = ()


@dataclass(frozen=True)
class Table:
    """What was run, and what was printed, as `collect` puts it together.

    cells: a line for each row and column, under (row, dataset, ratio): mean, sd (NaN for one run) and n over the seeds;
    published; best; of rows that are compared with another against, gain and gain_half.
    facts, more: further columns of text under their titles, a line for each row, before the scores and after them.
    notes: sentences below it; of `spec.ours` by how much it beats the best other row.
    """

    spec: Spec
    cells: pd.DataFrame
    facts: pd.DataFrame
    more: pd.DataFrame
    notes: list[str] = field(default_factory=list)

    @property
    def rows(self) -> list[str]:
        """The rows that have a number, in order."""
        return list(self.cells.index.unique("row"))

    @property
    def columns(self) -> list[tuple[str, float]]:
        """(data set, ratio) of each column, in order."""
        return list(dict.fromkeys(place[1:] for place in self.cells.index))


def spec_of(kind: str) -> list[Spec]:
    """The tables that `kind` (main, photographs, ablation, weighting, cost) consists of."""
    methods = method_titles()
    if kind == "main":
        return [Spec(kind, "mAP (%)", "method", methods, ours="dicap", gain="minus labelled-only")]
    if kind == "photographs":
        rows = methods | {RECOMMENDED: "DiCaP (recommended)"}
        return [Spec(kind, "Frozen features, mAP (%)", "method", rows, ours=RECOMMENDED)]
    if kind == "cost":
        return [
            Spec(kind, "Minutes per epoch", "method", methods, value="minutes_per_epoch", best="min"),
            Spec(kind, "Peak device memory (GiB)", "method", methods, value="peak_memory_gb", best="min"),
        ]
    if kind == "ablation":
        steps = {
            "baseline": "Baseline (labelled only)",
            "dcw": "+ DCW (soft targets)",
            "dcw_hard": "+ DCW (hard labels)",
            "dth": "+ DTH",
            "urrl": "+ URRL",
            "wcl": "+ WCL",
            "fte": "+ FTE",
        }
        # + DTH: the step that differs by thresholds alone.
        before = {"dcw": "baseline", "dcw_hard": "baseline", "dth": "dcw_hard", "urrl": "dth", "wcl": "urrl", "fte": "wcl"}
        shared = ("baseline", "dth", "fte")
        return [Spec(kind, "Ablation, mAP (%)", "step", steps, against=before, gain="over the step before", shared=shared)]
    policies = {
        "uniform": "Uniform",
        "confidence": "Confidence",
        "labeled": "Labeled",
        "estimated": "Estimated (ours)",
        "optimal": "Optimal (true labels)",
    }
    against = dict.fromkeys([row for row in policies if row != "estimated"], "estimated")
    title, shared = "Weighting policies, mAP (%)", ("estimated",)
    return [Spec(kind, title, "policy", policies, against=against, gain="minus Estimated", shared=shared)]


def published_numbers(spec: Spec) -> dict[tuple[str, str, float], float]:
    """The paper's numbers for a table: (row, data set, ratio) -> value."""
    content = YAML(typ="safe", pure=True).load(PUBLISHED.read_text(encoding="utf-8")).get(spec.kind)
    if content is None:
        return {}  # a table that the paper does not have
    return {
        (row, dataset, ratio): value
        for dataset, rows in content[spec.value].items()
        for row, values in rows.items()
        for ratio, value in zip(content["ratios"], values, strict=True)
    }


def collect(
    runs: pd.DataFrame,
    spec: Spec,
    published: Mapping[tuple[str, str, float], float] | None = None,
    facts: pd.DataFrame | None = None,
    more: pd.DataFrame | None = None,
) -> Table:
    """A table from one row per run: columns dataset, row, ratio, seed and `spec.value`, and where known network and steps.

    `published` is as `published_numbers` gives it, `facts` and `more` are the table's.

    Only the data sets and ratios that were run become columns; there, rows known only from the paper are shown too.
    The best goes by what is printed (two decimals): equal means share the place. It needs at least two rows.
    """
    runs = runs[runs["row"].isin(list(spec.rows)) & runs[spec.value].notna()]
    own = runs[~runs["row"].isin(list(spec.shared))]
    columns = sorted(set((own if len(own) else runs)[COLUMN].itertuples(index=False, name=None)))
    index = pd.MultiIndex.from_tuples([(row, *column) for row in spec.rows for column in columns], names=PLACE)
    cells = runs.groupby(PLACE)[spec.value].agg(mean="mean", sd="std", n="count").reindex(index)
    cells["n"] = cells["n"].fillna(0).astype(int)
    cells["published"] = pd.Series([(published or {}).get(place) for place in index], index, dtype=float)
    known = cells["mean"].notna() | cells["published"].notna()
    cells = cells[known.groupby("row").transform("any")].copy()
    printed = cells["mean"].round(2).groupby(COLUMN)
    cells["best"] = (cells["mean"].round(2) == printed.transform(spec.best)) & (printed.transform("count") > 1)

    scores = runs.groupby([*COLUMN, "seed", "row"])[spec.value].mean().unstack("row")
    gains = {row: gain(scores, row, spec.against.get(row, "")) for row in spec.rows}
    cells = cells.join(pd.concat(gains, names=PLACE))
    cells["against"] = cells.index.get_level_values("row").map(dict(spec.against)).where(cells["gain"].notna())
    nothing = pd.DataFrame(index=list(spec.rows))
    table = Table(spec, cells, nothing if facts is None else facts, nothing if more is None else more)
    table.notes.extend(delta for column in columns if (delta := _delta(table, scores, column)))
    if "network" in runs and cells["published"].notna().any():
        table.notes.append(_networks(runs))
    return table


def readings_table(runs: pd.DataFrame, cases: Mapping[str, Mapping[str, Any]]) -> Table:
    """What each open reading of the paper is worth: the cases of a grid, each minus the first one (docs/methods.md 3.13, 3.14).

    Args:
        runs: as `experiments.frame_of` gives them, the cases as rows.
        cases: name -> the settings in which it departs from the first one.
    """
    base, *others = cases
    rows, against = {case: case for case in cases}, dict.fromkeys(others, base)
    changes = {case: f"`{' '.join(f'{key}={str(value).lower()}' for key, value in cases[case].items())}`" for case in others}
    spec = Spec("readings", "Readings, mAP (%)", "reading", rows, against=against, gain=f"minus {base}")
    return collect(runs, spec, facts=pd.DataFrame({"settings": changes}))


def to_markdown(table: Table) -> str:
    """A GitHub table: mean ± deviation, the best bold, the published value in brackets."""
    cells, spec, rows = table.cells, table.spec, table.rows
    titles = pd.Series({row: re.sub(r"([|*_<>`\\])", r"\\\1", spec.rows[row]) for row in rows}, name=spec.head)
    scores: Any = pd.Series([_shown(cell, cells["n"].max()) for _, cell in cells.iterrows()], cells.index)
    differences = cells[["gain", "gain_half"]].to_numpy()
    gains: Any = pd.Series([number(*each, form="+.2f", none="") for each in differences], cells.index)
    columns = [titles, table.facts, *(scores.xs(column, level=COLUMN).rename(_where(column)) for column in table.columns)]
    columns.append(table.more)
    for column in table.columns if cells["gain"].notna().any() else ():
        title = spec.gain + (f" ({_where(column)})" if len(table.columns) > 1 else "")
        columns.append(gains.xs(column, level=COLUMN).rename(title))
    frame = pd.concat([part.reindex(rows).fillna("–") for part in columns], axis=1)
    align = ["left"] * (1 + len(table.facts.columns)) + ["right"] * (len(frame.columns) - 1 - len(table.facts.columns))
    text = frame.to_markdown(index=False, disable_numparse=True, colalign=align)
    return "\n".join([f"**{spec.title}**", "", text, "", _caption(table), *table.notes]) + "\n"


def to_csv(table: Table) -> str:
    """One line a cell: dataset, ratio, row, title, mean, sd, n, best, published.

    Where rows are compared with one another also against, gain, gain_half; and the further columns of text under their titles.
    """
    frame = table.cells.reset_index()
    frame["title"] = frame["row"].map(dict(table.spec.rows))
    names = ["dataset", "ratio", "row", "title", "mean", "sd", "n", "best", "published"]
    names += ["against", "gain", "gain_half"] if frame["gain"].notna().any() else []
    frame = frame[names].join(table.facts, on="row").join(table.more, on="row")
    return frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def number(mean: float, half: float = np.nan, printed: float = np.nan, form: str = ".2f", none: str = "–") -> str:
    """`mean ± half (printed)`, of what is known; `none` where there is no mean."""
    text = none if np.isnan(mean) else f"{mean:{form}}" + ("" if np.isnan(half) else f" ± {half:.2f}")
    return text if np.isnan(printed) else f"{text} ({printed:{form}})"


def gain(scores: pd.DataFrame, row: str, other: str) -> pd.DataFrame:
    """A row minus another over the seeds that both have, by data set and ratio: gain, and half of its 95 % interval.

    The interval is Student's: the differences of a few trainings say little, and it says how little. One seed has none.

    Args:
        scores: the rows as columns, under (dataset, ratio, seed).
    """
    from scipy.stats import t

    unknown = pd.Series(np.nan, scores.index)
    apart = (scores.get(row, unknown) - scores.get(other, unknown)).dropna().groupby(COLUMN)
    return pd.DataFrame({"gain": apart.mean(), "gain_half": t.ppf(0.975, apart.count() - 1) * apart.sem()})


def _delta(table: Table, scores: pd.DataFrame, column: tuple[str, float]) -> str:
    """By how much ours beats the best other row, and the published ours the best published other one; empty without both."""
    here: Any = table.cells.xs(column, level=COLUMN)
    spec, ours = table.spec, table.spec.ours
    if ours is None or ours not in here.index or not here["n"][ours] or not (others := here.drop(ours))["n"].any():
        return ""
    best = others["mean"].agg(f"idx{spec.best}")
    delta, half = gain(scores, ours, best).reindex([column]).to_numpy()[0]
    printed = here["published"][ours] - others["published"].agg(spec.best)
    one, other = (", ".join([spec.rows[row], *map(str, table.facts.loc[row])]) for row in (ours, best))
    return f"Delta, {_where(column)}: {number(delta, half, printed, '+.2f')}, {one}, minus the best other row, {other}."


def _networks(runs: pd.DataFrame) -> str:
    """What the runs of a table were made with, beside what the paper's were."""
    networks = ", ".join(dict.fromkeys(f"{network} ({dataset})" for dataset, network in runs[["dataset", "network"]].values))
    steps = sorted({int(n) for n in runs["steps"] if isinstance(n, int)})
    budget = "" if not steps else f"; {steps[0]:,}" + (f" to {steps[-1]:,}" if steps[-1] > steps[0] else "") + " steps"
    return f"Ours: {networks}{budget}. The paper's: {PAPERS_NETWORK}."


def _shown(cell: pd.Series, most: int) -> str:
    """A cell in Markdown; its number of seeds where others have more."""
    text = number(cell["mean"], cell["sd"]) + ("" if cell["n"] in (0, most) else f" [{cell['n']}]")
    text = f"**{text}**" if cell["best"] else text
    return text if np.isnan(cell["published"]) else f"{text} ({cell['published']:.2f})"


def _caption(table: Table) -> str:
    most = table.cells["n"].max()
    text = "One seed" if most == 1 else f"Mean and sample standard deviation over {most} seeds [or as many as in square brackets]"
    text += "; best bold"
    if table.cells["published"].notna().any():
        text += "; in round brackets the published number"
    return (
        f"{text}. Differences are means over the seeds that both have, from two on with half of the 95 % interval (Student's t)."
    )


def _where(column: tuple[str, float]) -> str:
    return f"{column[0]} {100 * column[1]:.4g} %"
