"""dvc.yaml and the tables of dicap/provenance/dependencies.py against the program.

A stage lists every setting it reads and every module whose change alters its result.
"""

import ast
import json
import shutil
from functools import cache

import pytest
import tiny
from ruamel.yaml import YAML

from dicap.provenance.dependencies import NEUTRAL, STAGE_SETTINGS, modules
from dicap.provenance.source_code import source_file
from dicap.settings import Settings

ROOT = tiny.ROOT
COMMANDS = {
    "convert": "convert", "features": "features", "split": "split", "warmup": "warmup", "pseudo_label": "pseudo-label",
    "train": "train", "finetune": "finetune", "evaluate": "evaluate", "report": "report",
}  # fmt: skip

# Imported by a neutral module for itself; the stages that compute with them depend on them besides.
ASIDE = {
    "dicap.settings.batch_sizes": "dicap.settings.checks: a setting that contradicts another",
    "dicap.data.sources": "dicap.provenance.dependencies: names of modules",
    "dicap.data.sources.base": "as dicap.data.sources",
    "dicap.data.sources.files": "dicap.provenance.external: endings of photographs",
}

# Settings a stage looks at without its result depending on them.
IDLE = {
    **{
        ("convert", name): "which modules are its code is asked by the settings, for the store of decoded images"
        for name in ("linear", "method", "train")
    },
    ("finetune", "bbam"): "whether a leak is configured is asked where an experiment is opened; fine-tuning has none",
    ("evaluate", "calibration"): "as finetune",
    ("evaluate", "bbam"): "as finetune",
    ("evaluate", "backbone_weights"): "their path is completed where an experiment is opened; the model has its own",
    ("evaluate", "ratio"): "a method is built with its share of labels, which composes batches",
    ("evaluate", "augment"): "a method makes its views when it is built, and only the test view is looked at",
    ("evaluate", "image_size"): "compared with the converted set's, which is an input",
}

SPY = """
import json, sys
import stages.support.common as common
from dicap.provenance.source_code import source_file
from dicap.settings import Settings
read, armed = set(), []
plain = Settings.__getattribute__
def look(self, name):
    if armed and self is armed[0] and name in Settings.model_fields:
        read.add(name)
    return plain(self, name)
Settings.__getattribute__ = look
load = common.load
def loaded(params):
    settings = load(params)
    armed.append(settings)
    return settings
common.load = loaded
from stages.cli import main
try:
    main([COMMAND])
except SystemExit as stop:
    code = stop.code
names = [name for name in sys.modules if name.split(".")[0] in ("dicap", "stages") and name != "stages.cli"]
json.dump({"code": code, "modules": names, "read": sorted(read)}, open(ANSWER, "w"))
"""


@cache
def pipeline():
    return YAML(typ="safe", pure=True).load((ROOT / "dvc.yaml").read_text())


@pytest.fixture(scope="module")
def seen(raw_photos, tmp_path_factory):
    """What every stage imports and reads, by running it in a process of its own."""
    folder = tmp_path_factory.mktemp("contract")
    shutil.copytree(ROOT / "configs", folder / "configs")
    values = YAML(typ="safe", pure=True).load((ROOT / "params.yaml").read_text())
    values = tiny.nested(values, tiny.CHANGES | {"data_root": str(raw_photos)})
    values["train"]["epochs"] = values["warmup"]["epochs"] = values["finetune"]["epochs"] = 1
    with open(folder / "params.yaml", "w") as handle:
        YAML().dump(values, handle)
    out = {}
    for stage, command in COMMANDS.items():
        answer = folder / f"{stage}.json"
        _, errors = tiny.Child(folder, f"ANSWER, COMMAND = {str(answer)!r}, {command!r}\n{SPY}", DVC_ROOT=str(folder)).wait()
        assert answer.exists(), errors
        out[stage] = json.loads(answer.read_text())
        assert not out[stage]["code"], errors
    return out


def test_the_stages_are_the_contract_s_in_its_order():
    assert list(pipeline()["stages"]) == ["resolve", *COMMANDS]
    for stage, command in {"resolve": "resolve", **COMMANDS}.items():
        assert pipeline()["stages"][stage]["cmd"] == f"dicap-stage {command}"
        assert pipeline()["stages"][stage]["desc"].endswith(".")


def test_every_stage_depends_on_its_file_of_the_first_which_always_runs():
    first = pipeline()["stages"]["resolve"]
    assert "deps" not in first and first["always_changed"] and first["params"] == [{"params.yaml": None}]
    assert first["outs"] == [f"artifacts/resolved/{stage}.json" for stage in COMMANDS]
    assert list(STAGE_SETTINGS) == list(COMMANDS)
    for stage in COMMANDS:
        resolved = [dep for dep in pipeline()["stages"][stage]["deps"] if dep.startswith("artifacts/resolved/")]
        assert resolved == [f"artifacts/resolved/{stage}.json"]
        assert "params" not in pipeline()["stages"][stage]


def is_empty(module):
    """Whether a module holds nothing but a docstring, as packages do."""
    body = ast.parse(source_file(module).read_text(encoding="utf-8")).body
    return all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in body)


@pytest.mark.parametrize("stage", COMMANDS)
def test_what_a_stage_imports_is_listed_or_neutral(seen, stage):
    listed = modules(stage, tiny.settings())
    rest = set(seen[stage]["modules"]) - listed - set(NEUTRAL) - set(ASIDE)
    assert {name for name in rest if not is_empty(name)} == set()
    assert not set(NEUTRAL) & listed


@pytest.mark.parametrize("stage", COMMANDS)
def test_a_stage_lists_the_settings_it_reads(seen, stage):
    listed = {key.partition(".")[0] for key in STAGE_SETTINGS[stage]}
    unlisted = set(seen[stage]["read"]) - listed
    assert unlisted == {name for where, name in IDLE if where == stage}
    assert listed <= set(Settings.model_fields)


def test_the_tables_name_modules_that_are_imported(seen):
    """An entry that nothing needs any more would hide a module of the same name later."""
    everything = {name for stage in COMMANDS for name in seen[stage]["modules"]}
    sometimes = {"dicap.provenance.dependencies", "dicap.provenance.source_code"}
    assert set(NEUTRAL) - everything - sometimes == set()


def test_every_input_is_an_output_of_an_earlier_stage():
    made = set()
    for stage in pipeline()["stages"].values():
        for dep in stage.get("deps", []):
            # Whole outputs: to track a file inside one, DVC opens the folder's list as the commit's lock names it, and ends
            # with "failed to load directory" where that commit's results were never fetched.
            assert dep in made, dep
        made |= set(stage["outs"])
    shown = [entry if isinstance(entry, str) else next(iter(entry.values())) for entry in pipeline()["plots"]]
    for entry in [
        *pipeline()["metrics"],
        *(s for s in shown if isinstance(s, str)),
        *(f for s in shown if isinstance(s, dict) for f in s["y"]),
    ]:
        assert any(entry.startswith(f"{out}/") for out in made), entry


def test_outputs_are_whole_cached_and_ignored():
    ignored = (ROOT / ".gitignore").read_text().split()
    for stage in pipeline()["stages"].values():
        for out in stage["outs"]:
            assert isinstance(out, str), "an output with options: persist and cache: false turn the run cache off"
            assert f"/{out.split('/')[0]}/" in ignored
