"""Borders of the mathematics: exact 0 and 1, nothing to count, and properties of the whole refresh."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dicap.calibration.rates import correctness_weight, count_bins, estimate_rates, interpolated
from dicap.calibration.thresholds import dual_thresholds, hard_labels
from dicap.losses import asymmetric_loss, binary_cross_entropy, nt_xent

K = 20
ANCHORS = ("left", "centre", "right")
# Scores that lie on borders more often than chance would have it.
score = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.5, 1 / K, np.nextafter(1 / K, 0), np.nextafter(1.0, 0)]))
matrices = arrays.arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 4)), elements=score)


def refresh(p, y, p_new, *, bins=K, anchor="left", empty_bin="interpolate", policy="estimated"):
    """(label, weight) of new scores, from labelled ones: sections 3 and 4 in a row."""
    p, y, p_new = (torch.as_tensor(array) for array in (p, y, p_new))
    rates = estimate_rates(*count_bins(p, y, bins), anchor=anchor, empty_bin=empty_bin)
    label = hard_labels(p_new, dual_thresholds(p, y))
    return label, correctness_weight(p_new, label, rates, policy=policy)


@pytest.mark.promise("The order of images changes no weight, threshold or pseudo-label", section="Numbers")
@given(matrices, st.data())
def test_the_whole_refresh_does_not_depend_on_the_order_of_images(p, data):
    y = data.draw(arrays.arrays(np.uint8, p.shape, elements=st.integers(0, 1)))
    p_new = data.draw(arrays.arrays(np.float64, p.shape, elements=score))
    order, new_order = (np.array(data.draw(st.permutations(range(len(p))))) for _ in range(2))
    one, other = refresh(p, y, p_new), refresh(p[order], y[order], p_new[new_order])
    assert torch.equal(one[0][new_order], other[0]) and torch.equal(one[1][new_order], other[1])


@pytest.mark.promise("Weights are probabilities, and w(p, 0) = 1 - w(p, 1)", section="Numbers")
@given(matrices, st.data(), st.sampled_from(ANCHORS), st.sampled_from(["interpolate", "zero"]), st.integers(1, 30))
def test_weights_are_probabilities_whatever_was_counted(p, data, anchor, empty_bin, bins):
    y = data.draw(arrays.arrays(np.uint8, p.shape, elements=st.integers(0, 1)))
    label, weight = refresh(p, y, p, anchor=anchor, empty_bin=empty_bin, bins=bins)
    assert ((weight >= 0) & (weight <= 1)).all() and (weight[label < 0] == 0).all()
    rates = estimate_rates(*count_bins(torch.from_numpy(p), torch.from_numpy(y), bins), anchor=anchor, empty_bin=empty_bin)
    ones = torch.ones(p.shape, dtype=torch.int8)
    confidence = torch.from_numpy(p)
    both = [correctness_weight(confidence, k * ones, rates) for k in (1, 0)]
    torch.testing.assert_close(both[0] + both[1], torch.ones(p.shape), atol=1e-6, rtol=0)
    if bins == 1:
        assert len(both[0].unique()) == 1  # a single bin is a constant


@pytest.mark.promise("Weights are monotone in the confidence if the rates are", section="Numbers")
@given(arrays.arrays(np.float64, K, elements=st.floats(0, 1)), st.sampled_from(ANCHORS), matrices)
def test_higher_confidence_never_weighs_less_where_rates_rise(rates, anchor, p):
    flat = torch.from_numpy(np.sort(p.ravel())).unsqueeze(1)
    weight = interpolated(flat, torch.from_numpy(np.sort(rates)), anchor=anchor)
    assert (weight.diff(dim=0) >= -1e-12).all()


@pytest.mark.parametrize("p", [-0.1, 3.0, float("nan")])
def test_what_is_no_confidence_is_not_counted(p):
    with pytest.raises(ValueError, match=r"expected confidences in \[0, 1\]; of logits take the sigmoid"):
        count_bins(torch.tensor([[0.5, p]]), torch.tensor([[1, 0]]), K)


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


def test_embeddings_of_zero_have_a_finite_loss_and_gradient():
    z = torch.zeros(4, 5, requires_grad=True)
    loss = nt_xent(z, z.detach())
    loss.backward()
    assert torch.isfinite(loss) and z.grad is not None and torch.isfinite(z.grad).all()
