"""Finished runs and the published numbers side by side, as Markdown and CSV. Pure functions from frames to text."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
from ruamel.yaml import YAML

from dicap.lab.experiments import RECOMMENDED, method_titles

Column = tuple[str, float]  # data set, ratio
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


@dataclass(frozen=True)
class Cell:
    """Mean and sample standard deviation (None for one run) over `n` seeds, published value, rank (1, 2 or None)."""

    mean: float | None = None
    sd: float | None = None
    n: int = 0
    published: float | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Gain:
    """Mean of the seeds' differences, half the width of its 95 % interval (None for one seed), the number of seeds."""

    mean: float
    half: float | None
    n: int


@dataclass(frozen=True)
class Table:
    """Cells by row and column.

    delta: ours minus the best other row, by column, and the same of the published numbers; half: of its 95 % interval, where both
    rows have the same seeds, several. gains: by row and column.
    facts, more: further columns of text, title -> row -> text, before the scores and after them.
    """

    spec: Spec
    columns: list[Column]
    cells: dict[str, dict[Column, Cell]]
    delta: dict[Column, Cell] = field(default_factory=dict)
    best_other: dict[Column, str] = field(default_factory=dict)
    half: dict[Column, float] = field(default_factory=dict)
    gains: dict[str, dict[Column, Gain]] = field(default_factory=dict)
    facts: dict[str, dict[str, str]] = field(default_factory=dict)
    more: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


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
) -> Table:
    """A table from one row per run: columns dataset, row, ratio, seed and `spec.value`, and where known network and steps.

    `published` and `averages` are as `published_numbers` and `published_averages` give them.

    Only the data sets and ratios that were run become columns; there, rows known only from the paper are shown too.
    Ranks go by what is printed (two decimals): equal means share a rank. They need at least two rows.
    """
    published = published or {}
    runs = runs[runs["row"].isin(list(spec.rows)) & runs[spec.value].notna()]
    places = list(zip(runs["dataset"], runs["ratio"], runs["row"], strict=True))
    columns: list[Column] = sorted({place[:2] for place in places if place[2] not in spec.shared} or {p[:2] for p in places})
    runs = runs[pd.MultiIndex.from_frame(runs[["dataset", "ratio"]]).isin(columns)]
    cells: dict[str, dict[Column, Cell]] = {}
    for row in spec.rows:
        line = {column: _cell(runs, row, column, spec, published) for column in columns}
        if any(cell.n or cell.published is not None for cell in line.values()):
            cells[row] = line
    delta, best_other, half = {}, {}, {}
    for column in columns:
        means = {row: line[column].mean for row, line in cells.items()}
        for row, rank in _ranks(means, spec.higher).items():
            cells[row][column] = replace(cells[row][column], rank=rank)
        if spec.ours is not None and spec.ours in cells:
            pick, ours = max if spec.higher else min, cells[spec.ours][column]
            others = {row: line[column] for row, line in cells.items() if row != spec.ours}
            measured = {row: cell.mean for row, cell in others.items() if cell.mean is not None}
            prints = [cell.published for cell in others.values() if cell.published is not None]
            best = pick(measured, key=measured.__getitem__, default=None)
            printed = ours.published - pick(prints) if prints and ours.published is not None else None
            mean = None
            if best is not None and ours.mean is not None:
                best_other[column], mean = best, ours.mean - measured[best]
                gain = _gains(runs, spec.ours, best, [column], spec).get(column)
                if gain is not None and gain.half is not None and gain.n == ours.n == cells[best][column].n:
                    half[column] = gain.half
            delta[column] = Cell(mean=mean, n=ours.n, published=printed)
    gains = {
        row: found for row, other in spec.against.items() if row in cells and (found := _gains(runs, row, other, columns, spec))
    }
    table = Table(spec, columns, cells, delta, best_other, half, gains)
    if spec.average and len(columns) > 1:
        theirs = averages if averages and set(columns) == {key[1:] for key in published} else {}
        table.more.update(_averages(cells, spec, theirs))
    if "network" in runs and any(cell.published is not None for line in cells.values() for cell in line.values()):
        table.notes.append(_networks(runs))
    return table


def to_markdown(table: Table) -> str:
    """A GitHub table: mean ± deviation, best bold, second underlined, the published value in brackets."""
    scores = [f"{dataset} {_percent(ratio)} %" for dataset, ratio in table.columns]
    further = table.more | _gain_columns(table)
    head = [table.spec.head, *table.facts, *scores, *further]
    lines = [_line(head), _line(["---"] * (1 + len(table.facts)) + ["---:"] * (len(head) - 1 - len(table.facts)))]
    most = _most(table)
    for row, cells in table.cells.items():
        values = [_markdown(cells[c], most) for c in table.columns]
        facts, more = ([texts.get(row, "–") for texts in part.values()] for part in (table.facts, further))
        lines.append(_line([re.sub(r"([|*_<>`\\])", r"\\\1", table.spec.rows[row]), *facts, *values, *more]))
    if any(cell.mean is not None or cell.published is not None for cell in table.delta.values()):
        deltas = [_signed(table.delta[c], table.half.get(c)) for c in table.columns]
        lines.append(_line(["Delta", *[""] * len(table.facts), *deltas, *[""] * len(further)]))
    notes = [_caption(table), *table.notes]
    return "\n".join([f"**{table.spec.title}**", "", *lines, "", *notes]) + "\n"


def to_csv(table: Table) -> str:
    """One line a cell: dataset, ratio, row, title, mean, sd, n, rank, published, delta, delta_half.

    Where rows are compared with one another also against, gain, gain_half; and the further columns of text under their titles.
    """
    rows = []
    for row, cells in table.cells.items():
        for column, cell in cells.items():
            ours = row == table.spec.ours and column in table.delta
            line = {"dataset": column[0], "ratio": column[1], "row": row, "title": table.spec.rows[row]}
            line |= {name: getattr(cell, name) for name in ("mean", "sd", "n", "rank", "published")}
            delta, half = (table.delta[column].mean, table.half.get(column)) if ours else (None, None)
            line |= {"delta": delta, "delta_half": half}
            if table.gains:
                found = table.gains.get(row, {}).get(column)
                against = table.spec.against.get(row) if found else None
                line |= {"against": against, "gain": found and found.mean, "gain_half": found and found.half}
            rows.append(line | {title: texts.get(row) for title, texts in (table.facts | table.more).items()})
    frame = pd.DataFrame(rows).astype({"rank": "Int64"}) if rows else pd.DataFrame()
    return frame.to_csv(index=False, float_format="%.6g", lineterminator="\n")


def _runs_of(runs: pd.DataFrame, row: str, column: Column) -> pd.DataFrame:
    dataset, ratio = column
    return runs[(runs["row"] == row) & (runs["dataset"] == dataset) & (runs["ratio"] == ratio)]


def _cell(runs: pd.DataFrame, row: str, column: Column, spec: Spec, published: Mapping) -> Cell:
    values = _runs_of(runs, row, column)[spec.value].to_numpy(dtype=float)
    printed = published.get((row, *column))
    if not len(values):
        return Cell(published=printed)
    sd = float(values.std(ddof=1)) if len(values) > 1 else None
    return Cell(float(values.mean()), sd, len(values), printed)


def _averages(
    cells: Mapping[str, Mapping[Column, Cell]], spec: Spec, theirs: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, str]]:
    """The mean of a row's columns, where it has all of them, and the differences of these means that the paper prints."""
    found = {row: [cell.mean for cell in line.values()] for row, line in cells.items()}
    means = {row: sum(values) / len(values) for row, values in found.items() if None not in values}  # type: ignore[arg-type]
    ours = {"average": means} | {
        "gain": {row: means[row] - means[b] for row, b in spec.before.items() if {row, b} <= means.keys()}
    }
    columns = {}
    for name, title, form in (("average", "Avg.", ".2f"), ("gain", "gain of Avg.", "+.2f")):
        printed = theirs.get(name, {})
        texts = {
            row: (f"{ours[name][row]:{form}}" if row in ours[name] else "–")
            + (f" ({printed[row]:{form}})" if row in printed else "")
            for row in cells
            if row in ours[name] or row in printed
        }
        if texts:
            columns[title] = texts
    return columns


def _networks(runs: pd.DataFrame) -> str:
    """What the runs of a table were made with, beside what the paper's were."""
    networks = ", ".join(dict.fromkeys(f"{network} ({dataset})" for dataset, network in runs[["dataset", "network"]].values))
    steps = sorted({int(n) for n in runs["steps"] if isinstance(n, int)})
    budget = "" if not steps else f"; {steps[0]:,}" + (f" to {steps[-1]:,}" if steps[-1] > steps[0] else "") + " steps"
    return f"Ours: {networks}{budget}. The paper's: {PAPERS_NETWORK}."


def _gains(runs: pd.DataFrame, row: str, other: str, columns: list[Column], spec: Spec) -> dict[Column, Gain]:
    found = {}
    for column in columns:
        ours, theirs = (_runs_of(runs, name, column).set_index("seed")[spec.value] for name in (row, other))
        if (difference := gain(ours, theirs)) is not None:
            found[column] = difference
    return found


def gain(ours: pd.Series, theirs: pd.Series) -> Gain | None:
    """Ours minus theirs over the seeds that both have; None without any.

    Args:
        ours, theirs: a value (mAP in %) per seed, the seeds as index.

    The interval is Student's: the differences of a few trainings say little, and it says how little.
    """
    from scipy.stats import t

    difference = (ours - theirs).dropna().to_numpy(dtype=float)
    n = len(difference)
    if n == 0:
        return None
    half = float(t.ppf(0.975, n - 1) * difference.std(ddof=1) / np.sqrt(n)) if n > 1 else None
    return Gain(float(difference.mean()), half, n)


def _gain_columns(table: Table) -> dict[str, dict[str, str]]:
    """The differences to other rows as further columns of text, title -> row -> text."""
    columns = {}
    for column in table.columns if table.gains else ():
        found = {row: table.gains.get(row, {}).get(column) for row in table.cells}
        where = f" ({column[0]} {_percent(column[1])} %)" if len(table.columns) > 1 else ""
        columns[table.spec.gain + where] = {
            row: "" if g is None else _spread(f"{g.mean:+.2f}", g.half) for row, g in found.items()
        }
    return columns


def _ranks(means: Mapping[str, float | None], higher: bool) -> dict[str, int]:
    found = {row: round(mean, 2) for row, mean in means.items() if mean is not None}
    if len(found) < 2:
        return {}
    order = sorted(set(found.values()), reverse=higher)[:2]
    ranks = {row: order.index(value) + 1 for row, value in found.items() if value in order}
    # Two winners leave no second place.
    return {row: rank for row, rank in ranks.items() if rank == 1 or list(ranks.values()).count(1) == 1}


def _most(table: Table) -> int:
    return max((cell.n for line in table.cells.values() for cell in line.values()), default=0)


def _spread(number: str, half: float | None) -> str:
    return number if half is None else f"{number} ± {half:.2f}"


def _markdown(cell: Cell, most: int) -> str:
    text = "–"
    if cell.mean is not None:
        text = _spread(f"{cell.mean:.2f}", cell.sd) + ("" if cell.n == most else f" [{cell.n}]")
        text = {1: f"**{text}**", 2: f"<u>{text}</u>", None: text}[cell.rank]
    return text if cell.published is None else f"{text} ({cell.published:.2f})"


def _signed(cell: Cell, half: float | None) -> str:
    text = "–" if cell.mean is None else _spread(f"{cell.mean:+.2f}", half)
    return text if cell.published is None else f"{text} ({cell.published:+.2f})"


def _caption(table: Table) -> str:
    most = _most(table)
    parts = ["One seed" if most == 1 else f"Mean and sample standard deviation over {most} seeds"]
    if any(cell.n not in (0, most) for line in table.cells.values() for cell in line.values()):
        parts.append("fewer where a number in square brackets says so")
    text = ", ".join(parts) + "; best bold, second underlined"
    if any(cell.published is not None for line in table.cells.values() for cell in line.values()):
        text += "; in round brackets the published number"
    if table.delta:
        text += f". Delta: {table.spec.rows[table.spec.ours or '']} minus the best other row"
    if table.half:
        text += ", with half of its 95 % interval (Student's t) where both have the same seeds"
    if table.gains:
        text += ". Last columns: mean of the seeds' differences, with half of its 95 % interval (Student's t) from two seeds on"
    return text + "."


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.4g}"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"
