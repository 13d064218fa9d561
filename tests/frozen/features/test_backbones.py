"""Backbones that people freeze today, small and with random weights: their maps, their own normalisation, local files."""

import pytest
import timm
import torch

from dicap.errors import SettingsError
from dicap.network import Network
from dicap.network.backbone import create_backbone, feature_map, own_normalization, weights_checksum

# Name in timm, what makes it small, image size, and side of its map.
FAMILIES = {
    "dinov2": ("vit_small_patch14_dinov2.lvd142m", {"depth": 1, "embed_dim": 48, "num_heads": 3}, 56, 4),
    "dinov2 with registers": ("vit_small_patch14_reg4_dinov2.lvd142m", {"depth": 1, "embed_dim": 48, "num_heads": 3}, 56, 4),
    "dinov3": ("vit_small_patch16_dinov3.lvd1689m", {"depth": 1, "embed_dim": 48, "num_heads": 3}, 64, 4),
    "siglip": ("vit_base_patch16_siglip_224.v2_webli", {"depth": 1, "embed_dim": 48, "num_heads": 3}, 48, 3),
    "clip": ("vit_base_patch16_clip_224.openai", {"depth": 1, "embed_dim": 48, "num_heads": 3}, 32, 2),
    "convnext": ("convnext_tiny.dinov3_lvd1689m", {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)}, 64, 2),
    "swin": ("swin_tiny_patch4_window7_224", {"depths": (1, 1, 1, 1), "embed_dim": 24}, 64, 2),
    "vit": ("test_vit", {}, 32, 2),
}
PREFIX = {"dinov2": 1, "dinov2 with registers": 5, "dinov3": 5, "siglip": 0, "clip": 1, "vit": 1}


@pytest.fixture
def small(monkeypatch):
    """create_backbone for the small member of a family; also for its state as a local file."""
    create = timm.create_model

    def make(family, weights="random", size=None, tokens="map"):
        name, smaller, usual, _ = FAMILIES[family]
        monkeypatch.setattr(timm, "create_model", lambda *a, **k: create(*a, **(k | smaller)))
        torch.manual_seed(1)
        return create_backbone(name, weights, 32, size or usual, tokens)

    return make


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_a_map_of_places_in_their_order(small, family):
    """Class and register tokens are left out."""
    backbone, channels = small(family)
    _, _, size, side = FAMILIES[family]
    pixels = torch.randn(2, 3, size, size)
    with torch.inference_mode():
        given, found = backbone.eval()(pixels), feature_map(backbone, pixels)
    assert found.shape == (2, channels, side, side)
    if family in PREFIX:
        assert torch.equal(given[:, PREFIX[family] :], found.flatten(2).transpose(1, 2))
    if family == "swin":  # its channels come last
        assert torch.equal(given, found.permute(0, 2, 3, 1))


@pytest.mark.parametrize("family", FAMILIES)
def test_class_token_and_mean_lie_side_by_side_where_there_is_a_class_token(small, family):
    if not PREFIX.get(family):
        with pytest.raises(SettingsError, match=r"network.tokens: found 'class_and_mean', but \w+\S* has no class token; set it"):
            small(family, tokens="class_and_mean")
        return
    backbone, channels = small(family, tokens="class_and_mean")
    pixels = torch.randn(2, 3, *[FAMILIES[family][2]] * 2)
    with torch.inference_mode():
        first = backbone.eval()(pixels)[:, 0]
        expected = torch.cat([first, feature_map(backbone, pixels).mean((2, 3))], 1)
        found = feature_map(backbone, pixels, "class_and_mean")
    assert found.shape == (2, channels, 1, 1) and channels == 2 * first.shape[1]
    torch.testing.assert_close(found[:, :, 0, 0], expected)


@pytest.mark.parametrize(
    ("family", "name", "mean", "std"),
    [
        ("dinov2", "imagenet", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ("siglip", "half", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
        ("clip", "auto", (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    ],
)
def test_auto_normalises_as_the_network_was_trained_which_may_have_a_name(small, family, name, mean, std):
    backbone, _ = small(family)
    assert own_normalization(backbone) == (mean, std)
    size = FAMILIES[family][2]
    images = torch.randint(0, 256, (2, 3, size, size), dtype=torch.uint8)
    pixels = (images / 255 - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1)
    for kind in ("auto", name):
        network = Network(backbone, torch.nn.Identity(), kind)
        with torch.inference_mode():
            torch.testing.assert_close(network.eval().features(images), feature_map(backbone, pixels), rtol=1e-4, atol=1e-4)


def test_auto_for_a_network_that_says_nothing_is_one_line():
    with pytest.raises(SettingsError, match=r"network.normalize: found 'auto', but the backbone has no mean and std; set none"):
        Network(torch.nn.Conv2d(3, 4, 1), torch.nn.Identity(), "auto")


def test_an_image_size_that_patches_do_not_fill_is_one_line(small):
    with pytest.raises(SettingsError, match=r"image_size: found 60, .* patches of 14 x 14 .* 56 or 70 \(it was trained at 518\)"):
        small("dinov2", size=60)


@pytest.mark.parametrize("family", ["dinov2 with registers", "dinov3", "siglip", "clip", "convnext"])
def test_a_local_file_serves_at_its_own_and_at_another_size(small, family, tmp_path):
    """Embeddings of positions are resampled; all other tensors are the file's."""
    source, _ = small(family)
    path = tmp_path / "weights.safetensors"
    from safetensors.torch import save_file

    save_file({name: tensor.contiguous() + 0.01 for name, tensor in source.state_dict().items()}, path)
    same, _ = small(family, str(path))
    assert weights_checksum(same.state_dict()) != weights_checksum(source.state_dict())
    for name, tensor in same.state_dict().items():
        torch.testing.assert_close(tensor, source.state_dict()[name] + 0.01)
    size = FAMILIES[family][2] * 2
    larger, channels = small(family, str(path), size)
    with torch.inference_mode():
        assert feature_map(larger.eval(), torch.zeros(1, 3, size, size)).shape == (1, channels, *[FAMILIES[family][3] * 2] * 2)
    for name, tensor in larger.state_dict().items():
        if tensor.shape == source.state_dict()[name].shape:
            torch.testing.assert_close(tensor, source.state_dict()[name] + 0.01)
        else:
            assert name == "pos_embed"
