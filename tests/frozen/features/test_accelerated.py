"""A backbone computed by ONNX Runtime against torch, and what becomes of it where it cannot be used."""

import importlib.util
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import timm
import torch

from dicap.frozen.features import accelerated as module
from dicap.frozen.features.accelerated import PAYS_FROM, accelerated
from dicap.network import Network
from dicap.network.backbone import create_backbone
from dicap.network.linear import LinearHead

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[3]
SIDE = 32
MANY = PAYS_FROM // SIDE**2
TORCH = ["torch", torch.__version__]


@pytest.fixture(autouse=True)
def _installed():
    for package in module.PACKAGES:
        pytest.importorskip(package)


def network_of(name="test_resnet", tokens="map"):
    torch.manual_seed(0)
    backbone, channels = create_backbone(name, "random", 32, SIDE, tokens)
    network = Network(backbone, LinearHead(channels, 3), "half").to(memory_format=torch.channels_last).eval()
    network.tokens = tokens
    return network


def images(count):
    return torch.from_numpy(np.random.default_rng(1).integers(0, 256, (count, 3, SIDE, SIDE)).astype(np.uint8))


# A transformer's tokens become a map; its shapes are computed from the batch's size, for which only the newer exporter will do.
@pytest.mark.parametrize(("name", "tokens"), [("test_resnet", "map"), ("test_vit", "class_and_mean")])
def test_it_gives_torch_s_features_and_scores(monkeypatch, name, tokens):
    contents, write = [], module.write_onnx

    def written(module, example, path, names):
        write(module, example, path, names)
        contents.append(path.read_bytes())

    monkeypatch.setattr(module, "write_onnx", written)
    network = network_of(name, tokens)
    fast, by = accelerated(network, MANY, SIDE, CPU)
    assert by[0] == "onnxruntime"
    assert (b"node_" in contents[0]) == (name == "test_vit"), "which exporter wrote it"
    places = (ROOT, Path(torch.__file__).parent, Path(timm.__file__).parent)
    assert not any(str(place).encode() in contents[0] for place in places)
    for count in (1, 2, 7):
        batch = images(count)
        with torch.inference_mode():
            features = fast.features(batch)
            torch.testing.assert_close(features, network.features(batch), rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(fast(batch)[0], network(batch)[0], rtol=1e-4, atol=1e-4)
            with monkeypatch.context() as threads:
                threads.setattr(torch, "get_num_threads", lambda: 3)
                assert torch.equal(fast.features(batch), features), "whatever the number of threads"
    assert network.backbone is not fast.backbone and fast.head is network.head


def test_a_forked_process_computes_too():
    fast, _ = accelerated(network_of(), MANY, SIDE, CPU)
    with torch.inference_mode():
        expected = fast.features(images(2))
        if not (child := os.fork()):
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)
            os._exit(not torch.equal(fast.features(images(2)), expected))
    assert os.waitpid(child, 0)[1] == 0


def test_torch_computes_what_cannot_be_exported_and_what_is_soon_done(monkeypatch):
    network = network_of()
    assert accelerated(network, MANY - 1, SIDE, CPU) == (network, TORCH)
    assert accelerated(network, MANY, SIDE, torch.device("cuda")) == (network, TORCH)
    for where, name, value in (
        (module, "write_onnx", None),
        (module, "TOLERANCE", -1.0),
        (importlib.util, "find_spec", lambda _: None),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, value)
            assert accelerated(network, MANY, SIDE, CPU) == (network, TORCH)
