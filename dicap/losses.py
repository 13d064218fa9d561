"""The losses, element by element, in fp32: the caller reduces.

Logits x, p = sigmoid(x), labels y in {0, 1}, all (B, C) unless said otherwise.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def asymmetric_loss(x: Tensor, y: Tensor, *, gamma_neg: float = 4.0, gamma_pos: float = 0.0, clip: float = 0.05) -> Tensor:
    """Asymmetric loss (Ridnik et al., ICCV 2021; methods.md 4.2), without reduction.

    Positive entry: -(1 - p)^gamma_pos log p. Negative entry, with p_m = max(p - clip, 0): -p_m^gamma_neg log(1 - p_m).
    Soft labels mix the two linearly. The focusing weights are constants for the gradient, as in the published code.

    Args:
        x: logits, any shape; y: labels in [0, 1] of the same shape.

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
    return y * focus_pos * positive + (1 - y) * focus_neg * negative


def binary_cross_entropy(x: Tensor, y: Tensor) -> Tensor:
    """-y log p - (1 - y) log(1 - p), without reduction, in fp32 (methods.md 4.1)."""
    return F.binary_cross_entropy_with_logits(x.float(), y.float(), reduction="none")


def nt_xent(
    z_w: Tensor,
    z_s: Tensor,
    *,
    temperature: float = 0.5,
    normalize: bool = True,
    classes: Tensor | None = None,
    chunk: int = 1024,
) -> Tensor:
    """Class-wise contrastive loss of the uncertain entries (paper eq. L_uncer; methods.md 3.7, 3.13-E).

    The 2B vectors of both views are anchors; an anchor's positive is its counterpart in the other view and all 2B - 2 others
    are negatives: -(1/2B) sum_i log( exp(z_i . z_i+ / tau) / sum_{j != i} exp(z_i . z_j / tau) ).

    Args:
        z_w, z_s: (B, D) embeddings of the weak and of the strong view, row i of both from the same entry.
        normalize: scale every vector to unit length first (a layer-normalised z has |z|^2 = D and would overflow).
        classes: (B,) class of each entry; if given, other entries of the same class are no negatives.
        chunk: anchors handled at once; only bounds memory.

    Returns:
        Scalar float32; 0 (with a gradient of 0) for fewer than 2 pairs.
    """
    assert z_w.shape == z_s.shape and z_w.ndim == 2, (z_w.shape, z_s.shape)
    pairs = len(z_w)
    if pairs < 2:
        return 0 * (z_w.float().sum() + z_s.float().sum())
    z = torch.cat([z_w, z_s]).float()  # (2B, D)
    if normalize:
        z = F.normalize(z, dim=1)
    n = 2 * pairs
    anchors = torch.arange(n, device=z.device)
    partner = (anchors + pairs) % n
    label = torch.cat([classes, classes]) if classes is not None else None
    total = z.new_zeros(())
    with torch.autocast(z.device.type, enabled=False):  # losses stay in fp32 under mixed precision
        for start in range(0, n, chunk):
            rows = anchors[start : start + chunk]
            similarity = z[rows] @ z.T / temperature  # (b, 2B)
            own = anchors == rows.unsqueeze(1)
            if label is not None:
                same = label[rows].unsqueeze(1) == label
                own = own | (same & (anchors != partner[rows].unsqueeze(1)))
            similarity = similarity.masked_fill(own, -torch.inf)
            total = total + F.cross_entropy(similarity, partner[rows], reduction="sum")
    return total / n
