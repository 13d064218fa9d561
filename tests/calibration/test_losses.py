"""Losses against the published fixtures, slow loop versions, and autograd's own derivative."""

import math

import numpy as np
import pytest
import torch

from dicap.losses import asymmetric_loss, binary_cross_entropy, nt_xent


def slow_asymmetric(x, y, gamma_neg, gamma_pos, clip):
    p = 1 / (1 + math.exp(-x))
    shifted = max(p - clip, 0)
    return y * (1 - p) ** gamma_pos * -math.log(p) + (1 - y) * shifted**gamma_neg * -math.log(1 - shifted)


@pytest.mark.parametrize(("gamma_neg", "gamma_pos", "clip"), [(4, 0, 0.05), (2, 1, 0.1), (0, 0, 0.0), (3, 2, 0.0)])
def test_asymmetric_loss_equals_a_loop(gamma_neg, gamma_pos, clip):
    rng = np.random.default_rng(0)
    x, y = rng.normal(0, 3, (8, 5)), rng.random((8, 5)).round()
    loss = asymmetric_loss(torch.from_numpy(x), torch.from_numpy(y), gamma_neg=gamma_neg, gamma_pos=gamma_pos, clip=clip)
    slow = [
        [slow_asymmetric(a, b, gamma_neg, gamma_pos, clip) for a, b in zip(*rows, strict=True)] for rows in zip(x, y, strict=True)
    ]
    np.testing.assert_allclose(loss.numpy(), slow, rtol=2e-4, atol=1e-7)


def plain_nt_xent(z_w, z_s, temperature):
    """Of every row, which of the others is its partner: the whole similarity matrix at once, its gradient by autograd."""
    z = torch.nn.functional.normalize(torch.cat([z_w, z_s]), dim=1)
    n = len(z)
    partner = (torch.arange(n) + n // 2) % n
    similarity = z @ z.T / temperature
    own = torch.eye(n, dtype=torch.bool)
    return torch.nn.functional.cross_entropy(similarity.masked_fill(own, -torch.inf), partner)


@pytest.mark.parametrize("chunk", [1, 5, 1024])
def test_nt_xent_in_chunks_has_the_plain_value_and_gradient(chunk):
    z_w, z_s = torch.randn(2, 7, 4, generator=torch.Generator().manual_seed(1)).unbind()
    values, gradients = [], []
    for loss in (lambda a, b: nt_xent(a, b, temperature=0.7, chunk=chunk), lambda a, b: plain_nt_xent(a, b, 0.7)):
        leaves = [z.clone().requires_grad_() for z in (z_w, z_s)]
        values.append(3 * loss(*leaves))
        values[-1].backward()
        gradients.append(torch.stack([z.grad for z in leaves]))
    torch.testing.assert_close(*values, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(*gradients, atol=1e-6, rtol=1e-5)


def test_nt_xent_at_the_fixture_of_the_specification():
    """docs/methods.md 9, by the published temperature."""
    assert nt_xent(torch.eye(2), torch.eye(2)).item() == pytest.approx(0.239545, abs=1e-6)


def test_nt_xent_keeps_nothing_of_the_size_of_the_similarities():
    z = torch.randn(50, 4, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()) or tensor, lambda tensor: tensor):
        nt_xent(z.detach(), z, chunk=8)
    assert kept and max(kept) <= 100 * 4


@pytest.mark.parametrize("z", [torch.randn(0, 3), torch.randn(1, 3), torch.zeros(4, 5)])
def test_nt_xent_of_too_few_pairs_is_zero_and_that_of_zeros_finite_each_with_a_gradient(z):
    z = z.clone().requires_grad_()
    loss = nt_xent(z, z.detach())
    loss.backward()
    assert torch.isfinite(loss) and z.grad is not None and (len(z) > 1 or (loss == 0 and not z.grad.any()))


@pytest.mark.parametrize("amp", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_losses_and_contrast_stay_in_float32(amp):
    torch.manual_seed(0)
    x, y = torch.randn(5, 4), (torch.rand(5, 4) < 0.5).float()
    z = 60 * torch.randn(2, 6, 128)  # |z|^2 is beyond 65504, the largest number of float16
    layer = torch.nn.Linear(4, 4)
    with torch.autocast("cpu", dtype=amp):
        logits = layer(x)
        assert logits.dtype == amp
        for loss in (asymmetric_loss, binary_cross_entropy):
            assert loss(logits, y).dtype == torch.float32 and torch.equal(loss(logits, y), loss(logits.float(), y))
        half = z.to(amp).requires_grad_()
        found = nt_xent(half[0], half[1])
        exact = nt_xent(half[0].detach().float(), half[1].detach().float())
        assert found.dtype == torch.float32 and torch.isfinite(found) and torch.equal(found, exact)
        found.backward()
        assert torch.isfinite(half.grad).all()


@pytest.mark.promise("Losses stay finite at logits of 80 in half precision", section="Numbers")
@pytest.mark.parametrize("x", [80.0, -80.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_all_losses_are_finite_at_logits_of_80(x, dtype):
    logits = torch.full((2, 3), x, dtype=dtype, requires_grad=True)
    for y in (torch.zeros(2, 3), torch.ones(2, 3)):
        for loss in (asymmetric_loss, binary_cross_entropy):
            value = loss(logits, y)
            (gradient,) = torch.autograd.grad(value.sum(), logits)
            assert torch.isfinite(value).all() and torch.isfinite(gradient).all()
