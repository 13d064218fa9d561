"""PCLP's prior: a linear structural causal model over the label coordinates of z (docs/methods.md 4.7).

epsilon ~ N(0, I). The first C coordinates become z = f(epsilon (I - A)^-1); the other coordinates stay Gaussian. A is strictly
upper triangular, so the order of the classes is the causal order. f is an affine map of each coordinate.
"""

import torch
from torch import Tensor, nn


class CausalPrior(nn.Module):
    """Maps noise to z.

    Args:
        classes: C. Scale and shift of f start from U(0, 1), as in the published code.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.adjacency = nn.Parameter(torch.zeros(classes, classes))
        scale, shift = torch.rand(2, classes)
        self.affine = nn.ParameterDict({"scale": scale, "shift": shift})

    @property
    def a(self) -> Tensor:
        """A, (C, C), strictly upper triangular; the parameter's other entries are unused and get no gradient."""
        return self.adjacency.triu(1)

    def forward(self, epsilon: Tensor) -> Tensor:
        """Noise (B, L) -> z (B, L), float32."""
        epsilon = epsilon.float()
        classes = len(self.adjacency)
        system = torch.eye(classes, device=epsilon.device) - self.a
        with torch.autocast(epsilon.device.type, enabled=False):
            # epsilon (I - A)^-1 by back substitution: I - A is upper triangular with a unit diagonal
            label = torch.linalg.solve_triangular(system, epsilon[:, :classes], upper=True, left=False, unitriangular=True)
        return torch.cat([label * self.affine["scale"] + self.affine["shift"], epsilon[:, classes:]], 1)
