"""published.yaml holds the numbers of docs/methods.md 8, every one, and no other."""

import re
from pathlib import Path

import pytest

from dicap.report.tables import published_numbers, spec_of

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


def test_main_table():
    expected, columns = {}, []
    for cells in specification():
        if cells[0] == "method" and re.match(r"\w+ \d+$", cells[1]):
            columns = [(DATASETS[c.split()[0]], int(c.split()[1]) / 100) for c in cells[1:]]
        elif len(cells) == 9 and columns and cells[0] not in ("Delta", "---"):
            expected |= {(row_key(cells[0]), *column): float(v) for column, v in zip(columns, cells[1:], strict=True)}
    assert len(expected) == 12 * 16
    assert published_numbers(spec_of("main")[0]) == expected


def test_the_papers_own_sums_hold():
    """Delta of Table 1 (ours minus the best other) and the mean column of Table 2, as printed."""
    numbers = published_numbers(spec_of("main")[0])
    printed = {
        "voc2012": [4.27, 3.86, 2.15, 1.32],
        "coco2014": [0.77, 0.49, 0.43, 0.20],
        "nuswide": [1.51, 0.99, 0.69, 0.97],
        "awa2": [1.66, 0.91, 1.54, 1.72],
    }
    for dataset, deltas in printed.items():
        for ratio, delta in zip((0.05, 0.1, 0.15, 0.2), deltas, strict=True):
            best = max(value for (row, *where), value in numbers.items() if where == [dataset, ratio] and row != "dicap")
            assert numbers["dicap", dataset, ratio] - best == pytest.approx(delta, abs=1e-9)
    ladder = published_numbers(spec_of("ablation")[0])
    means = {"baseline": 55.82, "dcw": 58.73, "dth": 59.91, "urrl": 60.25, "wcl": 60.40, "fte": 60.81}
    for row, mean in means.items():
        values = [value for (name, *_), value in ladder.items() if name == row]
        assert sum(values) / 4 == pytest.approx(mean, abs=0.0051)


def test_ablation():
    expected = {}
    for cells in specification():
        if cells[0].startswith("Baseline") or cells[0].startswith("+ "):
            columns = [("coco2014", 0.05), ("coco2014", 0.1), ("nuswide", 0.05), ("nuswide", 0.1)]
            expected |= {(row_key(cells[0]), *column): float(v) for column, v in zip(columns, cells[1:5], strict=True)}
    assert len(expected) == 24
    assert published_numbers(spec_of("ablation")[0]) == expected


def test_weighting():
    policies = {"Uniform", "Confidence", "Labeled", "Ours", "Optimal (true labels)"}
    expected = {}
    for cells in specification():
        if cells[0] in policies:
            for ratio, value in zip((0.05, 0.1, 0.15, 0.2), cells[1:5], strict=True):
                expected[row_key(cells[0]), "coco2014", ratio] = float(value)
    assert len(expected) == 20
    assert published_numbers(spec_of("weighting")[0]) == expected


def test_cost():
    lines = [cells for cells in specification() if len(cells) == 6 and cells[1] in ("D2L", "DiCaP")]
    assert len(lines) == 4
    for spec, (theirs, ours) in zip(spec_of("cost"), (lines[:2], lines[2:]), strict=True):
        expected = {}
        for row, cells in (("d2l", theirs), ("dicap", ours)):
            for dataset, value in zip(DATASETS.values(), cells[2:], strict=True):
                expected[row, dataset, 0.05] = float(value)
        assert published_numbers(spec) == expected
