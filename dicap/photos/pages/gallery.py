"""The gallery: a page of thumbnails by class and measured chance, for tens of thousands of photographs."""

import base64
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from markupsafe import Markup
from PIL import Image
from scipy.special import expit

from dicap.calibration.ranks import log_odds
from dicap.data.loader import worker_count
from dicap.data.sources.base import Rejected, read_rgb
from dicap.evaluation.answers import Answers
from dicap.files.tables import matrix, read_parquet
from dicap.files.written import replacing_own_folder
from dicap.machine.progress import progress
from dicap.pages.html import data_block, render
from dicap.photos.pages import CHANCE, TEMPLATES, jpeg

THUMBNAIL = 256  # pixels of the longer side
LEVELS = (1 << 14) - 1  # the highest level of a score: even steps of its logit in 14 bits, above them two bits for the decision
TOP = log_odds(np.ones(1))[0]  # the largest logit
CODES = {"no": 0, "yes": 1, "unsure": 2}


def write_gallery(
    predictions: Path,
    classes: Sequence[str],
    answers: Answers,
    out: Path,
    files: Mapping[str, Path],
    read: Callable[[str], Image.Image] | None = None,
) -> Path:
    """Write `out`/index.html and `out`/thumbs/ for a file of predictions; return the page's path.

    The page holds thumbnails and links to the photographs, so it stays small.

    Args:
        predictions: as `predict_to_file` writes them (.parquet, .csv), or as `evaluate` does, whose truth the page shows too.
        answers: of the model, for the measured chance that a class is present; without a curve the scores are shown.
        out: a missing or empty folder, or one that an earlier call wrote (else DataError); replaced as a whole or not at all.
        files: files of images by name; an image without a file has a thumbnail only.
        read: returns the image of a name; None: reads its file.
    """
    images, scores, decided, labels = read_predictions(predictions, len(classes))
    entries = levels_of(scores) | (decided.astype("<u2") << 14)  # (N, C)
    with replacing_own_folder(out) as folder:
        _thumbnails(images, read or (lambda name: read_rgb(files.get(name, Path(name)), upright=True)), folder / "thumbs")
        facts = {
            "classes": list(classes),
            "counts": np.stack([(decided == CODES[name]).sum(0) for name in ("yes", "unsure", "no")], 1).tolist(),
            "levels": LEVELS,
            "chances": chances_of_levels(answers),
            "measured": answers.curve is not None,
            "files": [
                quote(os.fsencode(os.path.relpath(files[name].absolute(), out.resolve()))) if name in files else None
                for name in images
            ],
            # for each image the classes that are present, and the unknown classes
            "truth": labels is not None and [[np.flatnonzero(row == value).tolist() for value in (1, -1)] for row in labels],
        }
        # two bytes for each class and image; the page decodes the column of a class when it is shown
        columns = [data_block(base64.b64encode(column.tobytes()).decode(), f"column-{c}") for c, column in enumerate(entries.T)]
        page = render(
            "gallery.html",
            TEMPLATES,
            styles=["base.css", "gallery.css"],
            scripts=["common.js", "gallery.js"],
            images="'self' file:",  # the photographs beside the page; a page opened from a server reaches that server alone
            count=len(images),
            has_truth=labels is not None,
            chance=CHANCE[answers.curve is not None],
            facts=data_block(facts, "facts"),
            names=data_block(images, "names"),
            columns=Markup("\n").join(columns),
        )
        (folder / "index.html").write_text(page, encoding="utf-8")
    return out / "index.html"


def levels_of(scores: np.ndarray) -> np.ndarray:
    """Scores as whole numbers from 0 to LEVELS, uint16 in the scores' shape; images of equal chance keep their order by score."""
    return np.round((log_odds(scores) / TOP + 1) / 2 * LEVELS).astype("<u2")


def chances_of_levels(answers: Answers) -> list[float]:
    """The chance that a class is present at each level, to four digits; without a curve the score itself."""
    scores = expit(TOP * (2 * np.arange(LEVELS + 1) / LEVELS - 1))
    return np.round(answers.present(scores[:, None])[:, 0], 4).tolist()


def read_predictions(path: Path, classes: int) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray | None]:
    """Images (N), scores (N, C) float32, decisions (N, C) uint8 by CODES; labels (N, C), or None unless from `evaluate`."""
    if path.suffix.lower() == ".parquet" and "label" in pq.read_schema(path).names:
        table = read_parquet(path)
        scores, answer, labels = (matrix(table[name]) for name in ("score", "answer", "label"))
        return table["id"].to_pylist(), scores, np.where(answer < 0, CODES["unsure"], answer).astype(np.uint8), labels
    wanted = ["image", "probability", "decision"]
    if path.suffix.lower() == ".csv":
        frame = pd.read_csv(path, usecols=wanted, dtype={"image": str}, na_filter=False)
    else:
        frame = read_parquet(path, wanted).to_pandas()
    scores, codes = frame["probability"].to_numpy(np.float32), frame["decision"].map(CODES).to_numpy(np.uint8)
    return frame["image"].iloc[::classes].tolist(), scores.reshape(-1, classes), codes.reshape(-1, classes), None


def _thumbnails(names: Sequence[str], read: Callable[[str], Image.Image], folder: Path) -> None:
    """Write the thumbnail of each image that can still be read."""
    folder.mkdir()

    def make(i: int) -> None:
        with suppress(Rejected):
            (folder / f"{i}.jpg").write_bytes(jpeg(read(names[i]), THUMBNAIL, 78))

    with ThreadPoolExecutor(max(1, worker_count())) as pool:
        deque(progress(pool.map(make, range(len(names))), desc="thumbnails", total=len(names), unit="image"), maxlen=0)
