"""D2L's network: four heads over one backbone, for whole images and for their tiles (docs/methods.md 4.9)."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dicap.network import Network

GRID = 2  # tiles per side


class DecoupledHeads(nn.Module):
    """f1: whole images, labels. f2: tiles, labels. f3: whole images, pseudo-labels. f4: tiles, pseudo-labels.

    f3 and f4 are used in training only. `make` returns a new head from a feature map to (logits, embeddings).
    """

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.f1, self.f2, self.f3, self.f4 = make(), make(), make(), make()


class DecoupledNetwork(Network):
    """Backbone and `DecoupledHeads`."""

    head: DecoupledHeads

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Images (B, 3, H, W) uint8 -> logits (f1 + joint f2) / 2 (B, C), embeddings of f1 (B, C, D)."""
        return self.look(images, cut_tiles(images))

    def look(self, images: Tensor, tiles: Tensor) -> tuple[Tensor, Tensor]:
        """As `forward`, but with given tiles (B, 4, 3, H, W), which may be other views than the images."""
        whole, z = self.head.f1(self.features(images))
        return (whole.float() + self.joint(self.tile_features(tiles), self.head.f2)) / 2, z

    def tile_features(self, tiles: Tensor) -> Tensor:
        """Tiles (B, 4, 3, H, W) -> feature maps (4B, D, h, w)."""
        return self.features(tiles.flatten(0, 1))

    @staticmethod
    def joint(features: Tensor, head: nn.Module) -> Tensor:
        """Feature maps (4B, D, h, w) of tiles -> joint logits (B, C)."""
        return joint_logits(head(features)[0].unflatten(0, (-1, GRID**2)))


def joint_logits(logits: Tensor) -> Tensor:
    """One logit per class, the sum over tiles of softmax(x over tiles) * x (Equation (26)); (B, T, C) -> (B, C) float32."""
    x = logits.float()
    return (x.softmax(1) * x).sum(1)


def cut_tiles(images: Tensor, grid: int = GRID) -> Tensor:
    """Cut images (B, 3, H, W) into a grid of tiles, each resized to H x W (bilinear): (B, grid**2, 3, H, W) uint8."""
    height, width = images.shape[2:]
    edges_y = [height * i // grid for i in range(grid + 1)]
    edges_x = [width * i // grid for i in range(grid + 1)]
    tiles = [
        images[:, :, edges_y[row] : edges_y[row + 1], edges_x[column] : edges_x[column + 1]]
        for row in range(grid)
        for column in range(grid)
    ]
    resized = [F.interpolate(tile.float(), (height, width), mode="bilinear").round().to(torch.uint8) for tile in tiles]
    return torch.stack(resized, 1)
