"""The page of the test images, for `dicap-stage evaluate --gallery`."""

from pathlib import Path
from typing import TYPE_CHECKING

from stages.photos.photographs import reader

if TYPE_CHECKING:
    from dicap.data.store import Store
    from dicap.settings import Settings


def show(settings: "Settings", store: "Store", model: Path, evaluated: Path, gallery: Path) -> Path:
    """Write the gallery of the test images from the predictions in a folder that `evaluate` wrote; its page."""
    from dicap.evaluation.answers import Answers
    from dicap.photos.pages.gallery import write_gallery
    from dicap.photos.predict import open_model

    read, files = reader(settings, store)
    answers = Answers.of(open_model(model, "cpu")[0].evidence)
    return write_gallery(evaluated / "predictions.parquet", store.classes, answers, gallery, files, read)
