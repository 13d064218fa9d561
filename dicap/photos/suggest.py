"""What to label first and next: images that cover the others, or a random draw."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dicap.errors import DataError
from dicap.evaluation.answers import Answers
from dicap.frozen.neighbours import principal_components
from dicap.machine.progress import progress
from dicap.machine.runtime import Runtime
from dicap.models import SavedModel
from dicap.network import Network
from dicap.photos.folder import Photograph, read_ahead
from dicap.photos.review import scaled
from dicap.randomness import permutation
from dicap.training.inputs import Inputs

PART = 32  # images of a folder that are read and looked at at once
COMPONENTS, ITERATIONS = 64, 30  # of k-means: principal components, and rounds
BY = ("spread", "random")  # benchmarks/suggest.py compares them, and others that lost


@dataclass(frozen=True)
class Suggestion:
    """An image to label.

    Attributes:
        row: of the converted set.
        chance: (C,) that each class is present, as far as it was measured; else the scores.
        likely: classes that are likelier present than absent.
    """

    row: int
    chance: np.ndarray
    likely: list[int]


def look(model: SavedModel, inputs: Inputs, rows: np.ndarray, runtime: Runtime) -> tuple[np.ndarray, np.ndarray]:
    """Scores (n, C) and embeddings (n, D) of some rows, by the model's own backbone."""
    scores, embeddings = [], []
    batches = inputs.scoring(runtime, rows, None)
    with torch.inference_mode(), runtime.autocast():
        for _, images in progress(batches, desc="suggest", total=len(rows), unit="image", count=lambda batch: len(batch[0])):
            scores.append(model.method.scores(model.network, images).float().cpu())
            embeddings.append(model.network.features(images).float().mean((2, 3)).cpu())  # type: ignore[operator]
    return torch.cat(scores).numpy(), torch.cat(embeddings).numpy()


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
    model: SavedModel,
    inputs: Inputs,
    rows: np.ndarray,
    count: int,
    runtime: Runtime,
    by: str = BY[0],
    labelled: Sequence[int] | np.ndarray = (),
) -> list[Suggestion]:
    """The `count` images of `rows` to label next, by one of BY; fewer where the others are near copies of them.

    Args:
        inputs: the images, or where the model's backbone is put aside, its features of them.
        labelled: rows that have labels, which `spread` takes to be covered.
    """
    count = min(count, len(rows))
    if by == "random":
        rows = rows[permutation(0, "suggest", 0, len(rows), "random")[:count]]
    before = np.asarray(labelled if by == "spread" else (), int)
    scores, embeddings = look(model, inputs, np.concatenate([before, rows]), runtime)
    present = Answers.of(model.evidence).present(scores[len(before) :])
    chosen = range(count) if by == "random" else [i - len(before) for i in spread(principal(embeddings), count, len(before))]
    return [Suggestion(int(rows[i]), present[i], np.flatnonzero(present[i] >= 0.5).tolist()) for i in chosen]


def first(
    network: Network, photos: Sequence[Photograph], size: int, count: int, runtime: Runtime, by: str = BY[0]
) -> list[Photograph]:
    """The first photographs to label in a folder without labels, by the features of a frozen network.

    Fewer than `count` if fewer can be read. Raises DataError if no photograph can be read.
    """
    known, seen = [], []
    network = network.to(runtime.device)
    with torch.inference_mode(), runtime.autocast():
        batches = read_ahead(photos, size, PART, max(1, runtime.workers or 1))
        for some, images in progress(batches, desc="suggest", total=len(photos), unit="image", count=lambda batch: len(batch[0])):
            readable = [(one, image) for one, image in zip(some, images, strict=True) if not isinstance(image, str)]
            if readable:
                pixels = torch.from_numpy(np.stack([image for _, image in readable])).permute(0, 3, 1, 2)
                seen.append(network.features(pixels.to(runtime.device)).float().mean((2, 3)).cpu().numpy())
                known += [one for one, _ in readable]
    if not known:
        raise DataError(f"none of {len(photos)} images can be read; name a folder of photographs")
    if by == "random":
        return [known[i] for i in permutation(0, "suggest", 0, len(known), "random")[:count]]
    return [known[i] for i in spread(principal(np.concatenate(seen)), min(count, len(known)))]


def principal(features: np.ndarray) -> np.ndarray:
    """What `spread` clusters: pooled features (n, D) as the recommended head takes them, in their first principal components."""
    return principal_components(scaled(features), COMPONENTS)
