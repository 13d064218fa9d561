"""Grids of experiments: expansion, checks, and the ready-made files."""

import json
from pathlib import Path

import pytest
import tiny

from dicap.catalogue import METHODS
from dicap.errors import SettingsError
from dicap.grid import Grid, cells, read_grid
from dicap.report.experiments import FREE, LADDER, RECOMMENDED, row_of
from dicap.settings.resolve import flatten

PARAMS = tiny.ROOT / "params.yaml"
GRIDS = sorted((tiny.ROOT / "experiments").glob("*.yaml"))


def grid(**parts) -> Grid:
    return Grid("A grid", None, parts.get("settings", {}), parts.get("cases", {"": {}}), parts.get("axes", {}))


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


def test_the_name_tells_settings_apart():
    one, two = (cells(grid(settings={"train.epochs": n}), PARAMS)[0].name for n in (3, 4))
    assert one != two
    assert one == cells(grid(settings={"train.epochs": 3}), PARAMS)[0].name


def test_the_name_tells_the_values_of_the_axes_that_vary():
    axes = {"calibration.policy": ["uniform", "optimal"], "train.epochs": [3], "ratio": [0.05, 0.1], "seed": [1]}
    names = [cell.name[:-7] for cell in cells(grid(axes=axes), PARAMS)]
    assert names == [f"pictograms-dicap-{policy}-r{ratio}-s1" for policy in ("uniform", "optimal") for ratio in ("0_05", "0_1")]
    (first, second) = cells(grid(cases={"dth": {"warmup.wcl": False}}, axes={"method": ["dicap", "mld"], "seed": [1]}), PARAMS)
    assert first.name.startswith("pictograms-dth-dicap-r0_05") and second.name.startswith("pictograms-dth-mld-r0_05")


def test_override_replaces_an_axis_and_sets_anything_else():
    plan = grid(axes={"seed": [1, 2, 3], "ratio": [0.05]}).override({"seed": [5], "train.epochs": [2], "method": ["mld", "bce"]})
    assert plan.axes == {"seed": [5], "ratio": [0.05], "method": ["mld", "bce"]} and plan.settings == {"train.epochs": 2}


def test_every_invalid_cell_is_named_before_anything_runs():
    with pytest.raises(SettingsError) as caught:
        cells(grid(axes={"method": ["dicap", "nope"], "seed": [1], "ratio": [0.05, 7]}), PARAMS)
    lines = str(caught.value).splitlines()
    assert len(lines) >= 3 and sum("method=nope" in line for line in lines) >= 2 and any("ratio=7" in line for line in lines)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("axes: {sed: [1]}", "sed: not a setting; did you mean seed?"),
        ("axes: {seed: 1}", "axes.seed: found 1, expected a list"),
        ("axes: {seed: []}", "axes.seed: found []"),
        ("cases: {a: mld}", "cases.a: found 'mld'"),
        ("cases: [a]", "cases: found ['a'], expected a mapping"),
        ("axis: {seed: [1]}", "axis: unknown key"),
        ("- 1", "expected the keys"),
        ("a: [", "not a YAML file"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, text, line):
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_grid(path)
    assert str(path) in str(caught.value) and line in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SettingsError, match=r"nowhere\.yaml: cannot be read"):
        read_grid(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_the_ready_made_grids_are_valid_and_fill_their_table(path: Path):
    plan = read_grid(path)
    found = cells(plan, PARAMS)
    rows = [row_of(plan.table, cell.settings) for cell in found] if plan.table else []
    assert None not in rows
    if path.stem == "main":
        assert set(rows) == set(METHODS) - {"d2l"}
    if path.stem == "ablation":
        assert set(rows) == {"baseline", *LADDER}
    if path.stem == "photographs":
        assert set(rows) == set(METHODS) - {"d2l"} | {RECOMMENDED}
    if path.stem == "weighting":
        assert set(rows) == {"uniform", "confidence", "labeled", "estimated", "optimal"}
    if path.stem == "estimators":
        hard = {"bins 0.2", "beta 0.2", "class_rank 0.2", "class_rank 0.1", "class_rank 0.05", "optimal"}
        assert set(rows) == hard | {"soft bins 0.2", "soft beta 0.2", "soft class_rank 0.2"}
    assert json.dumps([cell.changes for cell in found])


def test_methods_on_own_photographs_share_all_that_their_table_wants_shared():
    plan = read_grid(tiny.ROOT / "experiments" / "photographs.yaml").override({"dataset": ["table"], "data_root": ["photos"]})
    found = cells(plan, PARAMS)
    assert len(found) == 12 * 3 * 5 and plan.table == "photographs"
    shared = {tuple((key, repr(v)) for key, v in flatten(cell.settings) if key not in FREE["photographs"]) for cell in found}
    assert len(shared) == 1
    assert {cell.settings["train"]["trainable"] for cell in found} == {"head"}
    heads = {cell.settings["method"]: cell.settings["head"] for cell in found}
    assert heads.pop("mld") == "ml_decoder" and set(heads.values()) == {"linear", "own"}


def test_the_last_step_of_the_ladder_is_a_cell_of_the_main_table():
    main, ablation = (cells(read_grid(tiny.ROOT / "experiments" / f"{name}.yaml"), PARAMS) for name in ("main", "ablation"))
    last = [cell.settings for cell in ablation if cell.changes.get("method") is None and row_of("main", cell.settings)]
    assert len(last) == 3 and all(any(cell.settings == one for cell in main) for one in last)
