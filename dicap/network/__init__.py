"""Networks: a timm backbone and a head, from uint8 images to logits and class-wise embeddings."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from dicap.network.backbone import create_backbone, feature_map, own_normalization
from dicap.network.stored import StoredBackbone
from dicap.settings import Settings

NORMALIZATION = {
    "none": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),  # the published code feeds [0, 1] pixels (docs/methods.md 2.4)
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}


class Network(nn.Module):
    """Backbone and head. The network normalises its inputs, so a saved model takes resized pixels directly.

    Attributes:
        memory_format: memory format of the backbone's input.
        tokens: how a transformer's tokens become a map (network.tokens).
        grid: g, if the head takes feature maps pooled to g x g positions (features.grid); None: unpooled maps.
    """

    memory_format: torch.memory_format = torch.channels_last
    tokens: str = "map"
    grid: int | None = None
    mean: Tensor
    scale: Tensor
    backbone: nn.Module
    aside: list[nn.Module]

    def __init__(self, backbone: nn.Module, head: nn.Module, normalize: str) -> None:
        super().__init__()
        name = "none" if isinstance(backbone, StoredBackbone) else normalize  # a stored backbone gets no pixels
        used = own_normalization(backbone) if name == "auto" else NORMALIZATION[name]
        mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in used)
        self.register_buffer("mean", 255 * mean, persistent=False)
        self.register_buffer("scale", 1 / (255 * std), persistent=False)
        self.backbone = backbone
        self.head = head

    def features(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W), uint8 or 0..255 floats -> the feature map (B, D, h, w) that the head takes.

        While the backbone is detached, the inputs are feature maps already.
        """
        if self.backbone is None:
            return images
        # The bytes are made contiguous before normalisation: per-channel means take three times as long in channels last.
        pixels = (images.contiguous().float() - self.mean).mul_(self.scale)
        maps = feature_map(self.backbone, pixels.contiguous(memory_format=self.memory_format), self.tokens)
        return maps if self.grid is None else pooled(maps, self.grid)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images (B, 3, H, W) uint8 -> logits (B, C), class-wise embeddings z (B, C, D)."""
        return self.head(self.features(images))


def pooled(maps: Tensor, grid: int) -> Tensor:
    """Feature maps (B, D, h, w) averaged to g x g positions: (B, D, g, g) float32."""
    maps = maps.float()
    return maps if tuple(maps.shape[2:]) == (grid, grid) else adaptive_avg_pool2d(maps, grid)


def detach_backbone(network: nn.Module, grid: int) -> None:
    """Detach the frozen backbone, in place: the network takes feature maps instead of images, and only the head has parameters.

    Args:
        grid: g; maps are pooled to g x g positions, also after the backbone is attached again.
    """
    assert isinstance(network, Network)
    network.grid = grid
    network.aside = [network.backbone]  # a list, so that torch does not register the backbone as a submodule
    network.backbone = None  # type: ignore[assignment]


def attach_backbone(network: nn.Module) -> None:
    """Undo `detach_backbone`: the network takes images again. The head still gets pooled maps."""
    if isinstance(network, Network) and network.backbone is None:
        (network.backbone,) = network.aside


def hold_statistics(network: nn.Module) -> None:
    """Put the backbone's BatchNorm into eval mode: running statistics are used and do not change; scale and shift are trained."""
    for module in network.backbone.modules() if network.backbone is not None else ():  # type: ignore[union-attr, operator]
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()


def build_head(settings: Settings, channels: int, classes: int) -> nn.Module:
    """The head named by `settings.head`; only its module is imported."""
    if settings.head == "linear":
        from dicap.network.linear import LinearHead

        return LinearHead(channels, classes, settings.linear.features)
    from dicap.network.ml_decoder import MLDecoder

    n = settings.network
    return MLDecoder(channels, classes, dim=n.decoder_dim, ffn=n.decoder_ffn, heads=n.decoder_heads, dropout=n.dropout)


def build_network(
    settings: Settings,
    make_head: Callable[[int], nn.Module],
    kind: type[Network] = Network,
    *,
    pretrained: bool = True,
    stored: StoredBackbone | None = None,
) -> Network:
    """Backbone and head. Raises the SettingsErrors of `create_backbone`.

    Args:
        make_head: makes a head for this number of feature-map channels.
        pretrained: false if a saved model's weights will replace the initial weights.
        stored: placeholder of the frozen backbone, for a network whose inputs are feature maps.
    """
    s = settings.network
    if stored is None:
        weights = settings.backbone_weights if pretrained else "random"
        backbone, channels = create_backbone(settings.backbone, weights, s.stride, settings.image_size, s.tokens)
    else:
        backbone, channels = stored, stored.channels
    # On a CPU core too, channels last trains EfficientNet-Lite0 1.4 times and the small ResNet 1.3 times as fast.
    network = kind(backbone, make_head(channels), s.normalize).to(memory_format=torch.channels_last)
    network.tokens = s.tokens
    return network
