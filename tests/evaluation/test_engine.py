"""Published models computed by another engine: the same predictions, and torch where there is nothing to gain."""

import numpy as np
import pytest
import torch

from dicap.errors import SettingsError
from dicap.evaluation import engine as module
from dicap.evaluation.engine import with_engine
from dicap.features import engine
from dicap.machine.runtime import Runtime
from dicap.models import load_model
from dicap.use.predict import predict

CPU = Runtime(torch.device("cpu"))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("engines")
    monkeypatch.setattr(engine.tempfile, "gettempdir", lambda: str(folder))


@pytest.mark.skipif(bool(engine._missing()), reason="onnxruntime is not installed")
def test_predictions_are_torch_s(trained, raw_photos):
    path = trained / "finetune" / "model.safetensors"
    plain = predict(path, raw_photos, device="cpu", engine="torch")
    fast = predict(path, raw_photos, device="cpu", engine="onnxruntime")
    np.testing.assert_allclose(fast["probability"], plain["probability"], atol=1e-4)
    assert (fast["image"] == plain["image"]).all()
    assert predict(path, raw_photos, device="cpu").equals(plain), "auto computes a few images with torch"


def test_auto_exports_nothing_for_a_few_images_and_says_why_it_stays_with_torch(trained, monkeypatch):
    model = load_model(trained / "finetune" / "model.safetensors")
    asked = []
    monkeypatch.setattr(
        module, "scoring_engine", lambda network, *a, **k: (network, asked.append(a) or engine.Engine("torch", "", "", 0, "why"))
    )
    monkeypatch.setattr(module, "choose_engine", lambda *_: "onnxruntime")
    few = module.PAYS_FROM // model.settings.image_size**2 - 1
    assert with_engine(model, CPU, "auto", few) == (model, "") and not asked
    assert with_engine(model, CPU, "auto", few + 1)[1] == "why" and len(asked) == 1
    with_engine(model, CPU, "onnxruntime", 1)
    assert len(asked) == 2, "who names an engine gets it"


def test_an_unknown_engine_is_one_line(trained, raw_photos):
    with pytest.raises(SettingsError, match="--engine: found 'abacus', allowed are auto, torch"):
        predict(trained / "finetune" / "model.safetensors", raw_photos, engine="abacus")
