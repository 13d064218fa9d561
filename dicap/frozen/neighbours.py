"""Averages each row with its nearest neighbours, labelled or not, so that unlabelled images inform the teachers."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import kneighbors_graph

from dicap.frozen.solver import PrincipalAxes

COMPONENTS = 256  # principal components of the neighbour search
COSINE_POWER = 3  # the weight of a neighbour is its cosine to this power
ROUNDS, SHARE = 2, 0.5  # rounds of averaging, and the share of the neighbours in each average


def principal_components(rotated: PrincipalAxes, count: int = COMPONENTS) -> NDArray:
    """Rows in their first principal components, (n, min(count, n, D)) float32, uncentred."""
    return np.ascontiguousarray(rotated.coordinates[:, ::-1][:, :count], np.float32)


def affinity(x: NDArray, k: int) -> sparse.csr_matrix:
    """Symmetric weights (n, n) between each row and its k nearest neighbours: cosine**3, normalised as D^-1/2 W D^-1/2."""
    n = len(x)
    if n < 2:
        return sparse.csr_matrix((n, n), dtype=np.float32)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    unit = x / np.where(length > 0, length, 1)  # scikit-learn would treat a row shorter than 1e-6 as zero
    graph = kneighbors_graph(unit, min(k, n - 1), mode="distance", metric="cosine")  # 1 - cosine
    graph.data = np.maximum(1 - graph.data, 0) ** COSINE_POWER
    w = graph + graph.T
    scale = sparse.diags(1 / np.sqrt(np.asarray(w.sum(1)).ravel() + 1e-9))
    return (scale @ w @ scale).tocsr().astype(np.float32)


def averaged(rotated: PrincipalAxes, k: int) -> NDArray:
    """Rotated rows, averaged with their neighbours in the space of principal components.

    ROUNDS times x' = SHARE S x' + (1 - SHARE) x, with the weights S of `affinity`.

    Returns:
        (n, r) float32, centred, with the mean square length of the principal components.
    """
    parts = principal_components(rotated)
    weights, out = affinity(parts, k), parts
    for _ in range(ROUNDS):
        out = SHARE * (weights @ out) + (1 - SHARE) * parts
    out = out - out.mean(0)
    return (out * np.sqrt((parts**2).sum() / (float((out**2).sum()) or 1))).astype(np.float32)
