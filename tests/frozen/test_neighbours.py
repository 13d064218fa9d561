"""Rows averaged with their neighbours, against slow loops; what must not change the answer."""

import numpy as np
import pytest

from dicap.frozen import neighbours
from dicap.frozen.neighbours import affinity, averaged, principal_components
from dicap.frozen.solver import rotate


def rows_of(n, features, seed=0):
    return np.random.default_rng(seed).normal(0.3, 1, (n, features)).astype(np.float32)


def slow_affinity(x, k):
    """Weights (n, n) by loops over pairs."""
    n, k = len(x), min(k, len(x) - 1)
    x = x.astype(np.float64)
    w = np.zeros((n, n))
    for i in range(n):
        cosine = [(x[i] @ x[j] / np.linalg.norm(x[i]) / np.linalg.norm(x[j]), j) for j in range(n) if j != i]
        for value, j in sorted(cosine, reverse=True)[:k]:
            w[i, j] += max(value, 0) ** 3
            w[j, i] += max(value, 0) ** 3
    out = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            out[i, j] = w[i, j] / np.sqrt((w[i].sum() + 1e-9) * (w[j].sum() + 1e-9))
    return out


def slow_average(x, k, rounds, share):
    """In all principal components, which is a rotation: distances, cosines and lengths are those of the rows."""
    weights, out = slow_affinity(x, k), x.astype(np.float64)
    for _ in range(rounds):
        new = np.zeros_like(out)
        for i in range(len(x)):
            new[i] = share * sum(weights[i, j] * out[j] for j in range(len(x))) + (1 - share) * x[i]
        out = new
    out = out - out.mean(0)
    return out * np.sqrt((x.astype(np.float64) ** 2).sum() / (out**2).sum())


@pytest.mark.parametrize("k", [1, 4, 100])  # the last: all others
@pytest.mark.parametrize("unit", [1e-10, 1, 1e10])
def test_weights_are_those_of_a_loop_over_pairs(k, unit):
    x = rows_of(17, 5)
    found = affinity((unit * x).astype(np.float32), k).toarray()
    assert np.allclose(found, slow_affinity(x, k), atol=1e-5)
    assert np.allclose(found, found.T, atol=1e-7) and not found.diagonal().any() and found.min() >= 0


def test_averages_are_those_of_a_loop():
    x = rows_of(15, 4)
    found, expected = averaged(rotate(x), 3), slow_average(x, 3, neighbours.ROUNDS, neighbours.SHARE)
    # Components are known up to their signs: what is compared are inner products.
    assert np.allclose(found @ found.T, expected @ expected.T, atol=1e-3)
    assert np.allclose(found.mean(0), 0, atol=1e-5)
    assert (found**2).sum() == pytest.approx((x**2).sum(), rel=1e-4)


def test_the_first_components_hold_the_most_and_all_of_them_everything():
    x = rows_of(30, 8) * np.geomspace(3, 0.1, 8).astype(np.float32)
    parts = principal_components(rotate(x))
    assert parts.shape == (30, 8) and parts.dtype == np.float32
    assert np.allclose(parts @ parts.T, x @ x.T, atol=1e-3)
    sizes = (parts**2).sum(0)
    assert (np.diff(sizes) <= 1e-3).all()
    assert np.allclose(np.abs(principal_components(rotate(x), 3)), np.abs(parts[:, :3]), atol=1e-4)
    assert principal_components(rotate(x[:5])).shape == (5, 5)


@pytest.mark.parametrize("x", [np.ones((1, 3)), np.zeros((6, 3)), np.ones((6, 3)), -np.eye(3)])
def test_one_row_zero_rows_and_equal_rows_stay_finite(x):
    assert np.isfinite(averaged(rotate(x.astype(np.float32)), 2)).all()
