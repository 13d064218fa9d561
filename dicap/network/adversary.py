"""PCLP's generator and joint discriminator, in the manner of SAGAN (docs/methods.md 4.7).

Spectral norm everywhere, residual blocks, one self-attention block, noise injected into the generator. Both work on square
images of 2^n >= 8 pixels in [-1, 1].
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

ATTENTION_AT = 32  # pixels of the map that attends to itself; half the image where that is smaller


def widths(size: int, width: int) -> list[int]:
    """Channels of the maps of 4, 8 ... `size` pixels: `width` at the outermost, doubled inwards up to 16 times."""
    steps = (size // 4).bit_length() - 1
    return [width * min(2 ** (steps - i), 16) for i in range(steps + 1)]


class Noise(nn.Module):
    """Adds noise of a learnt strength to every channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, h, w) -> the same shape; one noise map per image."""
        return x + self.strength * torch.randn(len(x), 1, *x.shape[2:], device=x.device, dtype=x.dtype)


class SelfAttention(nn.Module):
    """Attention between the places of a map, added with a learnt strength that starts at 0."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = max(channels // 8, 1)
        self.query, self.key = (spectral_norm(nn.Conv2d(channels, inner, 1, bias=False)) for _ in range(2))
        self.value = spectral_norm(nn.Conv2d(channels, max(channels // 2, 1), 1, bias=False))
        self.out = spectral_norm(nn.Conv2d(max(channels // 2, 1), channels, 1, bias=False))
        self.strength = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, h, w) -> the same shape; keys and values are pooled 2 x 2."""
        q = self.query(x).flatten(2).transpose(1, 2)  # (B, hw, d)
        k, v = (F.max_pool2d(layer(x), 2).flatten(2).transpose(1, 2) for layer in (self.key, self.value))  # (B, hw/4, .)
        attended = F.scaled_dot_product_attention(q, k, v, scale=1.0)  # (B, hw, D/2)
        return x + self.strength * self.out(attended.transpose(1, 2).unflatten(2, x.shape[2:]))


class GeneratorBlock(nn.Module):
    """Doubles the map: BN, ReLU, upsample, conv, noise, BN, ReLU, conv, plus a convolved shortcut."""

    def __init__(self, channels: int, out: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(out)
        self.conv1 = spectral_norm(nn.Conv2d(channels, out, 3, padding=1))
        self.conv2 = spectral_norm(nn.Conv2d(out, out, 3, padding=1))
        self.shortcut = spectral_norm(nn.Conv2d(channels, out, 1))
        self.noise = Noise(out)

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, h, w) -> (B, D', 2h, 2w)."""
        h = self.noise(self.conv1(F.interpolate(F.relu(self.norm1(x)), scale_factor=2)))
        return self.conv2(F.relu(self.norm2(h))) + F.interpolate(self.shortcut(x), scale_factor=2)


class Generator(nn.Module):
    """z -> image.

    Args:
        latent: L; size: pixels of the image, a power of two; width: channels of the outermost map.
    """

    def __init__(self, latent: int, size: int, width: int) -> None:
        super().__init__()
        channels = widths(size, width)
        self.first = spectral_norm(nn.Linear(latent, channels[0] * 16))
        blocks: list[nn.Module] = []
        for i in range(len(channels) - 1):
            blocks.append(GeneratorBlock(channels[i], channels[i + 1]))
            if 8 << i == min(ATTENTION_AT, max(size // 2, 8)):
                blocks.append(SelfAttention(channels[i + 1]))
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Sequential(
            nn.BatchNorm2d(channels[-1]), nn.ReLU(), spectral_norm(nn.Conv2d(channels[-1], 3, 3, padding=1)), nn.Tanh()
        )

    def forward(self, z: Tensor) -> Tensor:
        """(B, L) -> (B, 3, S, S) in [-1, 1]."""
        return self.last(self.blocks(self.first(z).unflatten(1, (-1, 4, 4))))


class DiscriminatorBlock(nn.Module):
    """Halves the map: conv, ReLU, conv, pool, plus a pooled shortcut."""

    def __init__(self, channels: int, out: int, *, first: bool = False) -> None:
        super().__init__()
        self.first = first  # the image itself must not pass a ReLU
        self.conv1 = spectral_norm(nn.Conv2d(channels, out, 3, padding=1))
        self.conv2 = spectral_norm(nn.Conv2d(out, out, 3, padding=1))
        self.shortcut = spectral_norm(nn.Conv2d(channels, out, 1))

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, h, w) -> (B, D', h/2, w/2)."""
        h = self.conv2(F.relu(self.conv1(x if self.first else F.relu(x))))
        return F.avg_pool2d(h, 2) + self.shortcut(F.avg_pool2d(x, 2))


class Discriminator(nn.Module):
    """(image, z) -> score: the mean of an image branch's, a latent branch's and a joint branch's.

    Args:
        latent: L; size: pixels of the image; width: channels of the outermost map; hidden: units of the MLPs.
    """

    def __init__(self, latent: int, size: int, width: int, *, hidden: int = 512) -> None:
        super().__init__()
        channels = widths(size, width)[::-1]
        blocks: list[nn.Module] = []
        for i in range(len(channels) - 1):
            blocks.append(DiscriminatorBlock(3 if i == 0 else channels[i], channels[i + 1], first=i == 0))
            if size >> (i + 1) == min(ATTENTION_AT, size // 2):
                blocks.append(SelfAttention(channels[i + 1]))
        self.image = nn.Sequential(*blocks, nn.ReLU())
        self.latent = nn.Sequential(*_mlp(latent, hidden), *_mlp(hidden, hidden))
        self.joint = nn.Sequential(*_mlp(channels[-1] + hidden, hidden), *_mlp(hidden, hidden))
        self.heads = nn.ModuleList(spectral_norm(nn.Linear(d, 1)) for d in (channels[-1], hidden, hidden))

    def forward(self, images: Tensor, z: Tensor) -> Tensor:
        """(B, 3, S, S), (B, L) -> (B,) float32."""
        x, code = self.image(images).mean((2, 3)), self.latent(z)
        parts = (x, code, self.joint(torch.cat([x, code], 1)))
        return torch.stack([head(part).squeeze(1) for head, part in zip(self.heads, parts, strict=True)]).float().mean(0)


def _mlp(channels: int, out: int) -> list[nn.Module]:
    return [spectral_norm(nn.Linear(channels, out)), nn.LeakyReLU(0.2)]
