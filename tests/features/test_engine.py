"""Engines against torch, and what is said where one is missing, does not fit or computes something else."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from dicap.errors import DataError, SettingsError
from dicap.features import engine
from dicap.features.engine import choose_engine, scoring_engine
from dicap.machine.runtime import Runtime
from dicap.network import Network
from dicap.network.backbone import create_backbone
from dicap.network.decoupled import DecoupledHeads, DecoupledNetwork
from dicap.network.linear import LinearHead

CPU = Runtime(torch.device("cpu"))
SIDE = 32


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    """Exported backbones of these tests lie in a folder of their own."""
    patch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("engines")
    patch.setattr(engine.tempfile, "gettempdir", lambda: str(folder))
    yield folder
    patch.undo()


def network_of(name="test_resnet", size=SIDE):
    torch.manual_seed(0)
    backbone, channels = create_backbone(name, "random", 32, size)
    return Network(backbone, LinearHead(channels, 3), "half").to(memory_format=torch.channels_last).eval()


def images(count=5, size=SIDE):
    return torch.from_numpy(np.random.default_rng(1).integers(0, 256, (count, 3, size, size)).astype(np.uint8))


def available(name):
    if engine._missing():
        pytest.skip(f"{name} is not installed")


@pytest.mark.parametrize("name", ["onnxruntime"])
@pytest.mark.parametrize(("backbone", "size"), [("test_resnet", SIDE), ("test_vit", 32), ("test_convnext", 64)])
def test_an_engine_gives_torch_s_features_and_scores(name, backbone, size):
    available(name)
    network = network_of(backbone, size)
    fast, used = scoring_engine(network, CPU, name, image_size=size)
    assert used.name == name and used.difference < 1e-4 and used.precision == "float32" and not used.note
    for count in (1, 2, 7):
        batch = images(count, size)
        with torch.inference_mode():
            torch.testing.assert_close(fast.features(batch), network.features(batch), rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(fast(batch)[0], network(batch)[0], rtol=1e-4, atol=1e-4)
    assert isinstance(network.backbone, nn.Module) and network.backbone is not fast.backbone
    assert json.dumps(used.to_dict())


@pytest.mark.parametrize("name", ["onnxruntime"])
def test_features_are_the_same_whatever_the_number_of_threads_and_of_callers(name, monkeypatch):
    available(name)
    network, batches = network_of(), [images(count) for count in (7, 1, 4, 7, 2)]
    found = []
    for threads, callers in ((1, 1), (3, 1), (3, 4)):
        monkeypatch.setattr(engine.torch, "get_num_threads", lambda threads=threads: threads)
        fast, _ = scoring_engine(network, CPU, name, image_size=SIDE)
        with ThreadPoolExecutor(callers) as pool:
            found.append(list(pool.map(lambda batch, fast=fast: fast.features(batch).detach().numpy(), batches)))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_method_s_own_network_works_with_an_engine():
    available("onnxruntime")
    torch.manual_seed(0)
    backbone, channels = create_backbone("test_resnet", "random", 32, SIDE)
    network = DecoupledNetwork(backbone, DecoupledHeads(lambda: LinearHead(channels, 3)), "half").eval()
    fast, _ = scoring_engine(network, CPU, "onnxruntime", image_size=SIDE)
    assert type(fast) is DecoupledNetwork
    with torch.inference_mode():
        torch.testing.assert_close(fast(images())[0], network(images())[0], rtol=1e-4, atol=1e-4)


def test_auto_takes_onnxruntime_on_a_processor_and_torch_elsewhere(monkeypatch):
    available("onnxruntime")
    assert choose_engine("auto", torch.device("cpu")) == "onnxruntime"
    assert choose_engine("auto", torch.device("cuda")) == "torch"
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: None)
    assert choose_engine("auto", torch.device("cpu")) == "torch"


def test_an_exported_backbone_is_kept_and_a_damaged_one_made_anew(own_cache, monkeypatch):
    available("onnxruntime")
    network, made = network_of("test_resnet", 48), []
    export = engine._export
    monkeypatch.setattr(engine, "_export", lambda *arguments: (made.append(1), export(*arguments)))
    for _ in range(2):
        scoring_engine(network, CPU, "onnxruntime", image_size=48)
    assert len(made) == 1
    newest = max(own_cache.glob("dicap-engines-*/*/backbone.onnx"), key=lambda path: path.stat().st_mtime)
    newest.write_bytes(newest.read_bytes()[: newest.stat().st_size // 2])
    _, used = scoring_engine(network, CPU, "onnxruntime", image_size=48)
    assert len(made) == 2 and used.difference < 1e-4
    with torch.no_grad():
        next(network.backbone.parameters()).mul_(1.5)
    monkeypatch.setattr(engine, "_export", lambda *arguments: 1 / 0)
    with pytest.raises(DataError, match="cannot be exported"):  # other weights are another file
        scoring_engine(network, CPU, "onnxruntime", image_size=48)
    assert not list(own_cache.glob("dicap-engines-*/.export-*"))


def test_a_cache_that_others_can_write_to_is_not_used(tmp_path, monkeypatch):
    available("onnxruntime")
    monkeypatch.setattr(engine.tempfile, "gettempdir", lambda: str(tmp_path))
    engine._cache().chmod(0o777)
    with pytest.raises(DataError, match=r"open to others; remove it, set TMPDIR"):
        scoring_engine(network_of(), CPU, "onnxruntime", image_size=SIDE)


def wrong(monkeypatch, factor):
    plain = engine._open_onnxruntime
    exported = engine.exported
    monkeypatch.setattr(engine, "exported", lambda *a, fresh: (exported(*a, fresh=False)[0], False))  # as if just made

    class Scaled(nn.Module):
        def forward(self, features):
            return features * factor

    monkeypatch.setattr(engine, "_open_onnxruntime", lambda path: nn.Sequential(plain(path), Scaled()))


@pytest.mark.parametrize("factor", [1.001, float("nan")])
def test_an_engine_that_differs_from_torch_is_refused(monkeypatch, factor):
    available("onnxruntime")
    wrong(monkeypatch, factor)
    with pytest.raises(DataError, match=r"--engine: onnxruntime's features differ .* tolerance of 0.0001; use --engine torch$"):
        scoring_engine(network_of(), CPU, "onnxruntime", image_size=SIDE)


def test_auto_goes_back_to_torch_and_says_so(monkeypatch):
    available("onnxruntime")
    wrong(monkeypatch, 1.1)
    network = network_of()
    fast, used = scoring_engine(network, CPU, "auto", image_size=SIDE)
    assert used.name == "torch" and "differ from those of torch" in used.note and used.note.endswith("; torch is used")
    with torch.inference_mode():
        torch.testing.assert_close(fast.features(images()), network.features(images()))


def test_a_backbone_that_cannot_be_exported_is_one_line():
    class Odd(nn.Module):
        def forward(self, pixels):
            return pixels * float(pixels.sum())  # looks at the numbers: no graph

    available("onnxruntime")
    network = Network(Odd(), nn.Identity(), "half")
    with pytest.raises(DataError, match=r"^--engine: this backbone cannot be exported .*; use --engine torch$") as caught:
        scoring_engine(network, CPU, "onnxruntime", image_size=SIDE)
    assert "\n" not in str(caught.value)
    assert scoring_engine(network, CPU, "auto", image_size=SIDE)[1].name == "torch"


def test_wrong_choices_are_one_line(monkeypatch):
    with pytest.raises(SettingsError, match=r"--engine: found 'tensorrt', allowed are auto, torch"):
        choose_engine("tensorrt", torch.device("cpu"))
    with pytest.raises(SettingsError, match=r"'onnxruntime' on cuda, but it runs on processors"):
        choose_engine("onnxruntime", torch.device("cuda"))
    monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: None if name == "onnxscript" else 1)
    with pytest.raises(SettingsError, match=r"its package onnxscript is not installed; pip install 'dicap\[export\]', or use"):
        choose_engine("onnxruntime", torch.device("cpu"))


def test_torch_under_mixed_precision_is_measured_too():
    _, used = scoring_engine(network_of(), Runtime(torch.device("cpu"), torch.bfloat16), "torch", image_size=SIDE)
    assert used.precision == "bfloat16" and 0 < used.difference < 0.15
