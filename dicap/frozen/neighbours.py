"""Each row averaged with its nearest neighbours: how unlabelled images inform a row, without a label."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import kneighbors_graph

from dicap.frozen.solver import PrincipalAxes

COMPONENTS = 256  # principal components in which neighbours are looked for
COSINE_POWER = 3  # of the cosine in the weight of a neighbour
ROUNDS, SHARE = 2, 0.5  # how often rows are averaged, and what their neighbours count in it


def principal_components(rotated: PrincipalAxes, count: int = COMPONENTS) -> NDArray:
    """Rows in their first principal components, (n, min(count, n, D)) float32, uncentred."""
    return np.ascontiguousarray(rotated.coordinates[:, ::-1][:, :count], np.float32)


def affinity(x: NDArray, k: int) -> sparse.csr_matrix:
    """Symmetric weights (n, n) of each row and its k nearest by cosine: cosine**3, normalised as D^-1/2 W D^-1/2."""
    n = len(x)
    if n < 2:
        return sparse.csr_matrix((n, n), dtype=np.float32)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    unit = x / np.where(length > 0, length, 1)  # scikit-learn takes a row shorter than 1e-6 for zero
    near = kneighbors_graph(unit, min(k, n - 1), mode="distance", metric="cosine")  # 1 - cosine
    near.data = np.maximum(1 - near.data, 0) ** COSINE_POWER
    w = near + near.T
    scale = sparse.diags(1 / np.sqrt(np.asarray(w.sum(1)).ravel() + 1e-9))
    return (scale @ w @ scale).tocsr().astype(np.float32)


def averaged(rotated: PrincipalAxes, k: int) -> NDArray:
    """Rows, as `rotate` has them, averaged with their neighbours in principal components.

    ROUNDS times x' = SHARE S x' + (1 - SHARE) x.

    Returns:
        (n, r) float32, centred and of the same mean square length as the components.
    """
    parts = principal_components(rotated)
    weights, out = affinity(parts, k), parts
    for _ in range(ROUNDS):
        out = SHARE * (weights @ out) + (1 - SHARE) * parts
    out = out - out.mean(0)
    return (out * np.sqrt((parts**2).sum() / (float((out**2).sum()) or 1))).astype(np.float32)
