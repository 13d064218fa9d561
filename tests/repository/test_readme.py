"""The README's commands run, in their order, in a copy of the project with one epoch a stage."""

import re
import subprocess
from pathlib import Path

import pytest
import tiny

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands_of(text):
    """What a reader would type, in order."""
    return [
        line.removeprefix("$ ")
        for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
        if line.startswith("$ ")
    ]


COMMANDS = commands_of(README)
ELSEWHERE = {
    "make repro": "its pieces are the other commands; its environment is made once",
    "make test": "this very run",
}
OWN_DATA = "/path/to/photographs"  # the README's example of a place outside the project


def test_the_readme_has_commands():
    assert len(COMMANDS) > 10
    assert set(ELSEWHERE) <= set(COMMANDS)


def test_the_paper_in_code_runs():
    names: dict = {}
    exec(re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0], names)
    weight, label = names["weight"], names["label"]
    assert names["loss"].item() > 0 and (weight[label < 0] == 0).all() and weight[label == 1].mean() > 0.5


@pytest.mark.parametrize("target", ["repro", "test"])
def test_make_knows_what_the_readme_names(target):
    done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.pipeline
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_commands_run_in_order(tmp_path):
    _, run = clone(tmp_path)
    photographs(tmp_path / "photographs")
    for command in [c for c in COMMANDS if c not in ELSEWHERE]:
        run(command.replace(OWN_DATA, str(tmp_path / "photographs")))


def clone(tmp_path):
    """A copy of the project, shortened and committed, and a function that types a command in it, which must succeed."""
    project = tiny.copy_project(tmp_path / "project")
    shorten(project)
    environment = tiny.warm_environment(project, **tiny.AUTHOR)

    def run(command):
        tiny.typed(command, project, environment)

    for command in ("git init -q -b main", "git add -A", "git commit -qm start"):
        run(command)
    return project, run


def shorten(project):
    """One epoch a stage, a narrow choice of images: the commands are on trial, not the numbers."""
    from ruamel.yaml import YAML

    yaml = YAML()
    for path in (project / "configs").glob("*.yaml"):
        values = yaml.load(path.read_text())
        values.update(backbone="test_resnet", backbone_weights="random", image_size=32)
        values.setdefault("network", {}).update(stride=8, decoder_dim=16, decoder_ffn=16, decoder_heads=2)
        for section in ("warmup", "train", "finetune"):
            values.setdefault(section, {})["epochs"] = 1
        values["train"]["cycle_epochs"] = 0
        with open(path, "w") as handle:
            yaml.dump(values, handle)
    digits = project / "configs" / "digits.yaml"  # heads by steps on features: no stage is passed over, and each starts quickly
    values = yaml.load(digits.read_text())
    for section in ("warmup", "train"):
        values[section]["trainable"] = "head"
    values["features"] = {"views": 1}
    with open(digits, "w") as handle:
        yaml.dump(values, handle)
    params = project / "params.yaml"
    params.write_text(re.sub(r"^dataset: pictograms", "dataset: digits", params.read_text(), flags=re.MULTILINE))
    grid = project / "experiments" / "main.yaml"
    grid.write_text(
        re.sub(r"epochs: \d+", "epochs: 1", grid.read_text()).replace("head: [linear, ml_decoder]", "head: [ml_decoder]")
    )
    source = project / "dicap" / "data" / "sources" / "benchmarks" / "digits.py"
    text, changed = re.subn(r"TRAIN, TEST = \d+, \d+", "TRAIN, TEST = 400, 100", source.read_text())
    assert changed == 1
    source.write_text(text)


def photographs(folder):
    """Sixty generated pictures and their table, for the section on own photographs."""
    return tiny.photographs(folder, {"train": 40, "test": 10, "unlabeled": 10}, "jpg", 50)
