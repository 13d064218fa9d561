"""The rules against docs/methods.md 9's fixtures, against slow loops on random scores, and against what must always hold."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dicap.methods import rules

ALL = {
    "top1": lambda p, p_l, y: rules.top_k(p, 1, rules.seen(y)),
    "topk": lambda p, p_l, y: rules.top_k(p, rules.default_k(y, "table"), rules.seen(y)),
    "iat fixed": lambda p, p_l, y: rules.fixed_threshold(p, 0.5, rules.seen(y)),
    "iat matched": lambda p, p_l, y: rules.fixed_threshold(p, rules.matched_threshold(p_l, y), rules.seen(y)),
    "quota": lambda p, p_l, y: rules.quota(p, y)[0],
    "metric": lambda p, p_l, y: by_metric(p, p_l, y),
}


def by_metric(p, p_l, y):
    thresholds, _ = rules.metric_thresholds(p_l, y)
    return rules.fixed_threshold(p, thresholds.tau_pos, thresholds.active)


def scores(seed, n=40, n_l=12, classes=5, ties=False):
    """p (N, C), p_l (N_l, C), y (N_l, C); the last class has no labelled positive."""
    rng = np.random.default_rng(seed)
    p, p_l = (rng.random((m, classes)).astype(np.float32) for m in (n, n_l))
    if ties:
        p, p_l = p.round(1), p_l.round(1)
    y = rng.random((n_l, classes)) < rng.random(classes)
    y[:, -1] = False
    return torch.from_numpy(p), torch.from_numpy(p_l), torch.from_numpy(y.astype(np.uint8))


@pytest.mark.parametrize("k", [1, 2, 4, 9])
@pytest.mark.parametrize("ties", [False, True])
def test_top_k_equals_a_slow_version(k, ties):
    p, _, y = scores(k, ties=ties)
    active = rules.seen(y)
    got = rules.top_k(p, k, active)
    for i in range(len(p)):
        order = sorted((c for c in range(5) if active[c]), key=lambda c: (-float(p[i, c]), c))
        for c in range(5):
            assert got[i, c] == (-1 if not active[c] else int(c in order[:k]))


def test_k_is_the_published_table_or_the_rounded_label_count():
    y = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]])
    assert [rules.default_k(y, name) for name in ("voc2012", "coco2014", "nuswide", "awa2", "table")] == [2, 3, 2, 3, 3]
    assert rules.default_k(torch.zeros(4, 3), "table") == 1


def test_a_fixed_threshold_by_hand():
    p = torch.tensor([[0.96, 0.5, 0.04], [0.95, 0.49, 0.05]])
    assert rules.fixed_threshold(p, 0.5, torch.ones(3, dtype=torch.bool)).tolist() == [[1, 1, 0], [1, 0, 0]]


def test_matched_threshold_gives_as_many_positives_as_labels():
    for seed in range(5):
        _, p_l, y = scores(seed)
        assert int((p_l.double() >= rules.matched_threshold(p_l, y)).sum()) == int(y.sum())
    assert rules.matched_threshold(p_l, torch.zeros_like(y)) == float("inf")


def slow_quota(p, y, eta_pos, eta_neg):
    """As the published code: sort each class, take ranks by int(), compare with >= and <=."""
    n, classes = p.shape
    label = np.full((n, classes), -1)
    for c in range(classes):
        f = float(y[:, c].double().mean())
        g = int((y[:, c] == 0).sum()) / len(y)  # counted, not 1 - f
        column = [float(v) for v in p[:, c].double()]
        falling = sorted(column, reverse=True)
        a = int(f * n)
        if a == 0:
            continue
        high, low = int(eta_pos * f * n), int(eta_neg * g * n)
        for i, value in enumerate(column):
            used = (high > 0 and value >= falling[high - 1]) or (low > 0 and value <= falling[::-1][low - 1])
            if used:
                label[i, c] = int(value >= falling[a - 1])
    return label


def test_quota_equals_a_slow_version():
    """With ties and without; among the classes are some in which 1 - f would give another number of negatives."""
    rng, differing = np.random.default_rng(0), 0
    for i in range(60):
        n, n_l, eta = int(rng.integers(20, 400)), int(rng.integers(3, 60)), [(1.0, 0.998), (1.0, 1.0), (0.5, 0.7)][i % 3]
        p, _, y = scores(int(rng.integers(1e6)), n, n_l, classes=30, ties=i % 2 == 1)
        got, thresholds, guarded = rules.quota(p, y, eta_pos=eta[0], eta_neg=eta[1])
        assert (got.numpy() == slow_quota(p, y, *eta)).all()
        assert guarded >= 1 and not thresholds.active[-1]
        assert ((thresholds.tau_pos >= 0) & (thresholds.tau_pos <= 1)).all()
        f, g = y.double().mean(0).numpy(), (y == 0).sum(0).numpy() / n_l
        differing += int(((eta[1] * g * n).astype(int) != (eta[1] * (1 - f) * n).astype(int)).sum())
    assert differing > 0


@pytest.mark.parametrize("beta", [0.5, 2.0])
def test_metric_thresholds_equal_a_slow_version(beta):
    for seed in range(3):
        _, p_l, y = scores(seed, ties=seed == 1)
        thresholds, guarded = rules.metric_thresholds(p_l, y, beta=beta)
        for c in range(y.shape[1]):
            if not y[:, c].any():
                assert not thresholds.active[c]
                continue
            best = (-1.0, 0.0)
            for step in range(100):
                chosen = [float(v) >= step / 100 for v in p_l[:, c].double()]
                hits = sum(a and bool(t) for a, t in zip(chosen, y[:, c], strict=True))
                if hits:
                    precision, recall = hits / sum(chosen), hits / int(y[:, c].sum())
                    value = (1 + beta**2) * precision * recall / (beta * precision + recall)
                    if value > best[0] + 1e-12:
                        best = (value, step / 100)
            assert float(thresholds.tau_pos[c]) == best[1]
        assert guarded == int((y.sum(0) == 0).sum())


@pytest.mark.parametrize("ratio", [0.5, 1.0, 5.0])
def test_hard_negatives_equal_a_slow_version(ratio):
    rng = np.random.default_rng(int(ratio * 2))
    cosine = torch.from_numpy(rng.random((30, 4)).round(1))  # with ties
    label = torch.from_numpy(rng.choice([-1, 0, 1], (30, 4), p=[0.2, 0.65, 0.15]))
    label[:, 3].clamp_(max=0)
    kept = rules.hard_negatives(cosine, label, ratio)
    for c in range(4):
        positives = int((label[:, c] == 1).sum())
        negatives = sorted((i for i in range(30) if label[i, c] == 0), key=lambda i: (-float(cosine[i, c]), i))
        limit = int(ratio * positives) if positives else len(negatives)
        wanted = set(negatives[:limit]) | {i for i in range(30) if label[i, c] == 1}
        assert {i for i in range(30) if kept[i, c]} == wanted


@pytest.mark.parametrize("name", ALL)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 30), n_l=st.integers(1, 15), classes=st.integers(1, 6), ties=st.booleans())
def test_no_class_without_a_labelled_positive_gets_a_pseudo_positive(name, seed, n, n_l, classes, ties):
    p, p_l, y = scores(seed, n, n_l, classes, ties)
    label = ALL[name](p, p_l, y)
    assert label.shape == p.shape and label.dtype == torch.int8
    assert set(label.unique().tolist()) <= {-1, 0, 1}
    assert not (label[:, ~rules.seen(y)] == 1).any()
