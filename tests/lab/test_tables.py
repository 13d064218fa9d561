"""Tables of made-up finished runs whose mean, deviation, bold, underline and Delta are known by hand."""

import csv
import io

import pandas as pd
import pytest

from dicap.lab import tables
from dicap.lab.tables import Cell, Gain, collect, published_numbers, spec_of

MAIN = spec_of("main")[0]


def runs(**scores) -> pd.DataFrame:
    """Runs on VOC 2012 at 5 %: method=[mAP of seed 1, 2, ...]."""
    return pd.DataFrame(
        [
            {"dataset": "voc2012", "row": row, "ratio": 0.05, "seed": seed, "map": value}
            for row, values in scores.items()
            for seed, value in enumerate(values, 1)
        ]
    )


@pytest.fixture
def table():
    frame = runs(mld=[70.0, 72.0, 74.0], cap=[75.0, 75.0, 75.0], dicap=[80.0, 82.0, 81.0])
    return collect(frame, MAIN, published_numbers(MAIN))


VOC = ("voc2012", 0.05)


def test_mean_deviation_rank_and_published(table):
    assert table.columns == [VOC]
    assert table.cells["mld"][VOC] == Cell(72.0, 2.0, 3, 74.18, None)
    assert table.cells["cap"][VOC] == Cell(75.0, 0.0, 3, 75.90, 2)
    assert table.cells["dicap"][VOC] == Cell(81.0, 1.0, 3, 83.53, 1)
    assert table.cells["d2l"][VOC] == Cell(None, None, 0, 79.26, None), "known from the paper alone"


def test_markdown_and_delta_against_the_best_other_of_each_side(table):
    assert table.delta[VOC].mean == pytest.approx(6.0) and table.delta[VOC].published == pytest.approx(4.27)
    assert table.best_other == {VOC: "cap"}
    lines = tables.to_markdown(table).splitlines()
    assert {
        "| method | voc2012 5 % |",
        "| MLD | 72.00 ± 2.00 (74.18) |",
        "| CAP | <u>75.00 ± 0.00</u> (75.90) |",
        "| DiCaP | **81.00 ± 1.00** (83.53) |",
        "| D2L | – (79.26) |",
        "| Delta | +6.00 ± 2.48 (+4.27) |",  # 5, 7, 6: sd 1, Student's t 4.3027
    } <= set(lines)
    assert "over 3 seeds" in lines[-1]


def test_csv(table):
    rows = {row["row"]: row for row in csv.DictReader(io.StringIO(tables.to_csv(table)))}
    assert rows["dicap"]["mean"] == "81"
    assert (rows["dicap"]["rank"], rows["cap"]["rank"], rows["mld"]["rank"]) == ("1", "2", "")
    assert (rows["dicap"]["delta"], rows["dicap"]["delta_half"]) == ("6", "2.48414")
    assert rows["d2l"]["mean"] == "" and rows["d2l"]["published"] == "79.26"
    assert rows["cap"]["delta"] == ""


def test_fewer_seeds_are_marked_and_one_run_has_no_deviation_and_no_rank():
    text = tables.to_markdown(collect(runs(mld=[70.0, 72.0], dicap=[80.0]), MAIN))
    assert "| Delta | +9.00 |" in text
    assert "| DiCaP | **80.00 [1]** |" in text and "square brackets" in text
    table = collect(runs(dicap=[80.0]), MAIN)
    assert table.cells == {"dicap": {VOC: Cell(80.0, None, 1, None, None)}}
    text = tables.to_markdown(table)
    assert "| DiCaP | 80.00 |" in text and "One seed" in text and "Delta |" not in text


def test_equal_means_share_the_first_place_and_leave_no_second():
    table = collect(runs(mld=[70.0], cap=[80.001], dicap=[80.004]), MAIN)
    assert [table.cells[row][VOC].rank for row in ("mld", "cap", "dicap")] == [None, 1, 1]


def test_less_is_better_where_it_is():
    spec = spec_of("cost")[0]
    frame = runs(d2l=[50.0], dicap=[60.0]).assign(minutes_per_epoch=[2.5, 1.5])
    table = collect(frame, spec, published_numbers(spec))
    assert table.cells["dicap"][VOC] == Cell(1.5, None, 1, 1.47, 1)
    assert table.cells["d2l"][VOC] == Cell(2.5, None, 1, 1.85, 2)


def test_columns_are_what_was_run_and_other_data_has_no_published_number():
    frame = runs(mld=[70.0], dicap=[80.0])
    frame = pd.concat([frame, frame.assign(dataset="digits", ratio=0.1), frame.assign(ratio=0.3)])
    table = collect(frame, MAIN, published_numbers(MAIN))
    assert table.columns == [("digits", 0.1), ("voc2012", 0.05), ("voc2012", 0.3)]
    assert table.cells["dicap"]["digits", 0.1].published is None
    assert table.cells["dicap"]["voc2012", 0.3].published is None


def test_no_run_at_all():
    table = collect(pd.DataFrame(columns=["dataset", "row", "ratio", "seed", "map"]), MAIN)
    assert table.columns == [] and table.cells == {}
    assert tables.to_csv(table).strip() == ""


POLICIES = spec_of("weighting")[0]


def test_rows_are_compared_seed_by_seed():
    frame = runs(uniform=[70.0, 71.0, 72.0], confidence=[60.0], estimated=[72.0, 74.0, 73.0])
    table = collect(frame, POLICIES)
    found = table.gains["uniform"][VOC]  # -2, -3, -1: sd 1, Student's t of two degrees of freedom 4.3027
    assert (found.mean, found.n) == (pytest.approx(-2.0), 3)
    assert found.half == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert table.gains["confidence"][VOC] == Gain(pytest.approx(-12.0), None, 1), "one pair has no interval"
    assert "estimated" not in table.gains and "optimal" not in table.gains
    lines = tables.to_markdown(table).splitlines()
    assert "| policy | voc2012 5 % | minus Estimated |" in lines
    assert "| Uniform | <u>71.00 ± 1.00</u> | -2.00 ± 2.48 |" in lines
    assert "| Confidence | 60.00 [1] | -12.00 |" in lines
    assert "| Estimated (ours) | **73.00 ± 1.00** |  |" in lines
    assert "Student" in lines[-1]
    written = {row["row"]: row for row in csv.DictReader(io.StringIO(tables.to_csv(table)))}
    assert (written["uniform"]["against"], written["uniform"]["gain"], written["uniform"]["gain_half"]) == (
        "estimated",
        "-2",
        "2.48414",
    )
    assert written["estimated"]["against"] == written["estimated"]["gain"] == ""


def test_every_step_is_compared_with_the_one_before():
    frame = runs(baseline=[60.0, 61.0], dcw_hard=[61.0, 62.0], dth=[64.0, 65.0], fte=[70.0, 70.0])
    elsewhere = runs(baseline=[40.0, 41.0], fte=[50.0, 51.0]).assign(dataset="awa2")  # cells of the main table's grid
    table = collect(pd.concat([frame, elsewhere]), spec_of("ablation")[0])
    assert table.columns == [VOC] and collect(elsewhere, spec_of("ablation")[0]).columns == [("awa2", 0.05)]
    begun = collect(pd.concat([frame, runs(dcw_hard=[61.0]).assign(dataset="nuswide")]), spec_of("ablation")[0])
    assert begun.columns == [("nuswide", 0.05), VOC], "a sweep that has begun"
    gains = table.gains
    assert {row: g[VOC].mean for row, g in gains.items()} == {"dcw_hard": 1.0, "dth": 3.0}, "the step before fte was not run"


def test_beside_the_papers_numbers_stands_what_ours_were_made_with():
    network = "test_resnet, random weights, 32 px, frozen"
    frame = runs(mld=[70.0], dicap=[80.0]).assign(network=network, steps=[100, 1200])
    (note,) = collect(frame, MAIN, published_numbers(MAIN)).notes
    assert note.startswith(f"Ours: {network} (voc2012); 100 to 1,200 steps. The paper's: resnet50, imagenet weights, 224 px")
    assert not collect(frame, MAIN).notes, "where there are none of the paper's, nothing is said of it"


def test_a_mean_of_the_columns_needs_all_of_them():
    frame = pd.concat([runs(uniform=[60.0], optimal=[70.0]), runs(uniform=[70.0], estimated=[71.0]).assign(ratio=0.1)])
    assert collect(frame, POLICIES).more == {"Avg.": {"uniform": "65.00"}}
