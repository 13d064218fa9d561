"""What to label next: images that cover the others, those a model is least sure of, or a random draw."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dicap.data.loader import scoring_batches
from dicap.data.store import Store
from dicap.errors import DataError
from dicap.linear.neighbours import principal_components
from dicap.machine.progress import progress
from dicap.machine.runtime import Runtime
from dicap.models import SavedModel
from dicap.network import Network
from dicap.randomness import permutation
from dicap.use.folder import Photograph, read_ahead
from dicap.use.review import scaled

BATCH = 256
PART = 32  # images of a folder that are read and looked at at once
ALIKE = 0.98  # cosine similarity of two images' embeddings above which the second one is left out
COMPONENTS, ITERATIONS = 64, 30  # of k-means: principal components, and rounds
BY = ("spread", "unsure", "random")  # benchmarks/suggest.py compares them


@dataclass(frozen=True)
class Suggestion:
    """An image to label.

    Attributes:
        row: of the converted set.
        chance: (C,) that each class is present, as far as it was measured; else the scores.
        likely: classes that are likelier present than absent.
        asked: the class it was chosen for; None where it was for none.
        uncertainty: of that class's answer, 0 (sure) to 1 (a coin toss).
    """

    row: int
    chance: np.ndarray
    likely: list[int]
    asked: int | None = None
    uncertainty: float | None = None


def look(model: SavedModel, store: Store, rows: np.ndarray, runtime: Runtime) -> tuple[np.ndarray, np.ndarray]:
    """Scores (n, C) and embeddings (n, D) of length 1 of some rows, by the model's own backbone."""
    scores, embeddings = [], []
    batches = scoring_batches(store, rows, BATCH, device=runtime.device)
    features = getattr(model.network, "features", None)
    with torch.inference_mode(), runtime.autocast():
        for _, images in progress(batches, desc="suggest", total=-(-len(rows) // BATCH), unit="batch"):
            scores.append(model.method.scores(model.network, images).float().cpu())
            pixels = torch.nn.functional.adaptive_avg_pool2d(images.float(), 8) / 255
            seen = features(images).float().mean((2, 3)) if features is not None else pixels.flatten(1)
            embeddings.append(torch.nn.functional.normalize(seen, dim=1).cpu())
    return torch.cat(scores).numpy(), torch.cat(embeddings).numpy()


def uncertainty(scores: np.ndarray, model: SavedModel) -> np.ndarray:
    """How open each entry is, (n, C) in [0, 1]: 1 - |2 q - 1| with q the measured chance that the class is present.

    Without a correctness curve q is the score itself.
    """
    return 1 - np.abs(2 * model.decisions.present(scores) - 1)


def choose(open_: np.ndarray, embeddings: np.ndarray, count: int, alike: float = ALIKE) -> list[tuple[int, int]]:
    """(image, class) of the images to label, best first.

    The classes take turns, those with most open entries first; a class takes the image whose entry of it is most uncertain, ties
    broken by the image's total uncertainty. Near copies of an image chosen before are left out.

    Args:
        open_: (n, C) uncertainty; embeddings: (n, D) of length 1; count: images wanted.
    """
    n, classes = open_.shape
    order = [np.lexsort((-open_.sum(1), -open_[:, c])) for c in range(classes)]
    turns = np.argsort(-open_.sum(0), kind="stable")
    free, place = np.ones(n, bool), np.zeros(classes, int)
    chosen: list[tuple[int, int]] = []
    while len(chosen) < count and free.any():
        for c in turns:
            while place[c] < n and not free[order[c][place[c]]]:
                place[c] += 1
            if place[c] == n or len(chosen) == count:
                continue
            image = int(order[c][place[c]])
            chosen.append((image, int(c)))
            free &= embeddings @ embeddings[image] <= alike
            free[image] = False
    return chosen


def spread(embeddings: np.ndarray, count: int, labelled: int = 0) -> list[int]:
    """Images that cover the others: of as many clusters as there are labelled images and images wanted, those without a label.

    The largest clusters first; of each the image nearest to its centre (k-means; TypiClust, Hacohen et al., ICML 2022).

    Args:
        embeddings: (n, D), the `labelled` first, which are not chosen again.
        count: images wanted, at most those that are not labelled.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # copies share a cluster, and fewer are chosen
        found = KMeans(labelled + count, n_init=1, max_iter=ITERATIONS, random_state=0).fit(embeddings)
    size = np.bincount(found.labels_, minlength=labelled + count)
    size[found.labels_[:labelled]] = 0
    far = ((embeddings - found.cluster_centers_[found.labels_]) ** 2).sum(1)
    members = [np.flatnonzero(found.labels_ == c) for c in np.argsort(-size, kind="stable")[:count] if size[c]]
    return [int(some[np.argmin(far[some])]) for some in members]


def suggest(
    model: SavedModel, store: Store, rows: np.ndarray, count: int, runtime: Runtime, by: str = BY[0], labelled: Sequence[int] = ()
) -> list[Suggestion]:
    """The `count` images of `rows` to label next, by one of BY; fewer where the others are near copies of them.

    `labelled`: rows that have labels, which `spread` takes to be covered.
    """
    count = min(count, len(rows))
    if by == "random":
        rows = rows[permutation(0, "suggest", 0, len(rows), "random")[:count]]
    before = np.asarray(labelled if by == "spread" else (), int)
    scores, embeddings = look(model, store, np.concatenate([before, rows]), runtime)
    present = model.decisions.present(scores[len(before) :])
    if by == "unsure":
        open_ = uncertainty(scores, model)
        chosen = [(i, c, float(open_[i, c])) for i, c in choose(open_, embeddings, count)]
    elif by == "spread":
        chosen = [(i - len(before), None, None) for i in spread(principal(embeddings), count, len(before))]
    else:
        chosen = [(i, None, None) for i in range(count)]
    return [Suggestion(int(rows[i]), present[i], np.flatnonzero(present[i] >= 0.5).tolist(), c, open_) for i, c, open_ in chosen]


def first(
    network: Network, photos: Sequence[Photograph], size: int, count: int, runtime: Runtime, by: str = BY[0]
) -> list[Photograph]:
    """The first photographs to label of a folder of which nobody knows anything, by the features of a frozen network.

    Fewer where there are fewer that can be read. Raises DataError where there is none.
    """
    known, seen = [], []
    network = network.to(runtime.device)
    with torch.inference_mode(), runtime.autocast():
        batches = read_ahead(photos, size, PART, max(1, runtime.workers or 1))
        for some, images in progress(batches, desc="suggest", total=-(-len(photos) // PART), unit="batch"):
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
