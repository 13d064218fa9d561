"""published.yaml holds every number that the paper printed, and its own differences follow from them."""

import re

import pandas as pd
import pytest

from dicap.lab.budgets import budget_tables
from dicap.lab.tables import published_numbers, spec_of, to_markdown
from dicap.settings.methods import METHODS

RATIOS = (0.05, 0.1, 0.15, 0.2)
DELTA = {  # the last row of Table 1: DiCaP minus the best other method
    "voc2012": ("+4.27", "+3.86", "+2.15", "+1.32"),
    "coco2014": ("+0.77", "+0.49", "+0.43", "+0.20"),
    "nuswide": ("+1.51", "+0.99", "+0.69", "+0.97"),
    "awa2": ("+1.66", "+0.91", "+1.54", "+1.72"),
}


@pytest.mark.parametrize(
    ("kind", "sums"),
    [
        ("main", [(192, 12274.23)]),
        ("ablation", [(24, 1423.65)]),
        ("weighting", [(20, 1449.6)]),
        ("cost", [(8, 125.14), (8, 66.05)]),
    ],
)
def test_every_number_is_there(kind, sums):
    """Sums of the numbers as printed, which a slip of the pen would change."""
    found = [published_numbers(spec).values() for spec in spec_of(kind)]
    assert [(len(numbers), round(sum(numbers), 2)) for numbers in found] == sums


def test_fed_with_the_papers_numbers_the_main_table_prints_the_papers_differences():
    """The paper's numbers as if they were runs of ours, each row with another budget."""
    (spec,) = spec_of("main")
    published = published_numbers(spec)
    lines = [
        (row, METHODS[row].head, dataset, ratio, value, 1000 + 100 * list(spec.rows).index(row))
        for (row, dataset, ratio), value in published.items()
    ]
    runs = pd.DataFrame(lines, columns=["row", "head", "dataset", "ratio", "map", "steps"])
    runs = runs.assign(seed=1, which="raw", other=None, best_on_test=None)
    made = {table.columns[0]: table for table in budget_tables(runs, spec, published)}
    assert made.keys() == {(dataset, ratio) for dataset in DELTA for ratio in RATIOS}
    for (dataset, ratio), table in made.items():
        rows = re.findall(r"(?m)^\|.* \**(\d+\.\d\d)\** \((\d+\.\d\d)\)", to_markdown(table))
        assert len(rows) == 12 and all(ours == theirs for ours, theirs in rows)
        delta = DELTA[dataset][RATIOS.index(ratio)]
        assert table.notes[0].startswith(f"Delta, {dataset} {100 * ratio:.4g} %: {delta} ({delta}), DiCaP")
