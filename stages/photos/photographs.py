"""The original photographs of the data set; the converted set holds them small and square."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dicap.errors import DataError
from stages.support.common import ARTIFACTS, raw_set

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

    from dicap.data.store import Store
    from dicap.settings import Settings


def unlabelled(settings: Settings, store: Store) -> np.ndarray:
    """Rows of the images with role `unlabeled` that have no imported label."""
    import numpy as np

    from dicap.files.artifacts import read_roles
    from dicap.photos.readers.imported import added_before

    is_unlabeled = read_roles(ARTIFACTS / "split" / "split.parquet", store.ids) == "unlabeled"
    given = added_before(settings.own.added)
    return np.flatnonzero(is_unlabeled & np.array([image not in given for image in store.ids]))


def originals(settings: Settings, store: Store, rows: Sequence[int]) -> tuple[list[str], Iterator[Image]]:
    """Marks of the files of some rows, and their photographs; for a missing file, the small image of the converted set."""
    from dicap.machine.progress import progress
    from dicap.photos.readers.imported import photo_mark

    read, files = reader(settings, store)
    marks = [photo_mark(files[name]) if name in files else "" for name in store.ids[rows]]
    return marks, (read(store.ids[row]) for row in progress(rows, desc="photographs", total=len(rows), unit="image"))


def reader(settings: Settings, store: Store) -> tuple[Callable[[str], Image], dict[str, Path]]:
    """A function from the name of an image to its photograph, as in `originals`; and the files of the images that have one."""
    import PIL.Image

    from dicap.data.sources.base import Rejected
    from dicap.settings.catalogue import BUNDLED

    images, place, rows = None, {}, {name: row for row, name in enumerate(store.ids)}
    if settings.dataset not in BUNDLED:
        with suppress(DataError):  # the raw set was moved; the converted set remains
            raw = raw_set(settings)
            images, place = raw.images, {item.id: i for i, item in enumerate(raw.items)}

    def read(name: str) -> Image:
        with suppress(Rejected):
            if images is not None and name in place:
                return images.read(place[name])
        return PIL.Image.fromarray(store.image(rows[name]))

    paths = getattr(images, "paths", None)
    return read, {} if paths is None else {name: paths[i] for name, i in place.items()}


def gallery(settings: Settings, store: Store, model: Path, evaluated: Path, out: Path) -> Path:
    """Write the gallery of the test images from the predictions in a folder that `evaluate` wrote; return its page."""
    from dicap.evaluation.answers import Answers
    from dicap.photos.pages.gallery import write_gallery
    from dicap.photos.predict import open_model

    answers = Answers.of(open_model(model, "cpu")[0].evidence)
    read, files = reader(settings, store)
    return write_gallery(evaluated / "predictions.parquet", store.classes, answers, out, files, read)


def write_list(path: Path, rows: Iterable[Sequence[str]]) -> None:
    """Write a table as CSV, the heads first. Raises DataError if another program's file exists there."""
    from dicap.files.written import replacing_own

    with replacing_own(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
