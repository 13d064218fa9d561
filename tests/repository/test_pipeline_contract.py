"""dvc.yaml against the program: a stage names the code and the settings that make its result, and no others."""

import ast
import json
import shutil
from functools import cache
from pathlib import Path

import pytest
import tiny
from project import Project

from dicap.provenance import PACKAGES
from dicap.settings import Settings, change_settings, flatten, load_settings, read_yaml
from dicap.settings.catalogue import NONE, PATHS
from dicap.settings.methods import METHODS

ROOT = tiny.ROOT
COMMANDS = {
    "check": "check", "convert": "convert", "features": "features", "split": "split", "warmup": "warmup",
    "pseudo_label": "pseudo-label", "train": "train", "finetune": "finetune", "evaluate": "evaluate", "report": "report",
}  # fmt: skip

# Code that makes no result, and why no stage names it.
NEUTRAL = {
    "dicap/__init__.py": "names what the package offers",
    "dicap/methods/__init__.py": "takes the module of one method",
    "dicap/errors.py": "what is said when a run fails",
    "dicap/plugins.py": "names functions",
    "dicap/provenance.py": "reads this pipeline",
    "dicap/settings": "reads and checks settings; their values are compared",
    "dicap/files": "formats of files; readers follow the schema, not the module",
    "dicap/machine": "choices of a machine, which retrain nothing",
    "dicap/data/format.py": "as dicap/files",
    "dicap/training/loops/table.py": "names loops",
    "stages/cli.py": "the command line",
    "stages/support": "the command line; whatever computes is called from there",
}
# Imported by code that makes no result, or for a part of it that makes none.
ASIDE = ("dicap/data/sources/__init__.py", "dicap/data/sources/base.py", "dicap/data/sources/files.py")

# Settings a stage looks at without its result depending on them.
IDLE = {
    ("convert", "method"): "of the code that its store of decoded images is named by",
    **dict.fromkeys((("warmup", "own"), ("train", "own"), ("finetune", "own")), "left out of a model, but own.test_share"),
    **dict.fromkeys((("warmup", "calibration"), ("finetune", "calibration")), "whether a leak is configured: policy optimal"),
    ("evaluate", "calibration"): "as fine-tuning",
    ("evaluate", "ratio"): "a method is built with its share of labels, which composes batches",
    ("evaluate", "augment"): "a method makes its views when it is built, and only the test view is looked at",
    ("evaluate", "image_size"): "compared with the converted set's, which is an input",
}

SPY = """
import json, sys
import stages.support.common as common
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
files = [m.__file__ for name, m in sys.modules.items() if name.split(".")[0] in ("dicap", "stages") and m.__file__]
json.dump({"code": code, "files": files, "read": sorted(read)}, open(ANSWER, "w"))
"""


@cache
def whole():
    return read_yaml(ROOT / "dvc.yaml")


def pipeline():
    return whole()["stages"]


@pytest.fixture(scope="module")
def seen(raw_photos, tmp_path_factory):
    """What every stage imports and reads, by running it in a process of its own."""
    short = dict.fromkeys(("warmup.epochs", "train.epochs", "finetune.epochs"), 1)
    folder = Project.made(tmp_path_factory.mktemp("contract"), tiny.CHANGES | short | {"data_root": str(raw_photos)}).folder
    out = {}
    for stage, command in COMMANDS.items():
        answer = folder / f"{stage}.json"
        _, errors = tiny.Child(folder, f"ANSWER, COMMAND = {str(answer)!r}, {command!r}\n{SPY}", DVC_ROOT=str(folder)).wait()
        assert answer.exists(), errors
        out[stage] = json.loads(answer.read_text())
        assert not out[stage]["code"], errors
    return out


def test_the_stages_are_the_contract_s_in_its_order():
    assert list(pipeline()) == list(COMMANDS)
    for stage, command in COMMANDS.items():
        assert pipeline()[stage]["cmd"] == f"dicap-stage {command}"
        assert pipeline()[stage]["desc"].endswith(".")


def code(stage, method="dicap"):
    """The files and folders of code that a stage names."""
    return [dep.replace("${method}", method) for dep in pipeline()[stage]["deps"] if dep.startswith(PACKAGES)]


def lies_in(path, places):
    """Whether a file is one of these files, or lies in one of these folders."""
    return any(path == place or path.startswith(f"{place}/") for place in places)


def holds_code(path):
    """Whether a module is more than the docstring of a package."""
    return len((ROOT / path).read_text(encoding="utf-8").strip().splitlines()) > 1


@pytest.mark.parametrize("stage", COMMANDS)
def test_a_stage_names_the_code_that_it_imports_and_no_other(seen, stage):
    imported = {str(Path(file).relative_to(ROOT)) for file in seen[stage]["files"]}
    unnamed = {path for path in imported if not lies_in(path, [*code(stage), *NEUTRAL, *ASIDE]) and holds_code(path)}
    assert unnamed == set()
    for place in code(stage):
        assert (ROOT / place).exists() and place not in NEUTRAL
    assert ("dicap/settings/batch_sizes.py" in code(stage)) == ("dicap/methods/base.py" in imported), "it is no mere check"


@cache
def imports(path):
    """The files that a file imports, those of its functions included, and whatever it names as `package.module:function`."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value.partition(":")[0].rstrip("."))
    places = [name.replace(".", "/") for name in names if name.startswith(("dicap.", "stages."))]
    return {path for place in places for path in (f"{place}.py", f"{place}/__init__.py") if (ROOT / path).is_file()}


def reached(*starts, beyond=()):
    """The files that these import, directly or through others."""
    found, waiting = set(), list(starts)
    while waiting:
        if (path := waiting.pop()) not in found and path not in beyond:
            found.add(path)
            waiting += imports(path)
    return found


@pytest.mark.parametrize("stage", COMMANDS)
def test_all_code_that_a_stage_names_is_within_its_reach(stage):
    """Whatever the settings are."""
    methods = [f"dicap/methods/{method}.py" for method in METHODS]
    within = reached(f"stages/commands/{stage}.py", *(methods if "dicap/methods/dicap.py" in code(stage) else ()))
    assert [place for place in code(stage) if not any(lies_in(path, [place]) for path in within)] == []


@pytest.mark.parametrize("method", METHODS)
def test_the_stages_that_train_name_the_code_of_every_method(method):
    others = {f"dicap/methods/{name}.py" for name in METHODS} - reached(f"dicap/methods/{method}.py", beyond={"dicap/plugins.py"})
    start = (
        f"dicap/methods/{method}.py",
        "dicap/training/loops/table.py",
        "dicap/frozen/inputs.py",
        "dicap/frozen/loops/recommended.py",
    )
    within = reached(*start, beyond={"dicap/plugins.py", *others})
    for stage in ("warmup", "pseudo_label", "train", "finetune"):
        named = [*code(stage, method), *NEUTRAL, *ASIDE]
        assert {path for path in within if not lies_in(path, named) and holds_code(path)} == set()


@pytest.mark.parametrize("stage", COMMANDS)
def test_a_stage_names_the_settings_it_reads(seen, stage):
    params = pipeline()[stage]["params"]
    if {"params.yaml": None} in params:
        return
    named = {str(key).partition(".")[0].replace("${method}", "dicap") for key in params if isinstance(key, str)}
    unnamed = set(seen[stage]["read"]) - named
    assert unnamed == {name for where, name in IDLE if where == stage}
    assert named <= {*Settings.model_fields, *METHODS}
    assert [key for key in params if isinstance(key, dict)] == [
        {"configs/${dataset}.yaml": None},
        {"configs/${protocol}.yaml": None},
    ]


def test_every_path_of_the_settings_exists_and_one_of_them_stands_for_none(tmp_path):
    """DVC wants them to exist, and ends with "unexpected error" where one is null."""
    named = {dep[2:-1] for stage in pipeline().values() for dep in stage["deps"] if dep.endswith("}")}
    assert named == {*PATHS}
    params = Path(shutil.copy(ROOT / "params.yaml", tmp_path))
    given = {key: value for key, value in flatten(read_yaml(params)) if key in named}
    assert all((ROOT / path).exists() for path in given.values())
    assert given == PATHS
    settings = dict(flatten(load_settings(params).model_dump()))
    assert all(settings[key] == (None if path == NONE else path) for key, path in given.items())
    change_settings(params, dict.fromkeys(named, "elsewhere"))
    change_settings(params, dict.fromkeys(named))
    assert {key: value for key, value in flatten(read_yaml(params)) if key in named} == given


def test_every_input_is_an_output_of_an_earlier_stage():
    made = set()
    for stage in pipeline().values():
        for dep in stage["deps"]:
            if dep.startswith((*PACKAGES, "${", "labels")):
                continue
            # Whole outputs: to track a file inside one, DVC opens the folder's list as the commit's lock names it, and ends
            # with "failed to load directory" where that commit's results were never fetched.
            assert dep in made, dep
        made |= set(stage.get("outs", []))
    plots = [[entry] if isinstance(entry, str) else next(iter(entry.values()))["y"] for entry in whole()["plots"]]
    for entry in [*whole()["metrics"], *(file for files in plots for file in files)]:
        assert any(entry.startswith(f"{out}/") for out in made), entry


def test_outputs_are_whole_cached_and_ignored():
    ignored = (ROOT / ".gitignore").read_text().split()
    for stage in pipeline().values():
        for out in stage.get("outs", []):
            assert isinstance(out, str), "an output with options: persist and cache: false turn the run cache off"
            assert {f"/{out.split('/')[0]}/", f"/{out}/", f"/{out}"} & {*ignored}
