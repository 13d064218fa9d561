"""Where entries of the labels are unknown: every function counts the known ones alone, as a slow loop over them would."""

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from dicap.calibration.ranks import curve_by_rank
from dicap.calibration.rates import count_bins, surprisals
from dicap.calibration.thresholds import dual_thresholds
from dicap.losses import asymmetric_loss, binary_cross_entropy
from dicap.methods import rules
from dicap.methods.base import reduced
from dicap.metrics.operating_point import best_threshold, of_answers
from dicap.metrics.ranking import average_precision, can_be_tested, leave_one_out, map_interval, mean_average_precision
from dicap.photos import review
from dicap.training.evidence import prior_of

IMAGES, CLASSES = 40, 4


def world(seed, unknown=0.4):
    """(p, y): scores and labels of int8 with -1 at unknown entries; every class has a known positive and a known negative."""
    rng = np.random.default_rng(seed)
    y = (rng.random((IMAGES, CLASSES)) < 0.4).astype(np.int8)
    p = (0.3 * y + 0.7 * rng.random(y.shape)).round(2).clip(0.001, 0.999)  # some scores are equal
    y[rng.random(y.shape) < unknown] = -1
    y[0], y[1] = 1, 0
    y[(y < 0).all(1), 2] = 0  # an image of which nothing is known is not labelled
    return p, y


def tensors(seed, unknown=0.4):
    return tuple(torch.from_numpy(array) for array in world(seed, unknown))


def elsewhere(y, seed):
    """The same labels with other negative numbers at the unknown entries."""
    other = np.random.default_rng(seed).integers(-100, 0, y.shape).astype(np.int8)
    return torch.where(y < 0, torch.from_numpy(other), y)


@pytest.mark.parametrize("loss", [asymmetric_loss, binary_cross_entropy])
def test_an_unknown_entry_has_no_loss_and_no_gradient(loss):
    p, y = tensors(0)
    x = torch.logit(p).float().requires_grad_()
    elements, known = loss(x, y), y >= 0
    assert torch.equal(elements[known], loss(x[known], y[known])) and (elements[~known] == 0).all()
    elements.sum().backward()
    assert (x.grad[y < 0] == 0).all() and (x.grad[y == 1] != 0).all()


def test_a_mean_loss_is_over_known_entries():
    _, y = tensors(1)
    elements = torch.where(y < 0, 0, torch.rand(y.shape))
    mean = reduced(elements, IMAGES, tiny.settings({"loss.reduction": "mean"}), y)
    assert mean == pytest.approx(float(elements[y >= 0].mean()))


def test_a_class_of_which_only_positives_are_known_gets_no_quota():
    p, y = tensors(6)
    y[:, 1] = torch.where(y[:, 1] == 1, 1, -1)
    label, thresholds, guarded = rules.quota(p, y)
    assert (label[:, 1] == -1).all() and guarded == 1 and not thresholds.active[1]
    y[:, 1] = 1  # in every image, and that is known
    for rows in (y, torch.cat([y, torch.full_like(y, -1)])):  # images of which nothing is known count nowhere
        assert (rules.quota(p, rows)[0][:, 1] == 1).all()


def test_average_precision_is_of_each_class_known_entries():
    p, y = world(11)
    aps = [average_precision_score(y[y[:, c] >= 0, c], p[y[:, c] >= 0, c]) for c in range(CLASSES)]
    assert average_precision(p, y) == pytest.approx(aps)
    whole, without = leave_one_out(p, y)
    assert mean_average_precision(p, y) == pytest.approx(100 * np.mean(aps)) == whole
    for i in range(2, IMAGES):
        rest = np.arange(IMAGES) != i
        assert without[i] == pytest.approx(mean_average_precision(p[rest], y[rest]))
    assert not np.isnan(map_interval(p, y)).any()


def test_a_class_of_which_only_positives_are_known_is_not_judged():
    p, y = world(12)
    y[:, 0] = np.where(y[:, 0] == 1, 1, -1)
    assert can_be_tested(y).tolist() == [False, True, True, True]
    assert mean_average_precision(p, y, testable=True) == pytest.approx(mean_average_precision(p[:, 1:], y[:, 1:]))
    assert can_be_tested(np.ones((3, 1), np.uint8)).all(), "in every image, and that is known"


def test_k_is_the_sum_of_the_shares_of_known_entries():
    _, y = tensors(8)
    assert rules.default_k(y, "table") == max(1, round(prior_of(y.numpy()).sum()))


def answers(p, y):
    """All that is counted of answers by two thresholds, some of them unsure."""
    counted = of_answers(np.where(p > 0.6, 1, np.where(p < 0.3, 0, -1)), y)
    return torch.tensor([float(value) for key, value in counted.items() if key != "constant"])


EVERYTHING = {
    "asl": lambda p, y, u: asymmetric_loss(torch.logit(p), y),
    "bce": lambda p, y, u: binary_cross_entropy(torch.logit(p), y),
    "bins": lambda p, y, u: torch.stack(count_bins(p, y, 4)),
    "midrange": lambda p, y, u: torch.stack(dual_thresholds(p, y)[:4]),
    "quota": lambda p, y, u: rules.quota(u, y)[0],
    "metric": lambda p, y, u: rules.metric_thresholds(p, y)[0].tau_pos,
    "matched": lambda p, y, u: torch.tensor(rules.matched_threshold(p, y)),
    "top k": lambda p, y, u: torch.tensor(rules.default_k(y, "table")),
    "seen": lambda p, y, u: rules.seen(y),
    "groups": lambda p, y, u: torch.from_numpy(np.stack(curve_by_rank(p.numpy(), y.numpy()))),
    "log loss": lambda p, y, u: surprisals(p, y).mean(),
    "precision": lambda p, y, u: torch.from_numpy(average_precision(p.numpy(), y.numpy())),
    "interval": lambda p, y, u: torch.tensor(map_interval(p.numpy(), y.numpy())),
    "answers": lambda p, y, u: answers(p.numpy(), y.numpy()),
    "threshold": lambda p, y, u: torch.tensor(best_threshold(p.numpy(), y.numpy()) or 0.0),
    "prior": lambda p, y, u: torch.from_numpy(prior_of(y.numpy())),
    "surprise": lambda p, y, u: torch.from_numpy(review.entry_surprise(p.numpy(), y.numpy())),
    "out of fold": lambda p, y, u: torch.from_numpy(review.out_of_fold(p.float().numpy(), y.numpy())),
}

OF_ALL = ("bins", "matched", "groups", "log loss", "answers", "threshold")
OF_EACH_CLASS = ("midrange", "quota", "metric", "seen", "prior")


@pytest.mark.parametrize("name", OF_ALL)
@settings(max_examples=5)
@given(seed=st.integers(0, 1000))
def test_all_known_entries_in_a_row_say_the_same(name, seed):
    p, y = tensors(seed)
    known = y >= 0
    torch.testing.assert_close(EVERYTHING[name](p, y, None), EVERYTHING[name](p[known][:, None], y[known][:, None], None))


@pytest.mark.parametrize("name", OF_EACH_CLASS)
@settings(max_examples=5)
@given(seed=st.integers(0, 1000))
def test_the_known_entries_of_a_class_alone_say_the_same(name, seed):
    (p, y), (u, _) = tensors(seed), tensors(seed + 1)
    for c in range(CLASSES):
        known = y[:, c] >= 0
        alone = EVERYTHING[name](p[known, c, None], y[known, c, None], u[:, [c]])
        torch.testing.assert_close(EVERYTHING[name](p[:, [c]], y[:, [c]], u[:, [c]]), alone)
        torch.testing.assert_close(EVERYTHING[name](p, y, u)[..., c], alone[..., 0])


@pytest.mark.parametrize("name", EVERYTHING)
@settings(max_examples=5)
@given(seed=st.integers(0, 1000))
def test_what_stands_at_an_unknown_entry_changes_nothing(name, seed):
    (p, y), (u, _) = tensors(seed), tensors(seed + 1)
    assert torch.equal(EVERYTHING[name](p, y, u), EVERYTHING[name](p, elsewhere(y, seed), u))


@pytest.mark.parametrize("name", EVERYTHING)
def test_nothing_changes_where_all_is_known(name):
    (p, y), (u, _) = tensors(0, unknown=0), tensors(1)
    assert torch.equal(EVERYTHING[name](p, y, u), EVERYTHING[name](p, y.to(torch.uint8), u))
