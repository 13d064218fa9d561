"""What to label next: images whose labels would teach the model most, spread over classes, without near copies."""

from dataclasses import dataclass

import numpy as np
import torch

from dicap.machine.progress import progress
from dicap.machine.runtime import Runtime
from dicap.models import SavedModel
from dicap.training.inputs import Inputs

ALIKE = 0.98  # cosine similarity of two images' embeddings above which the second one is left out


@dataclass(frozen=True)
class Suggestion:
    """An image to label.

    Attributes:
        row: of the converted set.
        asked: the class it was chosen for.
        uncertainty: of that class's answer, 0 (sure) to 1 (a coin toss).
        chance: (C,) that each class is present, as far as it was measured; else the scores.
        likely: classes that are likelier present than absent.
    """

    row: int
    asked: int
    uncertainty: float
    chance: np.ndarray
    likely: list[int]


def look(model: SavedModel, inputs: Inputs, rows: np.ndarray, runtime: Runtime) -> tuple[np.ndarray, np.ndarray]:
    """Scores (n, C) and embeddings (n, D) of length 1 of some rows, by the model's own backbone."""
    scores, embeddings = [], []
    batches = inputs.scoring(runtime, rows, None)
    features = getattr(model.network, "features", None)
    with torch.inference_mode(), runtime.autocast():
        for _, images in progress(batches, desc="suggest", total=len(rows), unit="image", count=lambda batch: len(batch[0])):
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


def suggest(model: SavedModel, inputs: Inputs, rows: np.ndarray, count: int, runtime: Runtime) -> list[Suggestion]:
    """The `count` images of `rows` to label next; fewer where the others are near copies of them.

    `inputs`: the images, or where the model's backbone is put aside, its features of them.
    """
    scores, embeddings = look(model, inputs, rows, runtime)
    open_ = uncertainty(scores, model)
    present = model.decisions.present(scores)
    return [
        Suggestion(int(rows[i]), c, float(open_[i, c]), present[i], np.flatnonzero(present[i] >= 0.5).tolist())
        for i, c in choose(open_, embeddings, count)
    ]
