"""How many photographs show each class: a folder's chances by a model, corrected by what it got wrong out of fold."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import pandas as pd

from dicap.calibration.counts import Moments, counts
from dicap.errors import DataError, SettingsError, did_you_mean, first_of
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
    classes: Sequence[str] = (),
    *,
    device: str = "auto",
    known: Path | None = None,
) -> tuple[pd.DataFrame, Outcome, list[str]]:
    """A row for every class, what came of the photographs, and what is to be said of the numbers.

    Args:
        photos: `images` of them, read as they are needed.
        classes: the classes to count; none: all.
        known: as of `dicap.photos.predict.predict`.

    Returns:
        DataFrame of class, count, low, high (95 % interval), shifted, and by_shift, shift_low, shift_high
        (`dicap.calibration.counts.Counts`), the largest count first.

    Raises:
        SettingsError: a class is not there.
        DataError: the model came with no scores of labelled images that it had not learnt, or no photograph can be read.
    """
    saved, runtime, seen = opened_for(model, device, images, known)
    for name in classes:
        if name not in saved.classes:
            raise SettingsError(f"--class: no class is called {name!r}{did_you_mean(name, saved.classes)}")
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
    table = pd.DataFrame(columns).sort_values("count", ascending=False, kind="stable")
    chosen = table["class"].isin(list(classes) or saved.classes)
    unseen = [name for name, images in zip(saved.classes, labelled.present.images, strict=True) if not images]
    return table[chosen].reset_index(drop=True), outcome, _warnings(table[chosen], unseen)


def _warnings(table: pd.DataFrame, unseen: list[str]) -> list[str]:
    lines = []
    if nothing := [name for name in table["class"] if name in unseen]:
        lines.append(
            f"{first_of(nothing, SHOWN)}: no labelled photograph shows it, so the model has no say in its count; label some"
        )
    if shifted := table.loc[table["shifted"], "class"].tolist():
        lines.append(
            f"{first_of(shifted, SHOWN)}: these photographs look unlike the labelled ones, and the interval does not hold for "
            "them; by_shift counts as if each class still looked alike and only its share had changed; best label some of these"
        )
    return lines
