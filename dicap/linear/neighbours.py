"""Rows averaged with those of their nearest neighbours: what the unlabelled images say about a row, without a label."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dicap.linear.solver import rotate

COMPONENTS = 256  # principal components in which neighbours are looked for
BLOCK = 1024  # rows compared with all others at once
POWER = 3  # of the cosine in the weight of a neighbour
ROUNDS, SHARE = 2, 0.5  # how often rows are averaged, and what their neighbours count in it


def principal_components(x: NDArray, count: int = COMPONENTS) -> NDArray:
    """Rows (n, D) in their first principal components, (n, min(count, n, D)) float32, uncentred."""
    return np.ascontiguousarray(rotate(x).coordinates[:, ::-1][:, :count], np.float32)


def affinity(x: NDArray, k: int) -> sparse.csr_matrix:
    """Symmetric weights (n, n) of each row and its k nearest by cosine: cosine**3, normalised as D^-1/2 W D^-1/2."""
    n, k = len(x), min(k, len(x) - 1)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    unit = x / np.where(length > 0, length, 1)
    columns, weights = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
    for start in range(0, n, BLOCK):
        cosine = unit[start : start + BLOCK] @ unit.T  # (b, n)
        own = np.arange(len(cosine))
        cosine[own, start + own] = -np.inf  # a row is not its own neighbour
        nearest = np.argpartition(-cosine, k - 1, axis=1)[:, :k]
        columns[start : start + BLOCK] = nearest
        weights[start : start + BLOCK] = np.maximum(np.take_along_axis(cosine, nearest, 1), 0) ** POWER
    w = sparse.csr_matrix((weights.ravel(), (np.repeat(np.arange(n), k), columns.ravel())), shape=(n, n))
    w = w + w.T
    scale = sparse.diags(1 / np.sqrt(np.asarray(w.sum(1)).ravel() + 1e-9))
    return (scale @ w @ scale).tocsr().astype(np.float32)


def averaged(x: NDArray, k: int) -> NDArray:
    """Rows (n, D) after ROUNDS averages with their neighbours, x' = SHARE S x' + (1 - SHARE) x, in principal components.

    Returns:
        (n, r) float32, centred and of the same mean square length as the components.
    """
    parts = principal_components(x)
    weights, out = affinity(parts, k), parts
    for _ in range(ROUNDS):
        out = SHARE * (weights @ out) + (1 - SHARE) * parts
    out = out - out.mean(0)
    return (out * np.sqrt((parts**2).sum() / (float((out**2).sum()) or 1))).astype(np.float32)
