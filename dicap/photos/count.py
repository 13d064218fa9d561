"""How many photographs show each class: a folder's chances by a model, corrected by what it got wrong out of fold."""

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
    """A row for every class, what came of the photographs, and what is to be said of the numbers.

    Args:
        photos: `images` of them, read as they are needed.
        known: as of `dicap.photos.predict.predict`.

    Returns:
        DataFrame of class, count, low, high (95 % interval), shifted, and by_shift, shift_low, shift_high
        (`dicap.calibration.counts.Counts`), the largest count first.

    Raises:
        DataError: the model came with no scores of labelled images that it had not learnt, or no photograph can be read.
    """
    saved, runtime, seen = opened_for(model, device, images, known)
    if not saved.evidence.entries:
        raise DataError(
            f"this model came with no scores of labelled images that it had not learnt ({saved.evidence.note}), so nothing "
            "corrects its counts; train it again with protocol: recommended"
        )
    answers = Answers.of(saved.evidence)
    outcome, labelled, parts = Outcome(), answers.labelled(), []
    with closing(progress(photos, desc="count", total=images, unit="image")) as shown:
        for _, inputs in batches(shown, saved.settings.image_size, runtime, outcome, seen=seen):
            parts.append(Moments.of(answers.present(score(saved, inputs, runtime))))
    folder = reduce(add, parts)
    columns = {"class": saved.classes} | {name: np.asarray(values) for name, values in vars(counts(labelled, folder)).items()}
    table = pd.DataFrame(columns).sort_values("count", ascending=False, kind="stable", ignore_index=True)
    unseen = table["class"].isin(np.array(saved.classes)[labelled.present.images == 0])
    warnings = [
        (unseen, "no labelled photograph shows it, so the model has no say in its count; label some"),
        (
            table["shifted"],
            "these photographs look unlike the labelled ones, and the interval does not hold for them; by_shift counts as if "
            "each class still looked alike and only its share had changed; best label some of these",
        ),
    ]
    return table, outcome, [f"{first_of(table['class'][of].tolist(), SHOWN)}: {text}" for of, text in warnings if of.any()]
