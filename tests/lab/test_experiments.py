"""Which row a run belongs to: that of the cell whose settings it has; and which of its runs count."""

from typing import Any

import pytest
import tiny
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dicap.lab.experiments import SOLVED, case_mark, frame_of, row_of
from dicap.settings import load_settings


@pytest.fixture(scope="module")
def defaults(tmp_path_factory) -> dict[str, Any]:
    params = tmp_path_factory.mktemp("project") / "params.yaml"
    params.write_text("dataset: digits\nratio: 0.05\nseed: 1\nmethod: dicap\n")
    return load_settings(params).model_dump()


def changed(settings: dict[str, Any], **values) -> dict[str, Any]:
    """A copy with `section__key` or `key` replaced."""
    return tiny.nested(settings, {key.replace("__", "."): value for key, value in values.items()})


def experiment(settings: dict[str, Any], score: float = 50.0, when: str = "2026-01-01T00:00:00", **metrics) -> dict[str, Any]:
    return {"name": when, "rev": when, "when": when, "data": "a", "settings": settings, "metrics": {"map": score} | metrics}


def test_a_row_of_the_main_table_is_a_method_of_any_head_and_of_others_a_case(defaults):
    matched = changed(defaults, method="iat", iat__rule="matched", head="linear")
    assert [row_of("main", "some", each) for each in (defaults, matched)] == ["dicap", "iat_matched"]
    assert row_of("ablation", "dth", defaults) == "dth" and row_of("figures", "", defaults) == "dicap"


def test_runs_of_no_cell_are_counted_and_what_is_known_of_the_others_is_told(defaults):
    cap = changed(defaults, method="cap", head="linear")
    runs = [
        experiment(
            changed(cap, ratio=0.1, seed=7, data_root="elsewhere"), 50.0, steps=100, model="raw", map_raw=50.0, map_ema=51.0
        ),
        experiment(cap, 56.0, steps=None),
        experiment(cap, 0.0) | {"metrics": {"map": None}},
        experiment(changed(cap, train__batch_size=99), 70.0),
    ]
    frame, notes = frame_of(runs, {case_mark(cap): "cap"})
    assert notes == ["Not shown: 1 run with settings that no cell of the table's grids has."]
    shown = frame[["row", "head", "ratio", "seed", "steps", "map"]].to_numpy().tolist()
    assert shown == [["cap", "linear", 0.05, 1, SOLVED, 56.0], ["cap", "linear", 0.1, 7, 100, 50.0]]
    assert frame["other"].tolist()[1] == 51.0, "the EMA's, where the raw network is the result"
    frame, _ = frame_of(runs, {})
    assert frame.empty


@pytest.mark.promise(
    "A row of a table has one run per seed, all on the same images and labels; excluded runs are counted",
    section="Experiments and DVC",
)
@given(st.data())
@hypothesis_settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_of_a_data_set_the_latest_photographs_of_a_row_the_latest_settings_and_of_a_seed_the_latest_run_count(defaults, data):
    """Against a loop, where two grids have one row; and what is left out is spoken of."""
    clips = (0.05, 0.1)
    rows = {case_mark(changed(defaults, method=row, loss__clip=clip)): row for row in ("mld", "cap") for clip in clips}
    values = ["mld", "cap", "bce"], [0.1, 0.2], [1, 2], "aab", clips
    draws = data.draw(st.lists(st.tuples(*map(st.sampled_from, values)), min_size=1, max_size=9))
    runs = []
    for number, (method, ratio, seed, photographs, clip) in enumerate(draws):
        settings = changed(defaults, method=method, ratio=ratio, seed=seed, loss__clip=clip)
        runs.append(experiment(settings, float(number), f"{number:03}") | {"data": photographs})
    frame, notes = frame_of(runs, rows)
    belong = [(number, draw) for number, draw in enumerate(draws) if draw[0] != "bce"]
    same = [(number, draw) for number, draw in belong if draw[3] == belong[-1][1][3]]
    latest = {draw[:2]: draw[4] for _, draw in same}
    same = [(number, draw) for number, draw in same if draw[4] == latest[draw[:2]]]
    expected = {draw[:3]: float(number) for number, draw in same}
    found = frame[["row", "ratio", "seed", "map"]].to_numpy().tolist() if belong else []
    assert {(row, ratio, seed): score for row, ratio, seed, score in found} == expected and len(found) == len(expected)
    counts = [int(note.split(" run")[0].split()[-1]) for note in notes]
    assert sum(counts) == len(draws) - len(same)
