"""Which row a run belongs to, told from its settings; and which runs may stand in one table."""

import copy
from pathlib import Path
from typing import Any

import pytest

from dicap.report.experiments import (
    FREE,
    LADDER,
    RECOMMENDED,
    SOLVED,
    frame_of,
    row_of,
    weighting_policy,
)
from dicap.settings import known_keys, load_settings

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def defaults(tmp_path_factory) -> dict[str, Any]:
    params = tmp_path_factory.mktemp("project") / "params.yaml"
    params.write_text("dataset: digits\nratio: 0.05\nseed: 1\nmethod: dicap\n")
    return load_settings(params, ROOT / "configs").model_dump()


def changed(settings: dict[str, Any], **values) -> dict[str, Any]:
    """A copy with `section__key` or `key` replaced."""
    new = copy.deepcopy(settings)
    for key, value in values.items():
        *section, name = key.split("__")
        (new[section[0]] if section else new)[name] = value
    return new


def step(settings: dict[str, Any], name: str) -> dict[str, Any]:
    target, rule, contrastive, wcl, finetune = LADDER[name]
    return changed(
        settings,
        calibration__target=target,
        thresholds__rule=rule,
        contrastive__enabled=contrastive,
        warmup__wcl=wcl,
        finetune__enabled=finetune,
    )


def experiment(settings: dict[str, Any], score: float = 50.0, when: str = "2026-01-01T00:00:00", **metrics) -> dict[str, Any]:
    return {"name": when, "rev": when, "when": when, "settings": settings, "metrics": {"map": score} | metrics}


RULE = {
    "calibration__source": "cross_fit",
    "calibration__estimator": "class_score",
    "calibration__power": 2.0,
    "thresholds__rule": "quota",
    "linear__pseudo_weight": "auto",
    "linear__neighbours": 10,
}


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({}, "dicap"),
        ({"method": "cap"}, "cap"),
        (RULE, RECOMMENDED),
        (RULE | {"protocol": "recommended"}, RECOMMENDED),
        (RULE | {"linear__neighbours": 5}, None),
        ({"linear__pseudo_weight": 0.1, "method": "cap"}, None),
        ({"contrastive__enabled": False}, None),
        (RULE | {"method": "cap"}, None),
    ],
)
def test_rows_of_own_photographs_tell_the_recommended_rule_from_the_published_one(defaults, changes, row):
    assert row_of("photographs", changed(defaults, **changes)) == row


def test_the_keys_of_the_ladder_are_settings():
    assert set().union(*FREE.values()) <= set(known_keys())


def rows_of(settings):
    return tuple(row_of(kind, settings) for kind in ("main", "ablation", "weighting"))


def test_the_defaults_are_the_whole_method_and_labelled_only_is_the_baseline(defaults):
    assert rows_of(defaults) == ("dicap", "fte", None)
    assert rows_of(changed(defaults, method="mld")) == ("mld", "baseline", None)
    assert rows_of(changed(defaults, contrastive__enabled=False)) == (None, None, None), "off the ladder"


def test_every_step_and_policy_is_told_apart(defaults):
    for name in LADDER:
        assert rows_of(step(defaults, name))[:2] == ("dicap" if name == "fte" else None, name)
    for policy in ("uniform", "confidence", "labeled", "estimated", "optimal"):
        at_step = changed(step(defaults, "dth"), calibration__policy=policy)
        assert rows_of(at_step) == (None, "dth" if policy == "estimated" else None, policy)
        assert weighting_policy(changed(defaults, calibration__policy=policy)) is None


def test_the_latest_run_of_a_cell_counts(defaults):
    runs = [experiment(defaults, 60.0, "2026-02-02"), experiment(defaults, 50.0, "2026-01-01")]
    frame, notes = frame_of(runs, "main")
    assert frame[["row", "seed", "map"]].values.tolist() == [["dicap", 1, 60.0]]
    assert notes == []


def test_runs_with_other_settings_are_left_out_with_a_sentence(defaults):
    other = changed(defaults, train__batch_size=99)
    runs = [experiment(changed(other, seed=k), 70.0) for k in (1, 2)] + [experiment(changed(defaults, seed=3), 50.0)]
    frame, notes = frame_of(runs, "main", defaults)
    assert frame["seed"].tolist() == [3], "those that agree with params.yaml"
    assert notes == ["digits: left out 2 runs with other settings (train.batch_size)."]
    frame, _ = frame_of(runs, "main", changed(defaults, train__batch_size=7))
    assert frame["seed"].tolist() == [1, 2], "else the most numerous"


def test_budgets_and_heads_are_rows_of_one_table(defaults):
    cap = changed(defaults, method="cap", head="linear")
    longer = changed(cap, warmup__epochs=99)
    runs = [
        experiment(cap, 50.0, steps=100, model="raw", map_raw=50.0, map_ema=51.0),
        experiment(longer, 55.0, steps=200),
        experiment(changed(longer, seed=2), 56.0, "2026-02-02", steps=None),
        experiment(changed(cap, head="ml_decoder"), 60.0),
        experiment(changed(cap, method="iat"), 61.0),
        experiment(changed(cap, method="iat", iat__rule="matched"), 62.0),
    ]
    frame, notes = frame_of(runs, "main", defaults)
    assert notes == []
    assert sorted(zip(frame["row"], map(str, frame["steps"]), frame["map"], strict=True)) == [
        ("cap", "100", 50.0), ("cap", "200", 55.0), ("cap", SOLVED, 56.0), ("cap ml_decoder", "", 60.0), ("iat", "", 61.0),
        ("iat_matched", "", 62.0),
    ]  # fmt: skip
    assert frame[frame["steps"].astype(str) == "100"]["other"].tolist() == [51.0], (
        "the EMA's, where the raw network is the result"
    )


def test_data_sets_are_judged_apart(defaults):
    runs = [experiment(defaults), experiment(changed(defaults, dataset="table", data_root="x", image_size=128))]
    frame, notes = frame_of(runs, "main", defaults)
    assert frame["dataset"].tolist() == ["digits", "table"]
    assert notes == []


def test_the_ladder_is_one_table(defaults):
    runs = [experiment(step(defaults, name)) for name in LADDER] + [experiment(changed(defaults, method="mld"))]
    frame, notes = frame_of(runs, "ablation", defaults)
    assert sorted(frame["row"]) == sorted([*LADDER, "baseline"])
    assert notes == [] and frame_of([], "main")[0].empty
