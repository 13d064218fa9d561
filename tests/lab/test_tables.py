"""Tables of made-up finished runs whose mean, deviation, best and Delta are known by hand."""

import csv
import io
import re
from statistics import mean, stdev

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dicap.lab import tables
from dicap.lab.tables import collect, published_numbers, spec_of

MAIN, POLICIES, LADDER = (spec_of(kind)[0] for kind in ("main", "weighting", "ablation"))
VOC = ("voc2012", 0.05)


def runs(**scores) -> pd.DataFrame:
    """Runs on VOC 2012 at 5 %: method=[mAP of seed 1, 2, ...]."""
    lines = [(*VOC, row, seed, value) for row, values in scores.items() for seed, value in enumerate(values, 1)]
    return pd.DataFrame(lines, columns=["dataset", "ratio", "row", "seed", "map"])


def lines_of(table) -> list[str]:
    """The lines of the Markdown, tables without what fills their columns."""
    return re.sub(" {2,}", " ", tables.to_markdown(table)).splitlines()


def written(table) -> dict[str, dict[str, str]]:
    """The lines of the CSV file by their rows."""
    return {row["row"]: row for row in csv.DictReader(io.StringIO(tables.to_csv(table)))}


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from(["mld", "cap", "topk", "dicap"]), st.lists(st.integers(500, 999), min_size=1, max_size=4)))
def test_a_table_against_pythons_own_statistics(scores):
    scores = {row: [value / 10 for value in values] for row, values in scores.items()}
    lines = written(collect(runs(**scores), MAIN))
    assert lines.keys() == scores.keys()
    means = {row: round(mean(values), 2) for row, values in scores.items()}
    for row, line in lines.items():
        assert float(line["mean"]) == pytest.approx(mean(scores[row]), rel=1e-5) and int(line["n"]) == len(scores[row])
        assert (line["sd"] == "") == (line["n"] == "1")
        assert not line["sd"] or float(line["sd"]) == pytest.approx(stdev(scores[row]), rel=1e-4, abs=1e-6)
        assert (line["best"] == "True") == (len(scores) > 1 and means[row] == max(means.values()))


def test_markdown_and_delta_against_the_best_other_of_each_side():
    frame = runs(mld=[70.0, 72.0, 74.0], cap=[75.0, 75.0, 75.0], dicap=[80.0, 82.0, 81.0])
    lines = lines_of(collect(frame, MAIN, published_numbers(MAIN)))
    assert {
        "| method | voc2012 5 % |",
        "| MLD | 72.00 ± 2.00 (74.18) |",
        "| CAP | 75.00 ± 0.00 (75.90) |",
        "| DiCaP | **81.00 ± 1.00** (83.53) |",
        "| D2L | – (79.26) |",
        # 5, 7, 6: sd 1, Student's t 4.3027
        "Delta, voc2012 5 %: +6.00 ± 2.48 (+4.27), DiCaP, minus the best other row, CAP.",
    } <= set(lines)
    assert "over 3 seeds" in lines[-2]


def test_fewer_seeds_are_marked_and_one_run_has_no_deviation_and_is_no_best():
    text = "\n".join(lines_of(collect(runs(mld=[70.0, 72.0], dicap=[80.0]), MAIN)))
    assert "Delta, voc2012 5 %: +10.00, DiCaP, minus the best other row, MLD." in text, "of the seed that both have"
    assert "| DiCaP | **80.00 [1]** |" in text and "square brackets" in text
    text = "\n".join(lines_of(collect(runs(dicap=[80.0]), MAIN)))
    assert "| DiCaP | 80.00 |" in text and "One seed" in text and "Delta" not in text


def test_rows_are_compared_seed_by_seed():
    table = collect(runs(uniform=[70.0, 71.0, 72.0], confidence=[60.0], estimated=[72.0, 74.0, 73.0]), POLICIES)
    lines = lines_of(table)
    assert "| policy | voc2012 5 % | minus Estimated |" in lines
    assert "| Uniform | 71.00 ± 1.00 | -2.00 ± 2.48 |" in lines  # -2, -3, -1: sd 1, Student's t of two degrees of freedom 4.3027
    assert "| Confidence | 60.00 [1] | -12.00 |" in lines, "one pair has no interval"
    assert "| Estimated (ours) | **73.00 ± 1.00** | |" in lines
    assert "Student" in lines[-1]
    gains = {row: [line[name] for name in ("against", "gain", "gain_half")] for row, line in written(table).items()}
    assert gains["uniform"] == ["estimated", "-2", "2.48414"] and gains["estimated"] == ["", "", ""]


def test_every_step_is_compared_with_the_one_before():
    frame = runs(baseline=[60.0, 61.0], dcw_hard=[61.0, 62.0], dth=[64.0, 65.0], fte=[70.0, 70.0])
    elsewhere = runs(baseline=[40.0, 41.0], fte=[50.0, 51.0]).assign(dataset="awa2")  # cells of the main table's grid
    table = collect(pd.concat([frame, elsewhere]), LADDER)
    assert table.columns == [VOC] and collect(elsewhere, LADDER).columns == [("awa2", 0.05)]
    begun = collect(pd.concat([frame, runs(dcw_hard=[61.0]).assign(dataset="nuswide")]), LADDER)
    assert begun.columns == [("nuswide", 0.05), VOC], "a sweep that has begun"
    gains = table.cells["gain"].dropna().droplevel(["dataset", "ratio"])
    assert gains.to_dict() == {"dcw_hard": 1.0, "dth": 3.0}, "the step before fte was not run"


def test_beside_the_papers_numbers_stands_what_ours_were_made_with():
    network = "test_resnet, random weights, 32 px, frozen"
    frame = runs(mld=[70.0], dicap=[80.0]).assign(network=network, steps=[100, 1200])
    _, note = collect(frame, MAIN, published_numbers(MAIN)).notes
    assert note.startswith(f"Ours: {network} (voc2012); 100 to 1,200 steps. The paper's: resnet50, imagenet weights, 224 px")
    assert len(collect(frame, MAIN).notes) == 1, "where there are none of the paper's, nothing is said of it"
