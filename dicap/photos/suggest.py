"""What to label first and next: images that cover the others, or a random draw."""

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

COMPONENTS, ITERATIONS = 64, 30  # of k-means: principal components, and rounds


def spread(embeddings: np.ndarray, count: int, labelled: int = 0) -> list[int]:
    """Images that cover the others: of as many clusters as there are labelled images and images wanted, those without a label.

    The largest clusters first; of each the image nearest to its centre (k-means; TypiClust, Hacohen et al., ICML 2022). Where all
    are near copies of labelled ones, those farthest from their centres.

    Args:
        embeddings: (n, D), the `labelled` first, which are not chosen again.
        count: images wanted, at most those that are not labelled.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # copies share a cluster, and fewer are chosen
        clusters = KMeans(labelled + count, max_iter=ITERATIONS, random_state=0).fit(embeddings)
    which = np.asarray(clusters.labels_)
    size = np.bincount(which, minlength=labelled + count)
    size[which[:labelled]] = 0
    far = ((embeddings - clusters.cluster_centers_[which]) ** 2).sum(1)
    members = [np.flatnonzero(which == c) for c in np.argsort(-size, kind="stable")[:count] if size[c]]
    chosen = [int(some[np.argmin(far[some])]) for some in members]
    return chosen or [labelled + int(i) for i in np.argsort(-far[labelled:], kind="stable")[:count]]


def suggest(
    model: SavedModel, store: Store, rows: np.ndarray, count: int, device: str, by: str, labelled: np.ndarray, known: Path | None
) -> tuple[np.ndarray, np.ndarray]:
    """The `count` images of `rows` to label next, `by` spread or random; fewer where the others are near copies of them.

    Returns their rows and the chance that each class is present (n, C), as far as it was measured; else the scores.

    Args:
        store: the converted set of the rows.
        labelled: rows that have labels, which `spread` takes to be covered.
        known: as of `dicap.photos.predict.predict`.
    """
    count = min(count, len(rows))
    if by == "random":
        rows = rows[permutation(0, "suggest", 0, len(rows), "random")[:count]]
    before = labelled if by == "spread" else labelled[:0]
    looked_at = np.concatenate([before, rows])
    saved, runtime, seen = opened_for(model, device, len(looked_at), known)
    photos = progress(stored(store, looked_at), desc="suggest", total=len(looked_at), unit="image")
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
    """The first photographs to label in a folder without labels, by the features of a frozen network.

    Fewer than `count` if fewer can be read. Raises DataError if no photograph can be read.
    """
    names, features = embeddings(network, progress(photos, desc="suggest", total=len(photos), unit="image"), size, runtime)
    by_name = {one.name: one for one in photos}
    if by == "random":
        chosen = permutation(0, "suggest", 0, len(names), "random")[:count].tolist()
    else:
        chosen = spread(principal(features), min(count, len(names)))
    return [by_name[names[i]] for i in chosen]


def principal(features: np.ndarray) -> np.ndarray:
    """What `spread` clusters: pooled features (n, D) as the recommended head takes them, in their first principal components."""
    return principal_components(rotate(scaled(features)), COMPONENTS)
