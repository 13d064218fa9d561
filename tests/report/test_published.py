"""published.yaml holds the numbers of docs/methods.md 8, every one, and no other."""

import re
from pathlib import Path

import pandas as pd
import pytest

from dicap.report.budgets import budget_tables
from dicap.report.tables import collect, published_averages, published_numbers, spec_of, to_markdown

METHODS_MD = Path(__file__).parents[2] / "docs" / "methods.md"
DATASETS = {"VOC": "voc2012", "COCO": "coco2014", "NUS": "nuswide", "AWA": "awa2"}
ROWS = {
    "Top-1": "top1",
    "Top-k": "topk",
    "Baseline (labelled only)": "baseline",
    "Ours": "estimated",
    "Optimal (true labels)": "optimal",
}


def specification() -> list[list[str]]:
    """The table lines of section 8, as cells."""
    text = METHODS_MD.read_text(encoding="utf-8")
    section = text[text.index("## 8. ") : text.index("## 9. ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]


def row_key(name: str) -> str:
    step = re.match(r"\+ (\w+)", name)
    return ROWS.get(name) or (step[1].lower() if step else name.lower())


def as_runs(spec) -> pd.DataFrame:
    """The paper's numbers as if they were runs of ours, each row with another budget."""
    frame = pd.DataFrame(
        [
            {"row": row, "dataset": dataset, "ratio": ratio, spec.value: value, "steps": 1000 + 100 * list(spec.rows).index(row)}
            for (row, dataset, ratio), value in published_numbers(spec).items()
        ]
    )
    return frame.assign(seed=1, which="raw", other=None)


def shown(table) -> dict[str, dict[str, tuple[float, float]]]:
    """Cells of the Markdown table that hold two numbers, ours and in brackets the paper's: row -> column -> pair."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in to_markdown(table).splitlines() if line[:1] == "|"]
    found = {}
    for cells in lines[2:]:
        pairs = {
            name: re.fullmatch(r"([+-]?\d+\.\d\d) \(([+-]?\d+\.\d\d)\)", re.sub(r"[*]|</?u>", "", cell))
            for name, cell in zip(lines[0], cells, strict=True)
        }
        found[cells[0]] = {name: (pair[1], pair[2]) for name, pair in pairs.items() if pair}
    return found


def test_fed_with_the_papers_numbers_the_main_table_prints_the_papers():
    (spec,) = spec_of("main")
    made = [(table.columns[0], shown(table)) for table, _ in budget_tables(as_runs(spec), spec, published_numbers(spec))]
    printed, columns = {}, []  # of the specification: (column, row) -> number, Delta included
    for cells in (cells for cells in specification() if len(cells) == 9 and cells[0] != "---"):
        if cells[0] == "method":
            columns = [(DATASETS[c.split()[0]], int(c.split()[1]) / 100) for c in cells[1:]]
        else:
            printed |= {(column, cells[0]): value for column, value in zip(columns, cells[1:], strict=True)}
    found = {(column, row): pairs for column, rows in made for row, pairs in rows.items()}
    assert len(made) == 16 and found.keys() == printed.keys()
    for (column, row), pairs in found.items():
        assert [*pairs.values()] == [(printed[column, row],) * 2], (column, row)


@pytest.mark.parametrize("kind", ["ablation", "weighting"])
def test_fed_with_the_papers_numbers_all_columns_are_the_papers(kind):
    (spec,) = spec_of(kind)
    rows = shown(collect(as_runs(spec), spec, published_numbers(spec), published_averages(spec)))
    by_key = {
        row_key(cells[0]): cells[1:] for cells in specification() if row_key(cells[0]) in spec.rows and len(cells) in (6, 7)
    }
    assert len(by_key) == len(rows) == (6 if kind == "ablation" else 5)
    titles = {title: key for key, title in spec.rows.items()}
    for title, columns in rows.items():
        *cells, mean, gain = [*by_key[titles[title]], *([] if kind == "ablation" else ["-"])]
        numbers = [pair for name, pair in columns.items() if "Avg." not in name]
        assert numbers == [(cell, cell) for cell in cells]
        ours, theirs = columns["Avg."]
        assert theirs == mean and float(ours) == pytest.approx(float(mean), abs=0.0101), (
            "the paper's mean is of unrounded numbers"
        )
        if gain != "-":
            ours, theirs = columns["gain of Avg."]
            assert theirs == gain and float(ours) == pytest.approx(float(gain), abs=0.0101)


def test_fed_with_the_papers_numbers_the_costs_are_the_papers():
    lines = [cells for cells in specification() if len(cells) == 6 and cells[1] in ("D2L", "DiCaP")]
    assert len(lines) == 4
    for spec, theirs in zip(spec_of("cost"), (lines[:2], lines[2:]), strict=True):
        rows = shown(collect(as_runs(spec), spec, published_numbers(spec)))
        for name, *values in (cells[1:] for cells in theirs):
            of_sets = {title.split()[0]: pair for title, pair in rows[name].items()}
            assert {DATASETS[key]: f"{float(v):.2f}" for key, v in zip(DATASETS, values, strict=True)} == {
                title: ours for title, (ours, published) in of_sets.items() if ours == published
            }
