"""dvc.yaml against the program: a stage lists every setting it reads and every module whose change alters its result."""

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import tiny
from ruamel.yaml import YAML

from dicap.catalogue import DATASETS, PROTOCOLS
from dicap.settings import Settings, known_keys
from dicap.training.run import STAGE_SETTINGS

ROOT = tiny.ROOT
COMMANDS = {
    "convert": "convert", "split": "split", "warmup": "warmup", "pseudo_label": "pseudo-label", "train": "train",
    "finetune": "finetune", "evaluate": "evaluate", "report": "report",
}  # fmt: skip

# Imported by stages, and no dependency of any: a change here changes no result.
NEUTRAL = {
    "dicap/__init__.py": "the version",
    "dicap/errors.py": "what is said when a run fails",
    "dicap/progress.py": "bars on stderr",
    "dicap/settings.py": "reads and checks settings; their values are params of the stages",
    "dicap/catalogue.py": "names and facts; the method itself is a file of its own, which is listed",
    "dicap/runtime.py": "choices of a machine, which retrain nothing",
    "dicap/artifacts.py": "formats of files; readers follow the schema, not the module",
    "dicap/data/__init__.py": "empty",
    "dicap/training/__init__.py": "a docstring",
    "dicap/training/cost.py": "says how long it took",
    "dicap/training/aside.py": "when files are written",
    "dicap/training/world.py": "who of several processes takes which part of the same step",
}

# Listed, and imported for some data sets or methods only.
SOMETIMES = {("convert", "dicap/data/formatted.py"): "nuswide comes as the published npy files"} | {
    (stage, "dicap/methods/rules.py"): "DiCaP has its own rules in calibration.py"
    for stage in ("warmup", "pseudo_label", "train", "finetune")
}

# Settings a stage looks at without its result depending on them.
IDLE = {
    ("evaluate", "augment"): "a method makes its views when it is built, and only the test view is looked at",
    ("evaluate", "image_size"): "compared with the converted set's, which is an input",
}

SPY = """
import json, sys
import stages.common as common
from dicap.settings import Settings
read, armed = set(), []
plain = Settings.__getattribute__
def look(self, name):
    if armed and self is armed[0] and name in Settings.model_fields:
        read.add(name)
    return plain(self, name)
Settings.__getattribute__ = look
load = common.load_settings
def loaded(params):
    settings = load(params)
    armed.append(settings)
    return settings
common.load_settings = loaded
from stages.cli import main
try:
    main(sys.argv[2:])
except SystemExit as stop:
    code = stop.code
files = [m.__file__ for n, m in list(sys.modules.items()) if n.split(".")[0] == "dicap" and getattr(m, "__file__", None)]
json.dump({"code": code, "files": files, "read": sorted(read)}, open(sys.argv[1], "w"))
"""


@cache
def pipeline():
    return YAML(typ="safe", pure=True).load((ROOT / "dvc.yaml").read_text())


@cache
def yaml_of(name):
    return YAML(typ="safe", pure=True).load((ROOT / name).read_text())


def params_of(stage):
    """Settings a stage lists: of params.yaml, and by the configs file."""
    listed = pipeline()["stages"][stage]["params"]
    plain = {key for key in listed if isinstance(key, str)}
    return plain, {name: set(keys) for entry in listed if isinstance(entry, dict) for name, keys in entry.items()}


def code_of(stage, method="dicap"):
    """Files of the package that a stage lists, a folder standing for all its files."""
    found = set()
    for dep in pipeline()["stages"][stage]["deps"]:
        path = ROOT / dep.replace("${method}", method)
        if dep.startswith("dicap"):
            found |= set(path.rglob("*.py")) if path.is_dir() else {path}
    return {str(path.relative_to(ROOT)) for path in found}


@pytest.fixture(scope="module")
def seen(raw_photos, tmp_path_factory):
    """What every stage imports and reads, by running it in a process of its own."""
    folder = tmp_path_factory.mktemp("contract")
    shutil.copytree(ROOT / "configs", folder / "configs")
    values = tiny.nested(yaml_of("params.yaml"), tiny.CHANGES | {"data_root": str(raw_photos)})
    values["train"]["epochs"] = values["warmup"]["epochs"] = values["finetune"]["epochs"] = 1
    with open(folder / "params.yaml", "w") as handle:
        YAML().dump(values, handle)
    out = {}
    for stage, command in COMMANDS.items():
        answer = folder / f"{stage}.json"
        done = subprocess.run(
            [sys.executable, "-c", SPY, answer, command], cwd=folder, capture_output=True, text=True, check=False,
            env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "DVC_ROOT": str(folder)},
        )  # fmt: skip
        assert answer.exists(), done.stderr
        out[stage] = json.loads(answer.read_text())
        assert not out[stage]["code"], done.stderr
        out[stage]["files"] = {str(Path(name).relative_to(ROOT)) for name in out[stage]["files"]}
    return out


def test_the_stages_are_the_contract_s_in_its_order():
    assert list(pipeline()["stages"]) == list(COMMANDS)
    for stage, command in COMMANDS.items():
        assert pipeline()["stages"][stage]["cmd"] == f"dicap-stage {command}"
        assert pipeline()["stages"][stage]["desc"].endswith(".")


@pytest.mark.parametrize("stage", COMMANDS)
def test_a_stage_lists_the_modules_it_imports_and_no_others(seen, stage):
    imported, listed = seen[stage]["files"] - set(NEUTRAL), code_of(stage)
    unlisted = sorted(imported - listed)
    assert not unlisted, "imported and not listed in dvc.yaml"
    folders = [dep for dep in pipeline()["stages"][stage]["deps"] if (ROOT / dep).is_dir()]
    idle = {name for name in listed - imported if not any(name.startswith(f"{folder}/") for folder in folders)}
    assert idle == {name for where, name in SOMETIMES if where == stage}, "listed in dvc.yaml and not imported"


@pytest.mark.parametrize("stage", COMMANDS)
def test_a_stage_lists_the_settings_it_reads(seen, stage):
    plain, _ = params_of(stage)
    unlisted = set(seen[stage]["read"]) - plain
    assert unlisted == {name for where, name in IDLE if where == stage}


@pytest.mark.parametrize("stage", STAGE_SETTINGS)
def test_dvc_and_the_resume_state_depend_on_the_same_settings(stage):
    plain, _ = params_of(stage)
    assert plain - {"protocol"} == set(STAGE_SETTINGS[stage]), "a protocol is a name for values"


@pytest.mark.parametrize("stage", COMMANDS)
def test_every_listed_setting_is_listed_for_the_files_it_may_come_from(stage):
    """A changed default in configs/ must re-run the stage as a changed params.yaml does."""
    plain, configs = params_of(stage)
    in_configs = plain & set(yaml_of("configs/published.yaml"))
    wanted = dict.fromkeys(("configs/${dataset}.yaml", "configs/published.yaml"), in_configs) if in_configs else {}
    if of_protocol := plain & set(yaml_of("configs/recommended.yaml")):
        wanted["configs/${protocol}.yaml"] = of_protocol
    # DVC compares only the files that are listed now: going back to a protocol must be seen by its name.
    assert ("protocol" in plain) == bool(of_protocol)
    assert configs == wanted
    assert plain <= set(Settings.model_fields)


@pytest.mark.parametrize("name", [PROTOCOLS[0], *DATASETS])
def test_every_section_of_params_is_in_every_configs_file(name):
    """DVC refuses a stage whose listed key is missing, so even an empty section must be there."""
    sections = {key.split(".")[0] for key in known_keys() if "." in key}
    assert sections == {key for key, value in yaml_of("params.yaml").items() if isinstance(value, dict)}
    values = yaml_of(f"configs/{name}.yaml")
    assert sections | {"backbone", "backbone_weights", "image_size"} <= set(values)
    assert all(isinstance(values[section], dict) for section in sections)


def test_every_file_of_the_package_that_is_listed_exists():
    for stage in COMMANDS:
        for dep in pipeline()["stages"][stage]["deps"]:
            if dep.startswith("dicap") and "${" not in dep:
                assert (ROOT / dep).exists(), f"{stage}: {dep}"


def test_every_method_has_the_file_that_the_stages_list():
    from dicap.catalogue import METHODS

    assert all((ROOT / "dicap" / "methods" / f"{name}.py").exists() for name in METHODS)


def test_every_input_is_an_output_of_an_earlier_stage():
    made = set()
    for stage in pipeline()["stages"].values():
        for dep in stage["deps"]:
            # Whole outputs: to track a file inside one, DVC opens the folder's list as the commit's lock names it, and ends
            # with "failed to load directory" where that commit's results were never fetched.
            assert dep.startswith("dicap") or dep in made, dep
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
