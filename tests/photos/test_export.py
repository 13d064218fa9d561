"""Exported models: agreement with the original, the metadata, the example of the documentation."""

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dicap.calibration.evidence import Evidence
from dicap.errors import DataError, SettingsError
from dicap.evaluation.answers import Answers
from dicap.photos import export as module
from dicap.photos.export import TOLERANCE, decisions, description, export
from dicap.photos.predict import predict

ROOT = Path(__file__).parents[2]


def need_onnx():
    for name in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason="the extra `export` is not installed: pip install 'dicap[export]'")


@pytest.fixture(scope="module")
def model(model):
    """One class is always yes, which is mostly wrong: such an answer is not given."""
    own, low = model.evidence, np.array([0.0, 1, 1])
    y = own.y * (np.arange(len(own.y)) % 3 > 0)[:, None].astype(np.int8)  # fewer labels are positive, so chances are lower
    classes = ["a, b", 'a "b"', "c"]
    return replace(model, classes=classes, evidence=replace(own, tau_pos=own.tau_pos * low, tau_neg=own.tau_neg * low, y=y))


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    need_onnx()
    out = tmp_path_factory.mktemp("export") / "model.onnx"
    return out, export(model, out)


def test_onnx_agrees_with_the_original(exported, model):
    out, apart = exported
    assert 0 < apart <= TOLERANCE
    assert json.loads(out.with_name("model.onnx.json").read_text()) == description(model)
    assert sorted(path.name for path in out.parent.glob("[!.]*")) == ["model.onnx", "model.onnx.json"]
    assert str(ROOT).encode() not in out.read_bytes()


def test_the_example_of_the_documentation_says_what_predict_says(exported, model, photos, tmp_path):
    out, _ = exported
    paths = [str(path) for path in sorted((photos / "deep").iterdir())]
    for orientation in range(2, 9):  # as cameras and telephones write them
        exif = Image.Exif()
        exif[0x0112] = orientation
        paths.append(str(tmp_path / f"{orientation}.png"))
        with Image.open(paths[0]) as image:
            image.save(paths[-1], exif=exif)
    ramp = np.linspace(0, 65535, 600).astype(np.uint16).reshape(20, 30)
    cut = Image.new("RGBA", (30, 20), (250, 10, 10, 255))
    cut.paste((10, 20, 240, 0), (0, 0, 15, 20))
    odd = {
        "cut, out.png": cut,
        'a "line\nor two".png': cut,
        "la.png": cut.convert("LA"),
        "gif.gif": cut,
        "grey.png": Image.fromarray(ramp),
        "grey.tif": Image.fromarray(ramp),
    }
    for name, image in odd.items():
        image.save(tmp_path / name, **({"tiffinfo": {262: 0}} if name == "grey.tif" else {}))
        paths.append(str(tmp_path / name))
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "onnx_example.py"), str(out), *paths], capture_output=True, text=True, check=True
    )
    frame = predict(model, paths)
    lines = list(csv.reader(io.StringIO(done.stdout)))
    assert [line[:2] for line in lines] == frame[["image", "class"]].to_numpy().tolist()
    assert [line[3] for line in lines] == frame["decision"].tolist()
    assert np.allclose([float(line[2]) for line in lines], frame["probability"], atol=1e-4)
    assert np.allclose([float(line[4] or "nan") for line in lines], frame["chance"], atol=6e-3, equal_nan=True)  # predict rounds


def test_a_threshold_just_below_1_still_says_yes_when_it_was_exported():
    tau = np.nextafter(np.float32(1), np.float32(0)) * np.ones(1)
    evidence = Evidence(tau, tau, np.full(1, np.nan), "none", *np.zeros((2, 0, 1)))
    rule = json.loads(json.dumps(decisions(Answers.of(evidence)), allow_nan=False))
    again = replace(evidence, tau_pos=np.array(rule["tau_pos"]), tau_neg=np.array(rule["tau_neg"]))
    assert Answers.of(evidence).decide(tau[None])[0] == Answers.of(again).decide(tau[None])[0] == 1


def test_a_model_that_does_not_agree_is_not_written(model, tmp_path, monkeypatch):
    need_onnx()
    monkeypatch.setattr(module, "write_onnx", lambda scorer, images, path, *_: path.write_bytes(b"a model"))
    monkeypatch.setattr(module, "_reader", lambda path: lambda images: np.full((len(images), 3), 0.5, np.float32))
    with pytest.raises(DataError, match="from the original's"):
        export(model, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_refusals_name_what_to_do(model, tmp_path, monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"pip install 'dicap\[export\]'"):
        export(model, tmp_path / "m.onnx")
