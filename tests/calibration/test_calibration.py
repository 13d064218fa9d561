"""The estimator against slow loop versions, the fixtures of the specification, and properties."""

import math
from contextlib import nullcontext
from functools import partial
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from dicap.calibration import rates as calibration
from dicap.calibration.rates import (
    Rates,
    correctness_weight,
    count_bins,
    curve_error,
    estimate_rates,
    in_pieces,
    interpolated,
)
from dicap.calibration.thresholds import dual_thresholds, hard_labels
from dicap.settings.schema import Calibration

K = 20
ANCHORS = ("left", "centre", "right")
CENTRES = (torch.arange(K) + 0.5).double() / K
STRAIGHT = Rates(torch.zeros(K), torch.zeros(K), CENTRES, anchor="centre")  # w(p, 1) = p but at the ends


def scores(n, c, seed=0):
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.random((n, c))), torch.from_numpy((rng.random((n, c)) < 0.3).astype(np.uint8))


# Scores that lie on borders more often than chance would have it.
score = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.5, 1 / K, np.nextafter(1 / K, 0), np.nextafter(1.0, 0)]))
matrices = arrays.arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 4)), elements=score)


# -- counting ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bins", [1, 7, 20])
def test_counts_of_known_entries_equal_a_loop(bins):
    p, y = scores(200, 5)
    p[0, 0], p[1, 1], y = 0.0, 1.0, torch.where(torch.rand(y.shape) < 0.3, -1, y.to(torch.int8))
    expected = torch.zeros(2, 5, bins)
    for i, c in torch.nonzero(y >= 0).tolist():
        expected[1 - y[i, c], c, min(math.floor(p[i, c] * bins), bins - 1)] += 1
    assert torch.equal(torch.stack(count_bins(p, y, bins)).float(), expected.sum(1))


@pytest.mark.parametrize("p", [-0.1, 3.0, float("nan")])
def test_what_is_no_confidence_is_not_counted(p):
    with pytest.raises(ValueError, match=r"expected confidences in \[0, 1\]; apply the sigmoid to logits"):
        count_bins(torch.tensor([[0.5, p]]), torch.tensor([[1, 0]]), K)


@pytest.mark.parametrize("function", [partial(count_bins, bins=K), dual_thresholds, partial(correctness_weight, rates=STRAIGHT)])
@given(y=st.lists(st.sampled_from([-100, -1, 0, 1, 0.5, 2, math.inf, math.nan]), min_size=1, max_size=4))
def test_labels_are_1_0_or_below_0(function, y):
    allowed = all(value in (0, 1) or value < 0 for value in y)
    with nullcontext() if allowed else pytest.raises(ValueError, match="expected 1, 0, or -1 where unknown"):
        function(torch.full((1, len(y)), 0.3), torch.tensor([y], dtype=torch.float64))


# -- rates ------------------------------------------------------------------------------------------------


def slow_fill(rates, seen):
    places = [k for k in range(len(rates)) if seen[k]]
    out = []
    for k in range(len(rates)):
        left, right = [j for j in places if j <= k], [j for j in places if j >= k]
        if left and right and left[-1] != right[0]:
            share = (k - left[-1]) / (right[0] - left[-1])
            out.append(rates[left[-1]] * (1 - share) + rates[right[0]] * share)
        else:
            out.append(rates[left[-1] if left else right[0]] if places else (k + 0.5) / len(rates))
    return out


@pytest.mark.parametrize("empty_bin", ["interpolate", "zero"])
@example(counts=[(1, 0), (0, 0), (0, 0), (0, 1)])  # thirds, which float32 rounds
@given(counts=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=12))
def test_rates_of_bins_equal_a_loop(empty_bin, counts):
    n_pos, n_neg = torch.tensor(counts).double().unbind(1)
    rates = [p / (p + n + 1e-8) for p, n in counts]
    expected = rates if empty_bin == "zero" else slow_fill(rates, [p + n > 0 for p, n in counts])
    assert estimate_rates(n_pos, n_neg, empty_bin=empty_bin).r_pos.tolist() == pytest.approx(expected, abs=1e-12, rel=0)


# -- weights ----------------------------------------------------------------------------------------------


def papers_equation(p, r, anchor):
    """K ((k+1)/K - p) r[k] + K (p - k/K) r[k+1] for one confidence, r[k] at the place in its bin that `anchor` says."""
    bins = len(r)
    shift = {"left": 0, "centre": 0.5, "right": 1}[anchor] / bins
    k = math.floor((p - shift) * bins)  # k/K <= p - shift < (k+1)/K
    before, after = r[min(max(k, 0), bins - 1)], r[min(max(k + 1, 0), bins - 1)]  # the end bin's own rate beyond the ends
    return bins * ((k + 1) / bins + shift - p) * before + bins * (p - k / bins - shift) * after


@given(
    matrices,
    st.sampled_from(ANCHORS),
    st.lists(st.floats(0, 1), min_size=1, max_size=25),
    st.lists(st.integers(0, 25), max_size=3),
)
def test_weights_are_the_papers_equation(p, anchor, r, edges):
    p = np.concatenate([p.ravel(), np.minimum(np.array(edges) / len(r), 1)])  # on the borders of bins too
    weights = interpolated(torch.from_numpy(p), torch.tensor(r, dtype=torch.float64), anchor=anchor)
    assert weights.tolist() == pytest.approx([papers_equation(value, r, anchor) for value in p.tolist()], abs=1e-13)


@pytest.mark.parametrize("policy", get_args(Calibration.model_fields["policy"].annotation))
@given(
    p=arrays.arrays(np.float32, (4, 3), elements=st.floats(0, 1, width=32)),
    labels=arrays.arrays(np.int8, (4, 3), elements=st.integers(-1, 1)),
)
def test_every_policy_weights_each_entry_by_itself(policy, p, labels):
    p, label = torch.from_numpy(p), torch.from_numpy(labels)
    weight = correctness_weight(p, label, STRAIGHT, policy=policy)
    assert weight.dtype == torch.float32
    w_pos = {"uniform": None, "confidence": p}.get(policy, p.clamp(0.5 / K, 1 - 0.5 / K))  # the curve is flat beyond its ends
    for i in range(4):
        for c in range(3):
            chance = 1 if w_pos is None else {1: w_pos[i, c], 0: 1 - w_pos[i, c]}.get(int(label[i, c]))
            assert weight[i, c] == (0 if label[i, c] < 0 else pytest.approx(float(chance), abs=1e-6))


@pytest.mark.parametrize("anchor", ANCHORS)
def test_a_rate_beside_a_knot_leaves_the_probabilities_by_no_rounding(anchor):
    for bins in range(2, 60):
        knots = (np.arange(bins) + {"left": 0.0, "centre": 0.5, "right": 1.0}[anchor]) / bins
        places = np.concatenate([np.nextafter(knots, end) for end in (0, 1)])
        w = interpolated(torch.from_numpy(places), torch.arange(bins).double() % 2, anchor=anchor)
        assert (w >= 0).all() and (w <= 1).all()


# -- thresholds -------------------------------------------------------------------------------------------


@given(
    p=arrays.arrays(np.float64, (6, 3), elements=st.integers(0, 8).map(lambda eighths: eighths / 8)),
    y=arrays.arrays(np.int8, (6, 3), elements=st.sampled_from([-1, 0, 0, 1])),
)
def test_thresholds_and_labels_equal_a_loop(p, y):
    """Equal scores, crossed thresholds, whose overlap is uncertain, and classes never seen positive or negative."""
    t = dual_thresholds(torch.from_numpy(p), torch.from_numpy(y))
    labels = hard_labels(torch.from_numpy(p), t)
    for c in range(3):
        positive, negative = p[y[:, c] == 1, c], p[y[:, c] == 0, c]
        pos = (max(positive) + min(positive)) / 2 if len(positive) else 1
        neg = (max(negative) + min(negative)) / 2 if len(negative) else 0
        crossed = len(positive) > 0 < len(negative) and neg > pos
        low, high = (neg, pos) if not crossed else (pos, neg)
        assert (t.tau_neg[c], t.tau_pos[c], t.crossed[c]) == (low, high, crossed)
        assert (t.n_pos[c], t.n_neg[c]) == (len(positive), len(negative))
        assert labels[:, c].tolist() == [1 if score > high else 0 if score < low else -1 for score in p[:, c]]


def test_without_thresholds_an_entry_is_positive_from_a_half():
    p, y = scores(30, 2)
    t = dual_thresholds(p, y, rule="none")
    assert t.tau_pos.tolist() == t.tau_neg.tolist() == [0.5] * 2
    assert hard_labels(torch.tensor([[0.5, 0.49]]), t, rule="none").tolist() == [[1, 0]]


# -- a whole refresh --------------------------------------------------------------------------------------


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


# -- the estimated curve ----------------------------------------------------------------------------------


def test_curve_error_weighs_bins_by_entries():
    error = curve_error(torch.tensor([0.0, 0.6]), torch.tensor([0.5, 1.0]), torch.tensor([1.0, 3.0]))
    assert error == pytest.approx((0.5 + 3 * 0.4) / 4)
    assert curve_error(torch.tensor([0.2]), torch.tensor([0.5]), torch.tensor([1.0])) == pytest.approx(0.3)
    assert math.isnan(curve_error(torch.zeros(2), torch.zeros(2), torch.zeros(2)))


# -- many entries -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("entries", [1, 20])
def test_pieces_of_the_rows_change_nothing(monkeypatch, entries):
    p, y = scores(40, 3)
    rates = estimate_rates(*count_bins(p, y, K))
    monkeypatch.setattr(calibration, "ENTRIES", entries)
    assert torch.equal(in_pieces(rates.at, p), rates.at(p))
