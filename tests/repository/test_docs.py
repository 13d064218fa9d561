"""The tutorial's commands and lines of Python run in order; the contributing guide's examples work; the reference is current."""

import csv
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import tiny
import torch
from PIL import Image

from dicap.settings import change_settings
from repository.test_readme import ROOT, clone, commands_of, photographs

TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
UNLABELLED = "/path/to/unlabeled"


def python_of(text):
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_the_reference_is_current():
    # In a process of its own: click keeps the help option of a command that another test ran alone, without `-h`.
    command = [sys.executable, "-m", "stages.cli", "--json", "reference"]
    answer = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, encoding="utf-8").stdout)
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert page == answer["markdown"], "dicap-stage reference > docs/reference.md"


def test_the_example_of_weights_runs_in_ten_lines(capsys):
    *_, code = python_of((ROOT / "docs" / "sklearn.md").read_text(encoding="utf-8"))
    assert len([line for line in code.splitlines() if line.strip() and not line.startswith(("import", "from"))]) <= 10
    namespace: dict = {}
    exec(code, namespace)
    assert "of the entries train" in capsys.readouterr().out and namespace["loss"].isfinite()
    weight, pseudo = namespace["weight"], namespace["pseudo"]
    assert weight.shape == pseudo.shape == (1000, 5) and (weight[pseudo < 0] == 0).all()
    assert weight[pseudo == 1].mean() > 0.5 < weight[pseudo == 0].mean()


def test_the_cell_on_features_runs_and_its_chances_hold(capsys):
    pytest.importorskip("mapie", reason="of the extra `dev`")
    code, precision, _ = python_of((ROOT / "docs" / "sklearn.md").read_text(encoding="utf-8"))
    namespace: dict = {}
    exec(code, namespace)
    exec(precision, namespace)
    said = capsys.readouterr().out
    assert "of the answers are right" in said and "of the class" in said
    yes = namespace["p"] >= namespace["threshold"]
    assert namespace["shown"][800:, 0][yes].mean() > 0.8
    right, chance = namespace["right"], namespace["chance"]
    assert abs(right.mean() - chance.mean()) < 0.05 and right.mean() > 0.85
    assert right[chance >= np.median(chance)].mean() > right.mean()


@pytest.mark.pipeline
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_tutorial_runs_in_order(tmp_path):
    for name in ("onnx", "onnxruntime", "onnxscript"):
        pytest.importorskip(name, reason="the extra `export` is not installed: pip install 'dicap[export]'")
    project, run = clone(tmp_path)
    photographs(tmp_path / "photographs")
    rng = np.random.default_rng(1)
    (tmp_path / "unlabeled").mkdir()
    for i in range(30):
        colour = np.where(rng.random(3) < 0.5, 200, 40)
        Image.fromarray((colour + rng.integers(-30, 30, (40, 50, 3))).astype(np.uint8)).save(tmp_path / "unlabeled" / f"{i}.jpg")
    (tmp_path / "unlabeled" / "broken.jpg").write_text("<html>")

    def placed(text):
        return text.replace("/path/to/photographs", str(tmp_path / "photographs")).replace(
            UNLABELLED, str(tmp_path / "unlabeled")
        )

    for command in commands_of(TUTORIAL):
        if command.startswith("dicap-stage import-labels"):
            label(project / "suggest" / "labels.csv")
        run(placed(command))
        if command == commands_of(TUTORIAL)[0]:  # a file of the folder is broken
            change_settings(project / "params.yaml", {"convert.max_rejected": 0.1})
    for code in python_of(TUTORIAL):
        (project / "example.py").write_text(placed(code))
        run("python example.py")
    assert "unlabeled" in (project / "params.yaml").read_text()
    assert any((project / "labels").iterdir())


def label(path):
    """What a person does with the list: colours are read off the pictures."""
    rows = list(csv.DictReader(path.open()))
    assert 0 < len(rows) <= 20
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "labels"])
        writer.writerows([(row["image"], ["red", "green;blue", "-", ""][i % 4]) for i, row in enumerate(rows)])


def test_the_example_method_makes_pseudo_labels_by_its_option(tiny_experiment, tmp_path):
    from dicap.training.loops.main import first_refresh
    from dicap.training.loops.warmup import initial_network

    options: dict = {"__name__": __name__}
    method: dict = {}
    exec(python_of(CONTRIBUTING)[0], options)
    exec(python_of(CONTRIBUTING)[1], method)
    experiment = tiny_experiment({"method": "top1", "head": "linear"})
    for sure, uncertain in ((0.5, 0), (1, 1)):
        settings = experiment.settings.model_copy(update={"fixmatch": options["FixMatch"](threshold=sure)})
        experiment.method = method["FixMatch"](settings, len(tiny.COLOURS), settings.ratio)
        shares = first_refresh(experiment, initial_network(experiment), tmp_path / str(sure))
        assert shares["share_uncertain"] == uncertain
    with pytest.raises(ValueError, match="less than or equal to 1"):
        options["FixMatch"](threshold=2)


def test_the_example_policy_weights_by_the_distance_from_one_half():
    namespace = {}
    exec(python_of(CONTRIBUTING)[2], namespace)
    p, label = torch.tensor([[0.9, 0.5, 0.2]]), torch.tensor([[1, 1, -1]])
    weight = namespace["margin"](p, label)
    assert weight[0].tolist() == pytest.approx([0.8, 0.0, 0.0])


def test_the_example_data_set_converts(tmp_path):
    from dicap.data.convert import convert

    namespace = {}
    exec(python_of(CONTRIBUTING)[3], namespace)
    for name in ("a1", "a10", "b1", "b20", "b3"):
        (tmp_path / "raw").mkdir(exist_ok=True)
        Image.new("RGB", (9, 7)).save(tmp_path / "raw" / f"{name}.png")
    raw = namespace["read"]("letters", tmp_path / "raw")
    meta = convert(raw, tmp_path / "letters", image_size=16, workers=0)
    assert meta["classes"] == ["a", "b"] and meta["counts"] == {"train": 3, "test": 2, "unlabeled": 0}


def test_the_example_backbone_is_built_by_name():
    from dicap.network.backbone import create_backbone

    exec(python_of(CONTRIBUTING)[4], {"__name__": __name__})
    backbone, channels = create_backbone("two_layers", "random", 32, 32)
    assert channels == 16 and sum(p.numel() for p in backbone.parameters()) > 0
