"""Each row averaged with its nearest neighbours: how unlabelled images inform a row, without a label."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dicap.frozen.solver import PrincipalAxes

EXACT = 50_000  # rows up to which all pairs are compared: seconds grow with their square (docs/costs.md)
CELLS, PROBED = 4, 32  # inverted lists above that: 4 sqrt(n) lists, the 32 nearest of them are searched
COMPONENTS = 256  # principal components in which neighbours are looked for
BLOCK = 1024  # rows compared with all others at once
COSINE_POWER = 3  # of the cosine in the weight of a neighbour
ROUNDS, SHARE = 2, 0.5  # how often rows are averaged, and what their neighbours count in it


def principal_components(rotated: PrincipalAxes, count: int = COMPONENTS) -> NDArray:
    """Rows in their first principal components, (n, min(count, n, D)) float32, uncentred."""
    return np.ascontiguousarray(rotated.coordinates[:, ::-1][:, :count], np.float32)


def affinity(x: NDArray, k: int) -> sparse.csr_matrix:
    """Symmetric weights (n, n) of each row and its k nearest by cosine: cosine**3, normalised as D^-1/2 W D^-1/2.

    Above EXACT rows the nearest are those that faiss finds, where it is installed.
    """
    n, k = len(x), min(k, len(x) - 1)
    length = np.linalg.norm(x, axis=1, keepdims=True)
    unit = x / np.where(length > 0, length, 1)
    nearest = by_inverted_lists(unit, k) if n > EXACT else None
    columns, cosine = nearest or by_all_pairs(unit, k)
    weights = np.maximum(cosine, 0) ** COSINE_POWER
    w = sparse.csr_matrix((weights.ravel(), (np.repeat(np.arange(n), k), columns.ravel())), shape=(n, n))
    w = w + w.T
    scale = sparse.diags(1 / np.sqrt(np.asarray(w.sum(1)).ravel() + 1e-9))
    return (scale @ w @ scale).tocsr().astype(np.float32)


def by_all_pairs(unit: NDArray, k: int) -> tuple[NDArray, NDArray]:
    """Indices and cosines (n, k) of the k nearest others of each row of length one (n, r), in any order."""
    n = len(unit)
    columns, cosines = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
    for start in range(0, n, BLOCK):
        cosine = unit[start : start + BLOCK] @ unit.T  # (b, n)
        own = np.arange(len(cosine))
        cosine[own, start + own] = -np.inf  # a row is not its own neighbour
        nearest = np.argpartition(-cosine, k - 1, axis=1)[:, :k]
        columns[start : start + BLOCK], cosines[start : start + BLOCK] = nearest, np.take_along_axis(cosine, nearest, 1)
    return columns, cosines


def by_inverted_lists(unit: NDArray, k: int) -> tuple[NDArray, NDArray] | None:
    """The same by faiss: among the rows of the lists whose centres are nearest; None where faiss is not installed."""
    try:
        import faiss
    except ImportError:
        return None
    n, r = unit.shape
    lists = int(CELLS * n**0.5)
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(r), r, lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.max_points_per_centroid = 64  # of a fixed random part of the rows: more moves no centre that matters
    index.train(unit)
    index.add(unit)
    index.nprobe = min(PROBED, lists)
    cosine, columns = index.search(unit, k + 1)
    other = columns != np.arange(n)[:, None]  # a row is not its own neighbour
    other[other.all(1), -1] = False  # of equal rows another stands first
    columns, cosine = columns[other].reshape(n, k), cosine[other].reshape(n, k)
    missing = columns < 0  # fewer than k others in the lists
    return np.where(missing, np.arange(n)[:, None], columns), np.where(missing, 0, cosine)


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
