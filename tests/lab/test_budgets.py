"""Tables of budgets: rows by method, head and steps, compared with labelled-only training of the same head and budget."""

from typing import Any

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from dicap.lab.budgets import budget_tables, equal_steps
from dicap.lab.experiments import SOLVED
from dicap.lab.tables import spec_of
from dicap.settings.methods import METHODS

from .test_tables import lines_of

DIGITS = ("digits", 0.05)


def run(name: str, steps: int | str, scores: list[float], **more: Any) -> list[dict[str, Any]]:
    """Runs of seeds 1, 2, ... of a method, with its published head or the one that follows its name."""
    row, _, head = name.partition(" ")
    common = {"dataset": "digits", "ratio": 0.05, "which": "raw", "other": None, "best_on_test": None}
    return [
        common | {"row": row, "head": head or METHODS[row].head, "steps": steps, "seed": seed, "map": score} | more
        for seed, score in enumerate(scores, 1)
    ]


def made(*runs: list[dict[str, Any]], published=None):
    frame = pd.DataFrame([row for part in runs for row in part])
    return list(budget_tables(frame, spec_of("main")[0], published or {}))


def test_a_row_is_compared_with_labelled_only_training_of_its_head_and_budget():
    (table,) = made(
        run("asl", 1547, [60.0, 62.0, 61.0]),
        run("mld", 1547, [70.0, 72.0, 71.0]),
        run("cap", 1548, [63.0, 64.0, 62.0]),
        run("cap ml_decoder", 1548, [70.0, 71.0, 72.0]),
        run("dicap", 1548, [74.0, 75.0, 73.0]),
        run("bbam", 1548, [65.0, 66.0, 67.0]),
        run("topk", 3000, [80.0, 80.0, 80.0]),
        run("bce", SOLVED, [60.0]),
        run("dicap linear", SOLVED, [61.5]),
    )
    gains = table.cells["gain"].dropna().droplevel(["dataset", "ratio"])
    by_steps = {"cap linear 1548": 2.0, "cap ml_decoder 1548": 0.0, "dicap ml_decoder 1548": 3.0}
    assert gains.to_dict() == by_steps | {"dicap linear solved": 1.5}, "neither another head nor another budget"
    assert table.spec.against["dicap linear solved"] == "bce linear solved"
    lines = lines_of(table)
    assert lines[0] == "**mAP (%), digits 5 %**"
    assert "| method | head | steps | digits 5 % | minus labelled-only |" in lines
    assert "| ASL | linear | 1,547 | 61.00 ± 1.00 | |" in lines
    assert "| CAP | linear | 1,548 | 63.00 ± 1.00 | +2.00 ± 2.48 |" in lines  # 3, 2, 1: sd 1, Student's t 4.3027
    assert "| CAP | ML-Decoder | 1,548 | 71.00 ± 1.00 | +0.00 ± 2.48 |" in lines
    assert "| BBAM | its own | 1,548 | 66.00 ± 1.00 | |" in lines
    assert max(len(line) for line in lines if line.startswith("|")) < 130, "readable as it is printed"


def test_the_other_network_and_the_best_epoch_of_rows_whose_authors_print_it_have_columns():
    (table,) = made(run("cap", 10, [60.0, 62.0], other=61.0, best_on_test=63.0), run("asl", 10, [50.0], best_on_test=62.0))
    lines = lines_of(table)
    assert "| method | head | steps | digits 5 % | EMA network | best epoch on test | minus labelled-only |" in lines
    assert any(line.startswith("| CAP | linear | 10 | **61.00 ± 1.41** | 61.00 ± 0.00 | 63.00 ± 0.00 |") for line in lines)
    assert any(line.startswith("| ASL | linear | 10 | 50.00 [1] | – | – |") for line in lines)


def test_the_published_number_stands_beside_the_longest_run_and_delta_too():
    published = {("dicap", *DIGITS): 83.5, ("d2l", *DIGITS): 79.3, ("cap", "voc2012", 0.05): 1.0}
    (table,) = made(run("dicap", 100, [60.0]), run("dicap", 200, [70.0]), run("mld", 200, [66.0]), published=published)
    printed = table.cells["published"].dropna().to_dict()
    assert printed == {("dicap ml_decoder 200", *DIGITS): 83.5, ("d2l linear", *DIGITS): 79.3} and "cap" not in table.rows
    assert table.notes[0].startswith("Delta, digits 5 %: +4.00 (+4.20), DiCaP, ML-Decoder, 200, minus the best other row, MLD")


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_equal_budgets_differ_by_a_twentieth_at_most_either_way(one, other):
    assert equal_steps(one, other) == equal_steps(other, one) == (min(one, other) >= 0.95 * max(one, other))
