"""PCLP's generator and joint discriminator, similar to SAGAN (docs/methods.md 4.7).

Both have spectral norm on orthogonally initialised layers, residual blocks and one self-attention block; the generator also adds
noise. Images are square with 2^n >= 8 pixels per side. The networks for 128 and 256 pixels are as published; other sizes
continue their pattern.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

ATTENTION_AT = 32  # side of the generator's map with self-attention; half the image size if that is smaller
NOISE_BY_PLACE = 16  # side of the largest map with a separate noise strength per position


def normed(layer: nn.Linear | nn.Conv2d) -> nn.Module:
    """The layer under spectral norm, with orthogonal weights and biases of 0."""
    nn.init.orthogonal_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return spectral_norm(layer)


class Noise(nn.Module):
    """Adds noise with a learnt strength to a map of `size` pixels: one strength per channel, on small maps also per position."""

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        side = size if size <= NOISE_BY_PLACE else 1
        self.strength = nn.Parameter(torch.zeros(1, channels, side, side))

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, h, w) -> the same shape; one noise map per image."""
        return x + self.strength * torch.randn(len(x), 1, *x.shape[2:], device=x.device, dtype=x.dtype)


class SelfAttention(nn.Module):
    """Self-attention over the positions of a map, added with a learnt strength that starts at 0."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = max(channels // 8, 1)
        self.query, self.key = (normed(nn.Conv2d(channels, inner, 1)) for _ in range(2))
        self.value = normed(nn.Conv2d(channels, max(channels // 2, 1), 1))
        self.out = normed(nn.Conv2d(max(channels // 2, 1), channels, 1))
        self.strength = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, h, w) -> the same shape; keys and values are pooled 2 x 2."""
        q = self.query(x).flatten(2).transpose(1, 2)  # (B, hw, d)
        k, v = (F.max_pool2d(layer(x), 2).flatten(2).transpose(1, 2) for layer in (self.key, self.value))  # (B, hw/4, .)
        attended = F.scaled_dot_product_attention(q, k, v, scale=1.0)  # (B, hw, D/2)
        return x + self.strength * self.out(attended.transpose(1, 2).unflatten(2, x.shape[2:]))


class GeneratorBlock(nn.Module):
    """Doubles the map to `size` pixels: BN, ReLU, upsample, conv, noise, BN, ReLU, conv, noise, plus a convolved shortcut."""

    def __init__(self, channels: int, out: int, size: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(out)
        self.conv1 = normed(nn.Conv2d(channels, out, 3, padding=1))
        self.conv2 = normed(nn.Conv2d(out, out, 3, padding=1))
        self.shortcut = normed(nn.Conv2d(channels, out, 1))
        self.noise1, self.noise2 = Noise(out, size), Noise(out, size)

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, h, w) -> (B, D', 2h, 2w)."""
        h = self.noise1(self.conv1(F.interpolate(F.relu(self.norm1(x)), scale_factor=2)))
        return self.noise2(self.conv2(F.relu(self.norm2(h)))) + F.interpolate(self.shortcut(x), scale_factor=2)


class Generator(nn.Module):
    """z -> image.

    Args:
        latent: L; size: pixels of the image, a power of two; width: channels of the outermost map.
    """

    def __init__(self, latent: int, size: int, width: int) -> None:
        super().__init__()
        factors = (16, 16, 8, 8, 4, 2, 1) if size >= 256 else (16, 16, 8, 4, 2, 1)  # for maps of 4, 8 ... `size` pixels
        channels = [width * factors[min(i, len(factors) - 1)] for i in range((size // 4).bit_length())]
        self.first = normed(nn.Linear(latent, channels[0] * 16))
        blocks: list[nn.Module] = [Noise(channels[0], 4)]
        for i in range(len(channels) - 1):
            pixels = 8 << i
            blocks.append(GeneratorBlock(channels[i], channels[i + 1], pixels))
            if pixels == min(ATTENTION_AT, max(size // 2, 8)):
                blocks.append(SelfAttention(channels[i + 1]))
        self.blocks = nn.Sequential(*blocks)
        self.last = nn.Sequential(
            nn.BatchNorm2d(channels[-1]), nn.ReLU(), normed(nn.Conv2d(channels[-1], 3, 3, padding=1)), nn.Tanh()
        )

    def forward(self, z: Tensor) -> Tensor:
        """(B, L) -> (B, 3, S, S) in [-1, 1]."""
        return self.last(self.blocks(self.first(z).unflatten(1, (-1, 4, 4))))


class DiscriminatorBlock(nn.Module):
    """Halves the map: ReLU, conv, ReLU, conv, pool, plus a convolved and pooled shortcut.

    Without `halves` there is no pooling, and the shortcut is the identity if the number of channels stays.
    """

    def __init__(self, channels: int, out: int, *, halves: bool = True) -> None:
        super().__init__()
        self.conv1 = normed(nn.Conv2d(channels, out, 3, padding=1))
        self.conv2 = normed(nn.Conv2d(out, out, 3, padding=1))
        self.shortcut = normed(nn.Conv2d(channels, out, 1)) if halves or channels != out else nn.Identity()
        self.pool = nn.AvgPool2d(2) if halves else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(B, D, h, w) -> (B, D', h/2, w/2), or (B, D', h, w)."""
        h = self.conv2(F.relu(self.conv1(F.relu(x))))
        return self.pool(h) + self.shortcut(self.pool(x))


class ResidualMLP(nn.Module):
    """A linear layer and three residual blocks, with ReLU."""

    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.first = normed(nn.Linear(channels, hidden))
        self.blocks = nn.ModuleList(
            nn.Sequential(normed(nn.Linear(hidden, hidden)), nn.ReLU(), normed(nn.Linear(hidden, hidden))) for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, hidden)."""
        x = F.relu(self.first(x))
        for block in self.blocks:
            x = F.relu(x + block(x))
        return x


class Discriminator(nn.Module):
    """(image, z) -> score: the mean of the scores of an image branch, a latent branch and a joint branch.

    Args:
        latent: L; size: pixels of the image; width: channels of the outermost map; hidden: units of the MLPs.
    """

    def __init__(self, latent: int, size: int, width: int, *, hidden: int = 512) -> None:
        super().__init__()
        # For maps of `size`, `size` / 2 ... pixels: at most six maps, none smaller than 4 pixels.
        factors = (1, 2, 4, 8, 8, 16) if size >= 256 else (1, 2, 4, 8, 16, 16)
        channels, top = [width * factor for factor in factors[: (size // 4).bit_length()]], 16 * width
        blocks = [DiscriminatorBlock(channels[i], channels[i + 1]) for i in range(len(channels) - 1)]
        self.image = nn.Sequential(
            normed(nn.Conv2d(3, width, 1)),
            blocks[0],
            SelfAttention(channels[1]),
            *blocks[1:],
            DiscriminatorBlock(channels[-1], top, halves=False),
            nn.ReLU(),
        )
        self.latent = ResidualMLP(latent, hidden)
        self.joint = ResidualMLP(top + hidden, hidden)
        self.heads = nn.ModuleList(normed(nn.Linear(d, 1)) for d in (top, hidden, hidden))

    def forward(self, images: Tensor, z: Tensor) -> Tensor:
        """(B, 3, S, S), (B, L) -> (B,) float32."""
        x, code = self.image(images).sum((2, 3)), self.latent(z)
        parts = (x, code, self.joint(torch.cat([x, code], 1)))
        image, latent, joint = (head(part).float() for head, part in zip(self.heads, parts, strict=True))  # (B, 1) each
        return (image + latent + joint).squeeze(1) / 3
