"""Choose the images to label first or next: images that represent many others, or a random draw."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import nn

from dicap.data.store import Store
from dicap.evaluation.answers import Answers
from dicap.frozen.neighbours import principal_components
from dicap.frozen.solver import rotate
from dicap.machine.progress import progress
from dicap.machine.runtime import Runtime
from dicap.models import SavedModel
from dicap.photos.folder import Photograph, stored
from dicap.photos.predict import Outcome, batches, embedding, embeddings, opened_for, score
from dicap.photos.review import scaled
from dicap.randomness import permutation

COMPONENTS, ITERATIONS = 64, 30  # principal components for k-means, and its rounds


def spread(embeddings: np.ndarray, count: int, labelled: int = 0) -> list[int]:
    """Choose images that represent others (TypiClust, Hacohen et al., ICML 2022); return their rows.

    k-means makes one cluster for each labelled and each wanted image. The image nearest to its centre is chosen from each cluster
    without a labelled image, the largest cluster first. If every cluster has a labelled image, the images farthest from their
    centres are chosen.

    Args:
        embeddings: (n, D), the `labelled` images first, which are not chosen.
        count: number of images wanted, at most the number of unlabelled images.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # copies share a cluster, so there may be fewer clusters
        clusters = KMeans(labelled + count, max_iter=ITERATIONS, random_state=0).fit(embeddings)
    which = np.asarray(clusters.labels_)
    size = np.bincount(which, minlength=labelled + count)
    size[which[:labelled]] = 0
    far = ((embeddings - clusters.cluster_centers_[which]) ** 2).sum(1)
    members = [np.flatnonzero(which == c) for c in np.argsort(-size, kind="stable")[:count] if size[c]]
    chosen = [int(rows[np.argmin(far[rows])]) for rows in members]
    return chosen or [labelled + int(i) for i in np.argsort(-far[labelled:], kind="stable")[:count]]


def suggest(
    model: SavedModel, store: Store, rows: np.ndarray, count: int, device: str, by: str, labelled: np.ndarray, known: Path | None
) -> tuple[np.ndarray, np.ndarray]:
    """Choose `count` images among `rows` to label next, `by` spread or random; fewer if the rest are near copies.

    Returns their rows (n,), and the measured chance that each class is present (n, C), or the scores if no chance was measured.

    Args:
        store: the converted set of the rows.
        labelled: rows with labels, whose clusters `spread` leaves out.
        known: as in `dicap.photos.predict.predict`.
    """
    count = min(count, len(rows))
    if by == "random":
        rows = rows[permutation(0, "suggest", 0, len(rows), "random")[:count]]
    before = labelled if by == "spread" else labelled[:0]
    compared = np.concatenate([before, rows])
    saved, runtime, seen = opened_for(model, device, len(compared), known)
    photos = progress(stored(store, compared), desc="suggest", total=len(compared), unit="image")
    scores, features = [], []
    for _, inputs in batches(photos, store.image_size, runtime, Outcome(), seen=seen):
        scores.append(score(saved, inputs, runtime))
        features.append(embedding(saved.network, inputs, runtime))
    present = Answers.of(model.evidence).present(np.concatenate(scores)[len(before) :])
    if by == "random":
        return rows, present
    chosen = np.array(spread(principal(np.concatenate(features)), count, len(before))) - len(before)
    return rows[chosen], present[chosen]


def first(network: nn.Module, photos: Sequence[Photograph], size: int, count: int, runtime: Runtime, by: str) -> list[Photograph]:
    """Choose the first photographs to label in a folder without labels, by the features of a frozen network.

    Returns fewer than `count` if fewer can be read. Raises DataError if no photograph can be read.
    """
    names, features = embeddings(network, progress(photos, desc="suggest", total=len(photos), unit="image"), size, runtime)
    by_name = {one.name: one for one in photos}
    if by == "random":
        chosen = permutation(0, "suggest", 0, len(names), "random")[:count].tolist()
    else:
        chosen = spread(principal(features), min(count, len(names)))
    return [by_name[names[i]] for i in chosen]


def principal(features: np.ndarray) -> np.ndarray:
    """Pooled features (n, D), scaled as for the recommended head, in their first principal components, for `spread`."""
    return principal_components(rotate(scaled(features)), COMPONENTS)
