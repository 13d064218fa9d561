"""The core without the layers above it: it imports, says what is missing in a line, and trains as published to the end."""

import json
from pathlib import Path

import pytest
import tiny
from data.archives import voc2012
from project import Project

from stages.cli import LAYERS

# An installation of this checkout finds in it what another copy lacks.
ALONE = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in getattr(finder, "__module__", "")]
from stages.cli import main
"""
STAGE = "main()"
MOST_LINES = 7_500  # of dicap and stages that a published main stage has loaded at its end: they may become fewer
COUNT = """
from pathlib import Path
for name in [name for name in sys.modules if name.split(".")[0] == "scipy"]:
    del sys.modules[name]
main(["--quiet", "train"], standalone_mode=False)
files = {Path(module.__file__) for name, module in list(sys.modules.items())
         if name.split(".")[0] in ("dicap", "stages") and getattr(module, "__file__", None)}
print("scipy" in sys.modules, sum(len(file.read_text().splitlines()) for file in files))
"""
IMPORT = """
import importlib, pkgutil
for package in ("dicap", "stages"):
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if found.name != "dicap.sklearn":  # of frozen features alone
            importlib.import_module(found.name)
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory) -> Path:
    """The repository without the three layers, their commands and their tests."""
    layers = [f"{package}/{layer}/" for layer in ("frozen", "photos", "lab") for package in ("dicap", "stages", "tests")]
    return tiny.copy_project(tmp_path_factory.mktemp("core"), *layers)


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A folder with the settings of a published run on VOC 2012, in small."""
    place = tmp_path_factory.mktemp("run")
    voc2012(place / "voc", (30, 10))
    Project.made(place, tiny.CHANGES | {"dataset": "voc2012", "data_root": str(place / "voc")})
    return place


def run(core: Path, place: Path, script: str, *words: str) -> tuple[int | None, str]:
    """The exit code of a script with the core's code alone, in a folder, and what it said."""
    return tiny.Child(place, ALONE + script, words=words, code=core).wait()


def test_every_module_imports_and_the_help_answers(core, tmp_path):
    code, said = run(core, tmp_path, IMPORT)
    assert code == 0, said
    code, said = run(core, tmp_path, STAGE, "--help")
    assert code == 0 and "finetune" in said, said


@pytest.mark.parametrize("layer", LAYERS)
def test_a_command_of_a_missing_layer_is_refused_in_a_line(core, tmp_path, layer):
    refusal = f"Error: {LAYERS[layer][-1]}: needs stages.{layer}, which is not part of this installation\n"
    assert run(core, tmp_path, STAGE, LAYERS[layer][-1]) == (2, refusal)


def test_a_published_run_trains_to_the_end_and_few_lines_are_loaded(core, project):
    code, said = run(core, project, STAGE, "run")
    assert code == 0, said
    details = json.loads((project / "artifacts" / "evaluate" / "details.json").read_text())
    assert details["method"] == "dicap" and details["stage"] == "finetune" and details["steps_train"] > 0
    assert (project / "artifacts" / "report" / "index.html").is_file()
    code, said = run(core, project, COUNT)
    assert code == 0, said
    scipy, lines = said.split()[-2:]
    assert int(lines) <= MOST_LINES, lines
    assert scipy == "False", "the paper needs no solver: what imports one is the recommended rule and what answers are made of"
