"""Element-wise losses in fp32. The caller sums or averages them.

Logits x, p = sigmoid(x), labels y in {0, 1}, all (B, C) unless said otherwise. A label below 0 marks an unknown entry: its loss
and its gradient are 0.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def asymmetric_loss(x: Tensor, y: Tensor, *, gamma_neg: float = 4.0, gamma_pos: float = 0.0, clip: float = 0.05) -> Tensor:
    """Asymmetric loss (Ridnik et al., ICCV 2021; docs/methods.md 4.2, Equation (16)), without reduction.

    Positive entry: -(1 - p)^gamma_pos log p. Negative entry, with p_m = max(p - clip, 0): -p_m^gamma_neg log(1 - p_m).
    Soft labels mix the two linearly. The focusing weights are constants for the gradient, as in the published code.

    Args:
        x: logits, any shape; y: labels in [0, 1] of the same shape, below 0 where unknown.

    Returns:
        float32 tensor of x's shape, finite for every finite logit.
    """
    x, y = x.float(), y.float()
    p = torch.sigmoid(x)
    shifted = (p - clip).clamp_min(0)  # p_m
    positive = -F.logsigmoid(x)
    # log(1 - p_m) without the rounding of 1 - p near p = 1; with a clip 1 - p_m >= clip, so the logarithm is finite
    negative = -torch.log1p(-shifted) if clip > 0 else -F.logsigmoid(-x)
    with torch.no_grad():
        focus_pos = (1 - p) ** gamma_pos if gamma_pos else torch.ones_like(p)
        focus_neg = shifted**gamma_neg if gamma_neg else torch.ones_like(p)
    return torch.where(y < 0, 0, y * focus_pos * positive + (1 - y) * focus_neg * negative)


def binary_cross_entropy(x: Tensor, y: Tensor) -> Tensor:
    """-y log p - (1 - y) log(1 - p), without reduction, in fp32 (docs/methods.md 4.1, Equation (15)); 0 where y is below 0."""
    return torch.where(y < 0, 0, F.binary_cross_entropy_with_logits(x.float(), y.float(), reduction="none"))


def nt_xent(z_w: Tensor, z_s: Tensor, *, temperature: float = 0.5, chunk: int = 512) -> Tensor:
    """Class-wise contrastive loss of the uncertain entries, L_uncer (docs/methods.md 3.7, Equation (11), 3.13-E).

    Each of the 2B vectors of both views is an anchor. Its positive is the same entry in the other view; the other 2B - 2 vectors
    are its negatives: -(1/2B) sum_i log( exp(z_i . z_i+ / tau) / sum_{j != i} exp(z_i . z_j / tau) ).

    Args:
        z_w, z_s: (B, D) embeddings of the weak and of the strong view; row i of both belongs to the same entry. This function
            scales them to unit length (a layer-normalised z has |z|^2 = D and would overflow).
        chunk: anchors per pass. The whole (2B, 2B) similarity matrix is never in memory, in the backward pass neither.

    Returns:
        Scalar float32; 0 (with a gradient of 0) for fewer than 2 pairs.

    >>> z = torch.eye(3)  # three entries: the two views of an entry are equal, different entries are orthogonal
    >>> round(nt_xent(z, z).item(), 3), round(nt_xent(z, z.roll(1, 0)).item(), 3)
    (0.433, 2.433)
    """
    assert z_w.shape == z_s.shape and z_w.ndim == 2, (z_w.shape, z_s.shape)
    if len(z_w) < 2:
        return 0 * (z_w.float().sum() + z_s.float().sum())
    z = F.normalize(torch.cat([z_w, z_s]).float(), dim=1)  # (2B, D)
    with torch.autocast(z.device.type, enabled=False):  # losses stay in fp32 under mixed precision
        return _NTXent.apply(z, temperature, chunk)  # type: ignore[return-value]


class _NTXent(torch.autograd.Function):
    """The loss and its gradient in one pass over chunks of anchors. Memory holds the similarities of one chunk at a time.

    S = z z^T / tau, and P is the softmax of each row of S without its diagonal entry. Row i adds -log P[i, i+] / 2B to the
    loss and G[i] = (P[i] - 1[i+]) / (2B tau) to dL/dS. The gradient is G z + G^T z.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, temperature: float, chunk: int) -> Tensor:
        n = len(z)
        gradient = torch.zeros_like(z) if ctx.needs_input_grad[0] else None
        total = z.new_zeros(())
        for rows in torch.arange(n, device=z.device).split(chunk):  # (b,) anchors
            position = torch.arange(len(rows), device=z.device)
            partner = (rows + n // 2) % n
            anchors = z[rows]
            similarity = (anchors @ z.T).div_(temperature)  # (b, 2B)
            positive = similarity[position, partner]
            similarity[position, rows] = -torch.inf
            log_sum = torch.logsumexp(similarity, 1)
            total += (log_sum - positive).sum()
            if gradient is not None:
                slope = similarity.sub_(log_sum.unsqueeze(1)).exp_()  # (b, 2B)
                slope[position, partner] -= 1
                gradient.addmm_(slope.T, anchors)
                gradient.index_add_(0, rows, slope @ z)
        if gradient is not None:
            ctx.save_for_backward(gradient.div_(n * temperature))
        return total / n

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * scale, None, None
