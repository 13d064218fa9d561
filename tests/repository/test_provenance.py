"""What the state of a stage is named by: the settings and the code that dvc.yaml names."""

import shutil

import pytest
import tiny

from dicap import provenance
from dicap.provenance import code_of, pipeline, settings_of
from dicap.settings import Settings, flatten, read_yaml
from dicap.settings.methods import METHODS


def test_settings_are_sections_and_single_keys():
    top = {"dataset": "table", "ratio": 0.5, "seed": 1}
    assert settings_of("split", tiny.settings()) == top | {"split": {"est_fraction": 0.3}}
    assert settings_of("features", tiny.settings())["warmup.trainable"] == "all"


@pytest.mark.parametrize("method", METHODS)
def test_of_the_sections_of_methods_a_stage_has_those_that_the_method_reads(method):
    s = tiny.settings({"method": method, "head": METHODS[method].head})
    sections = {*settings_of("train", s)} & {*METHODS}
    assert {*METHODS[method].reads} <= sections <= {method, "cap"} and (method in sections) == (method in Settings.model_fields)


def test_the_code_is_that_which_the_pipeline_names(tmp_path, monkeypatch):
    for package in ("dicap", "stages"):
        shutil.copytree(tiny.ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    s, before = tiny.settings(), {stage: code_of(stage, tiny.settings()) for stage in pipeline()}
    for path, stages in {
        "dicap/losses.py": {"warmup", "pseudo_label", "train", "finetune", "evaluate"},
        "dicap/methods/cap.py": set(),
        "dicap/report/figures/learning.py": {"report"},
        "dicap/settings/schema.py": set(),
    }.items():
        with open(tmp_path / path, "a") as file:
            file.write("\n")
        after = {stage: code_of(stage, s) for stage in pipeline()}
        assert {stage for stage in after if after[stage] != before[stage]} == stages, path
        before = after


def test_no_value_of_params_yaml_hides_one_of_a_data_set_or_a_protocol():
    """`-S dataset=voc2012` has to give the settings of voc2012."""
    chosen = {key for key, value in flatten(read_yaml(tiny.ROOT / "params.yaml")) if value is not None}
    for path in (tiny.ROOT / "configs").glob("*.yaml"):
        config = {key for key, _ in flatten(read_yaml(path))}
        assert config, "DVC's run cache knows no stage that depends on an empty file"
        assert not chosen & config, path
