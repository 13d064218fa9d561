"""Grids of experiments: expansion, checks, and the ready-made files."""

from collections import Counter
from pathlib import Path
from typing import get_args

import pytest
import tiny

from dicap.errors import SettingsError
from dicap.lab.experiments import RECOMMENDED, case_mark, frame_of, row_of
from dicap.lab.tables import published_numbers, spec_of
from dicap.settings import Settings
from dicap.settings.checks import unread
from dicap.settings.schema import Calibration
from stages.lab.sweeps.grid import Grid, cells, read_grid

PARAMS = tiny.ROOT / "params.yaml"
PUBLISHED = {row for row, _, _ in published_numbers(*spec_of("main"))}  # the methods of the paper's table
GRIDS = sorted((tiny.ROOT / "experiments").glob("*.yaml"))


def grid(**parts) -> Grid:
    return Grid("A grid", **parts)


def test_cases_times_axes_over_common_settings():
    found = cells(
        grid(settings={"ratio": 0.2}, cases={"a": {"method": "mld"}, "b": {"train.epochs": 3}}, axes={"seed": [1, 2]}), PARAMS
    )
    assert [(c.settings["method"], c.settings["train"]["epochs"], c.settings["ratio"], c.settings["seed"]) for c in found] == [
        ("mld", found[0].settings["train"]["epochs"], 0.2, 1),
        ("mld", found[0].settings["train"]["epochs"], 0.2, 2),
        ("dicap", 3, 0.2, 1),
        ("dicap", 3, 0.2, 2),
    ]
    assert found[2].changes == {"ratio": 0.2, "seed": 1, "train.epochs": 3}
    assert found[0].name.startswith("pictograms-a-r0_2-s1-") and len({c.name for c in found}) == 4


def test_a_case_wins_over_an_axis_and_equal_cells_are_one():
    found = cells(grid(cases={"": {"seed": 7}}, axes={"seed": [1, 2]}), PARAMS)
    assert [c.settings["seed"] for c in found] == [7]


def test_the_name_tells_the_values_of_the_axes_that_vary():
    axes = {"calibration.policy": ["uniform", "optimal"], "train.epochs": [3], "ratio": [0.05, 0.1], "seed": [1]}
    names = [cell.name[:-11] for cell in cells(grid(axes=axes), PARAMS)]
    assert names == [f"pictograms-dicap-{policy}-r{ratio}-s1" for policy in ("uniform", "optimal") for ratio in ("0_05", "0_1")]
    (first, second) = cells(grid(cases={"dth": {"warmup.wcl": False}}, axes={"method": ["dicap", "mld"], "seed": [1]}), PARAMS)
    assert first.name.startswith("pictograms-dth-dicap-r0_05") and second.name.startswith("pictograms-dth-mld-r0_05")


def test_what_the_cases_set_themselves_is_chosen_among_not_overridden():
    plan = grid(cases={"a": {"method": "mld"}, "b": {"method": "asl"}, "c": {"warmup.wcl": False}}, axes={"seed": [1, 2]})

    def methods(**changes):
        return [(cell.settings["method"], cell.settings["seed"]) for cell in cells(plan.override(changes), PARAMS)]

    assert methods(method=["asl"]) == [("asl", 1), ("asl", 2)]
    assert methods(method=["asl", "mld"], seed=[7]) == [("mld", 7), ("asl", 7)]
    assert methods(method=["dicap"]) == [("dicap", 1), ("dicap", 2)], "a case that leaves it as it is has it too"
    with pytest.raises(SettingsError) as caught:
        methods(method=["cap"])
    assert str(caught.value) == "-S method=cap: no cell of the grid has it; the cases set method themselves (asl, dicap, mld)"


def test_every_invalid_cell_is_named_before_anything_runs():
    with pytest.raises(SettingsError) as caught:
        cells(grid(axes={"method": ["dicap", "nope"], "seed": [1], "ratio": [0.05, 7]}), PARAMS)
    lines = str(caught.value).splitlines()
    assert len(lines) >= 3 and sum("method=nope" in line for line in lines) >= 2 and any("ratio=7" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("axes: {sed: [1]}", "sed: not a setting; did you mean seed?"),
        ("axes: {seed: 1}", "axes.seed: found 1; Input should be a valid list"),
        ("cases: {a: mld}", "cases.a: found 'mld'"),
        ("cases: {1: {seed: 1}, '1': {seed: 2}}", "cases.1.[key]: found 1; Input should be a valid string"),
        ("axis: {seed: [1]}", "expected the keys title, table"),
        ("- 1", "expected `key: value` lines"),
        ("a: [", "not readable as YAML"),
        ("table: mine", "table: found 'mine'; Input should be 'main', "),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, text, line):
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_grid(path)
    assert str(path) in str(caught.value) and line in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_the_ready_made_grids_are_valid_and_fill_their_table(path: Path):
    plan = read_grid(path)
    if path.stem == "paper":
        plan = plan.override({"dataset": ["voc2012"], "data_root": ["VOC2012"]})
    found = cells(plan, PARAMS)
    rows = [row_of(plan.table or "", cell.case, cell.settings) for cell in found]
    one_head, both = {"asl", "mld", "drml", "pclp", "bbam"}, {"bce", "top1", "topk", "iat", "iat_matched", "cap", "dicap"}
    expected = {
        "paper": dict.fromkeys(PUBLISHED, 3),
        "main": dict.fromkeys(one_head, 5) | dict.fromkeys(both, 10),
        "plateau": {"asl": 15, "mld": 15},
        "cost": dict.fromkeys(("mld", "topk", "iat", "cap", "pclp", "bbam", "d2l", "dicap"), 1),
        "ablation": dict.fromkeys(spec_of("ablation")[0].rows, 3),
        "weighting": dict.fromkeys(get_args(Calibration.model_fields["policy"].annotation), 3),
        "photographs": dict.fromkeys(PUBLISHED - {"d2l"} | {RECOMMENDED}, 15),
        "readings": dict.fromkeys(plan.cases, 3),
        "stability": {"dicap": 4},
        "miniature": dict.fromkeys(plan.cases, 5),
        "miniature_more": dict.fromkeys(plan.cases, 3),
    }[path.stem]
    assert Counter(rows) == expected
    if path.stem == "readings":
        warned = {key for cell in found for key in unread(Settings.model_validate(cell.settings)) if key in cell.changes}
        assert not warned, "a departure that nothing reads"
    if path.stem == "weighting":
        assert expected.keys() == set(spec_of("weighting")[0].rows)


@pytest.mark.promise("A ready-made grid loses no cell in its table, on any set of the paper", section="Experiments and DVC")
@pytest.mark.parametrize("dataset", ["voc2012", "coco2014", "nuswide", "awa2"])
@pytest.mark.parametrize("name", ["paper", "cost", "ablation", "weighting", "main"])
def test_on_every_set_of_the_paper_no_run_of_a_grid_is_left_out_of_its_table(name, dataset):
    """At other ratios, and by whatever names the images' folder has on another machine."""
    plan = read_grid(tiny.ROOT / "experiments" / f"{name}.yaml").override({"dataset": [dataset], "data_root": ["photos"]})
    rows = {case_mark(cell.settings): row_of(name, cell.case, cell.settings) for cell in cells(plan, PARAMS)}
    ran = cells(plan.override({"data_root": ["elsewhere"], "seed": [8], "ratio": [0.15]}), PARAMS)
    facts = {"name": "", "rev": "", "when": "", "data": "", "metrics": {"map": 50.0, "steps": 1}}
    runs = [facts | {"settings": cell.settings} for cell in ran]
    frame, notes = frame_of(runs, rows)
    assert len(frame) == len(runs) and not notes
