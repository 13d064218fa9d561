"""Which row a run belongs to, told from its settings; and which runs may stand in one table."""

from pathlib import Path
from typing import Any

import pytest
import tiny
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dicap.lab.experiments import (
    FREE,
    LADDER,
    RECOMMENDED,
    SOLVED,
    frame_of,
    row_of,
)
from dicap.settings import Settings, flatten, load_settings
from dicap.settings.catalogue import OWN_HEAD
from dicap.settings.checks import unread
from dicap.settings.methods import METHODS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def defaults(tmp_path_factory) -> dict[str, Any]:
    params = tmp_path_factory.mktemp("project") / "params.yaml"
    params.write_text("dataset: digits\nratio: 0.05\nseed: 1\nmethod: dicap\n")
    return load_settings(params).model_dump()


def changed(settings: dict[str, Any], **values) -> dict[str, Any]:
    """A copy with `section__key` or `key` replaced."""
    return tiny.nested(settings, {key.replace("__", "."): value for key, value in values.items()})


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
    return {"name": when, "rev": when, "when": when, "data": "a", "settings": settings, "metrics": {"map": score} | metrics}


RULE = {
    "protocol": "recommended",
    "linear__pseudo_weight": "auto",
    "linear__neighbours": 10,
}


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({}, "dicap"),
        ({"method": "cap"}, "cap"),
        (RULE, RECOMMENDED),
        (RULE | {"protocol": "published"}, None),
        (RULE | {"linear__neighbours": 5}, None),
        ({"linear__pseudo_weight": 0.1, "method": "cap"}, None),
        ({"contrastive__enabled": False}, None),
        (RULE | {"method": "cap"}, None),
    ],
)
def test_rows_of_own_photographs_tell_the_recommended_rule_from_the_published_one(defaults, changes, row):
    assert row_of("photographs", changed(defaults, **changes)) == row


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
        assert row_of("weighting", changed(defaults, calibration__policy=policy)) is None


def test_runs_with_other_settings_are_left_out_with_a_sentence(defaults):
    other = changed(defaults, train__batch_size=99)
    runs = [experiment(changed(other, seed=k), 70.0) for k in (1, 2)] + [experiment(changed(defaults, seed=3), 50.0)]
    frame, notes = frame_of(runs, "main", defaults)
    assert frame["seed"].tolist() == [3], "those that agree with params.yaml"
    assert notes == ["digits: left out 2 runs with other settings (train.batch_size)."]
    frame, notes = frame_of(runs, "main", changed(defaults, train__batch_size=7))
    assert frame["seed"].tolist() == [1, 2], "else the most numerous"
    assert notes[0] == "digits: no run has the settings asked for; those shown differ in train.batch_size."


def test_drml_s_own_normalisation_is_a_row_beside_the_others_and_another_for_all_is_not(defaults):
    plain = changed(defaults, network__normalize="none")
    for normalize, found in (("auto", ["dicap", "drml"]), ("imagenet", ["dicap"])):
        drml = changed(plain, method="drml", head="own", drml__features="pretrained", network__normalize=normalize)
        assert frame_of([experiment(plain, 50.0), experiment(drml, 40.0)], "main", plain)[0]["row"].tolist() == found


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


def test_runs_on_other_photographs_of_one_name_are_left_out(defaults):
    own = changed(defaults, dataset="table", data_root="x")
    runs = [experiment(changed(own, seed=k), 50.0, f"2026-01-0{k}") | {"data": "a" if k < 3 else "b"} for k in (1, 2, 3)]
    frame, notes = frame_of(runs, "main", own)
    assert frame["seed"].tolist() == [3]
    assert notes == ["table: left out 2 runs on other images or labels than the latest."]


OTHERWISE = {  # what the tables leave free, and what they do not
    "head": st.sampled_from(["linear", "ml_decoder"]),
    "method": st.sampled_from(["mld", "pclp", "dicap"]),
    "seed": st.integers(1, 3),
    "data_root": st.sampled_from(["here", "there"]),
    "protocol": st.sampled_from(["published", "recommended"]),
    "warmup__epochs": st.integers(1, 2),
    "pclp__epochs": st.integers(1, 2),
    "loss__gamma_neg": st.sampled_from([0.0, 4.0]),
    "train__trainable": st.sampled_from(["head", "all"]),
    "train__batch_size": st.sampled_from([64, 64, 64, 32]),
    "ratio": st.sampled_from([0.05, 0.1]),
}


@pytest.mark.parametrize("kind", FREE)
@given(st.data())
@hypothesis_settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_runs_of_one_cell_agree_in_all_that_they_read(defaults, kind, data):
    """And every run that counts for nothing is of a cell and seed that has a later one, or spoken of."""
    runs = []
    for number, changes in enumerate(data.draw(st.lists(st.fixed_dictionaries({}, optional=OTHERWISE), min_size=6, max_size=12))):
        steps = data.draw(st.sampled_from([100, 200]))
        own = changed(defaults, **changes)
        if METHODS[own["method"]].is_its_head or METHODS[own["method"]].head == OWN_HEAD:
            own["head"] = METHODS[own["method"]].head
        runs.append(experiment(own, float(number), f"{number:03}", steps=steps) | {"data": data.draw(st.sampled_from("aaab"))})
    frame, notes = frame_of(runs, kind, defaults)
    names = ["dataset", "row", "ratio", *(["steps"] if kind == "main" else [])]
    by_rev = {run["rev"]: run for run in runs}
    for _, part in frame.groupby(names) if len(frame) else ():
        assert part["seed"].is_unique
        read = set()
        for rev in part["rev"]:
            values = by_rev[rev]["settings"]
            unread_here = unread(Settings.model_validate(values))
            kept = [(k, v) for k, v in flatten(values) if k not in {"seed", "ratio", "data_root", "protocol", *unread_here}]
            read.add((repr(kept), by_rev[rev]["data"]))
        assert len(read) == 1, part
    belong = [run for run in runs if row_of(kind, run["settings"])]
    left_out = sum(int(note.split("left out ")[1].split(" ")[0]) for note in notes if "left out " in note)
    assert left_out <= len(belong) and (left_out or len(frame) == len({_cell(run, kind) for run in belong}))


def _cell(run: dict[str, Any], kind: str) -> tuple:
    settings = run["settings"]
    return row_of(kind, settings), settings["ratio"], settings["seed"], run["metrics"]["steps"] if kind == "main" else 0
