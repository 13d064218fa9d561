"""How many photographs show each class: a model's probabilities, corrected by its errors on held-out labelled images."""

from collections.abc import Iterable
from contextlib import closing
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import pandas as pd

from dicap.calibration.counts import Moments, counts
from dicap.errors import DataError, first_of
from dicap.evaluation.answers import Answers
from dicap.machine.progress import progress
from dicap.models import SavedModel
from dicap.photos.folder import Photograph
from dicap.photos.predict import Outcome, batches, opened_for, score

SHOWN = 5  # classes that a warning names


def count(
    model: SavedModel | str | Path,
    photos: Iterable[Photograph],
    images: int,
    *,
    device: str = "auto",
    known: Path | None = None,
) -> tuple[pd.DataFrame, Outcome, list[str]]:
    """Count the photographs of each class.

    Args:
        photos: the photographs, `images` in number, read as they are needed.
        known: as in `dicap.photos.predict.predict`.

    Returns a row for each class, the largest count first: class, count, low, high (95 % interval), shifted, by_shift, shift_low
    and shift_high (`dicap.calibration.counts.Counts`); then the outcome of reading the photographs, and warnings.

    Raises DataError if the model has no scores of held-out labelled images, or if no photograph can be read.
    """
    saved, runtime, seen = opened_for(model, device, images, known)
    if not saved.evidence.entries:
        text = f"this model has no scores of held-out labelled images ({saved.evidence.note}), so nothing corrects its counts"
        raise DataError(f"{text}; train it again with protocol: recommended")
    answers = Answers.of(saved.evidence)
    outcome, labelled, parts = Outcome(), answers.labelled(), []
    with closing(progress(photos, desc="count", total=images, unit="image")) as shown:
        for _, inputs in batches(shown, saved.settings.image_size, runtime, outcome, seen=seen):
            parts.append(Moments.of(answers.present(score(saved, inputs, runtime))))
    folder = reduce(add, parts)
    columns = {"class": saved.classes} | {name: np.asarray(values) for name, values in vars(counts(labelled, folder)).items()}
    table = pd.DataFrame(columns).sort_values("count", ascending=False, kind="stable", ignore_index=True)
    unseen = table["class"].isin(np.array(saved.classes)[labelled.present.images == 0])
    without_labels = "no labelled photograph shows the class, so its count does not depend on the model; label some"
    unlike = (
        "these photographs look unlike the labelled ones, so the interval does not hold; by_shift assumes that each class still "
        "looks the same and only its share has changed; best label some of these photographs"
    )
    warnings = (unseen, without_labels), (table["shifted"], unlike)
    return table, outcome, [f"{first_of(table['class'][of].tolist(), SHOWN)}: {text}" for of, text in warnings if of.any()]
