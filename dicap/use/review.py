"""Which labels are probably wrong: labelled images whose labels surprise a model that did not learn from them.

A network remembers the labels it was trained on, the wrong ones too, so its own scores of its training images find little.
`leave_one_out` gives scores that are honest for every labelled image: of a linear model on features that know no label of this
data set, fitted for each image on all the others.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from dicap.curve import curve_by_rank
from dicap.data.loader import scoring_batches
from dicap.data.store import Store
from dicap.progress import progress
from dicap.runtime import Runtime

BATCH = 256
PENALTY = 10.0  # of the ridge, in mean squared lengths of a feature vector; benchmarks/review.py compares
LOWEST = 1e-3  # a score below it surprises no more than at it
LIKELY = 0.5  # chance from which a class that an image is not labelled with is pointed out
MOST_ODD = 3  # classes of an image that are pointed out


@dataclass(frozen=True)
class Doubt:
    """A labelled image whose label is worth a look.

    Attributes:
        row: of what was ranked.
        surprise: of its label; larger is more surprising.
        odd: the classes whose entry is surprising, the most surprising first.
    """

    row: int
    surprise: float
    odd: list[int]


def features_of(network: nn.Module, store: Store, rows: np.ndarray, runtime: Runtime) -> np.ndarray:
    """Pooled features (n, D) float64 of some rows: square roots, sign kept, of the sum over each image and its mirror image.

    The root keeps a few strong channels from drowning the others (power normalisation, Perronnin et al., ECCV 2010).
    """
    network = network.to(runtime.device).eval()
    seen = []
    with torch.inference_mode(), runtime.autocast():
        batches = scoring_batches(store, rows, BATCH, device=runtime.device)
        for _, images in progress(batches, desc="review", total=-(-len(rows) // BATCH), unit="batch"):
            both = [network.features(view).float().mean((2, 3)) for view in (images, images.flip(3))]  # type: ignore[operator]
            total = both[0] + both[1]
            seen.append((total.sign() * total.abs().sqrt()).cpu().double().numpy())
    return np.concatenate(seen)


def leave_one_out(features: np.ndarray, labels: np.ndarray, penalty: float = PENALTY) -> np.ndarray:
    """Scores (n, C) of each image by ridge regression on all the other images, float64.

    The residual of an image left out is its residual in the fit to all, divided by 1 - h, with h the weight of its own label in
    its fitted value (Allen, Technometrics 1974): one fit stands for n. Rows are scaled to length 1; no penalty on the intercept.
    A class is fitted on the images in which it is known; the others are scored by that fit.

    Args:
        features: (n, D); labels: (n, C) of 0 and 1, -1 where unknown.
        penalty: in mean squared lengths of the centred features.
    """
    assert len(features) > 1 and len(labels) == len(features), (features.shape, labels.shape)
    z = features / np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    patterns, group = np.unique(labels >= 0, axis=1, return_inverse=True)
    scores = np.empty(labels.shape)
    for g, known in enumerate(patterns.T):  # classes that are known in the same images share a fit
        scores[:, group == g] = _fitted(z, labels[:, group == g], known, penalty)
    return scores


def _fitted(z: np.ndarray, labels: np.ndarray, known: np.ndarray, penalty: float) -> np.ndarray:
    """`leave_one_out` of classes that are known in the images `known` (n,), at least one of them; without one, 0."""
    if known.sum() < 2:
        return np.broadcast_to(np.where(known.any(), (labels == 1).any(0), 0.0), labels.shape)
    y, rest = labels[known].astype(np.float64), z[~known] - z[known].mean(0)
    z = z[known] - z[known].mean(0)  # (n, D)
    n = len(z)
    strength = penalty * max(float((z**2).sum() / n), 1e-12)
    if n <= z.shape[1]:
        smooth = np.linalg.solve(z @ z.T + strength * np.eye(n), z @ z.T)  # (n, n)
        own, fitted = np.diag(smooth), smooth.T @ (y - y.mean(0))
    else:
        solved = np.linalg.solve(z.T @ z + strength * np.eye(z.shape[1]), z.T)  # (D, n)
        own, fitted = np.einsum("nd,dn->n", z, solved), z @ (solved @ (y - y.mean(0)))
    own = (own + 1 / n)[:, None]
    scores = np.empty(labels.shape)
    scores[known] = (fitted + y.mean(0) - own * y) / np.maximum(1 - own, 1e-12)
    if len(rest):
        inner = np.linalg.solve(z @ z.T + strength * np.eye(n), y - y.mean(0))
        scores[~known] = rest @ (z.T @ inner) + y.mean(0)
    return scores


def entry_surprise(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """How surprising each entry of the labels is, (n, C) float64; 0 and below: not at all.

    A class that is labelled: -log(score) + log(share) / 2, with the share of the *other* images that bear it. Halfway between
    "unlikely" and "less likely than in any other image": by the first alone rare classes would always be in front.
    A class that is not there: -log(1 - score). An unknown entry (label below 0) surprises nobody: -infinity.
    """
    p = np.clip(scores, LOWEST, 1 - LOWEST)
    y, known = labels > 0, labels >= 0
    n = known.sum(0)
    share = np.clip((y.sum(0) - y) / np.maximum(n - 1, 1), 0.5 / np.maximum(n, 1), 1)
    return np.where(known, np.where(y, -np.log(p) + np.log(share) / 2, -np.log1p(-p)), -np.inf)


def doubts(scores: np.ndarray, labels: np.ndarray, honest: np.ndarray | None = None) -> list[Doubt]:
    """Labelled images, the most surprising first: the worst entry among the classes it bears plus the worst among the others.

    Args:
        scores: (n, C) in [0, 1], by a model that did not learn from these labels (out of fold, left out, or of D_est).
        labels: (n, C) of 0 and 1, -1 where unknown.
        honest: (n,) rows whose scores are such; the others are not ranked. None: all.
    """
    assert scores.shape == labels.shape, (scores.shape, labels.shape)
    y = labels > 0
    entries = entry_surprise(scores, labels)
    worst_on, worst_off = (np.where(chosen, entries, -np.inf).max(1) for chosen in (y, labels == 0))
    total = np.where(np.isneginf(worst_on), 0.0, worst_on) + np.where(np.isneginf(worst_off), 0.0, worst_off)
    rows = np.arange(len(y)) if honest is None else np.flatnonzero(honest)
    found = []
    for row in rows[np.argsort(-total[rows], kind="stable")]:
        order = np.argsort(-entries[row], kind="stable")
        known = [int(c) for c in order if labels[row, c] >= 0]
        pointed = [c for c in known if (y[row, c] and entries[row, c] > 0) or scores[row, c] >= LIKELY][:MOST_ODD]
        found.append(Doubt(int(row), float(total[row]), pointed or [int(order[0])]))
    return found


def chances(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """What the scores are worth, (n, C): the share of the known labels that bear a class at such a score."""
    p = torch.from_numpy(np.clip(scores, LOWEST, 1 - LOWEST))
    return curve_by_rank(p, torch.from_numpy(labels)).at(p).numpy()
