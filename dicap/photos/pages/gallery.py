"""Predictions to look at: a page of thumbnails by class and measured chance, for tens of thousands of photographs."""

import base64
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from markupsafe import Markup
from PIL import Image

from dicap.calibration.ranks import log_odds
from dicap.data.loader import worker_count
from dicap.data.sources.base import Rejected, read_rgb
from dicap.evaluation.answers import Answers
from dicap.files.tables import matrix, read_parquet
from dicap.files.written import replacing_own_folder
from dicap.machine.progress import progress
from dicap.pages.html import data_block, render
from dicap.pages.pictures import fitted, jpeg
from dicap.photos.pages import TEMPLATES

THUMBNAIL = 256  # pixels of the longer side
FOLDER_OF = 1000  # thumbnails in a folder: file managers are slow in larger ones
LEVELS = (1 << 14) - 1  # of a score in the page, even steps of its logit; the two bits above hold the decision
CODES = {"no": 0, "yes": 1, "unsure": 2}


def write_gallery(
    predictions: Path,
    root: Path,
    classes: Sequence[str],
    answers: Answers,
    out: Path,
    workers: int | None = None,
    files: Mapping[str, Path] | None = None,
    read: Callable[[str], Image.Image] | None = None,
) -> Path:
    """Write `out`/index.html and `out`/thumbs/ for a file of predictions; return the page's path.

    The page shows thumbnails and links to the photographs where they lie, so that it stays small.

    Args:
        predictions: as `predict_to_file` writes them (.parquet, .csv), or as `evaluate` does, whose truth the page shows too.
        root: the folder that the predictions' image paths are relative to.
        answers: of the model, for the measured chance that a class is present; its scores stand in where there is no curve.
        out: absent, empty or as an earlier call left it; replaced as a whole, or left as it was if anything fails.
        workers: threads that make thumbnails; None: chosen.
        files: where images lie whose names do not say it, as those of a list in another folder.
        read: gives the image of a name; None: the file is read. One that is not in `files` either is its thumbnail alone.

    Raises:
        DataError: `out` holds what was not written so.
    """
    images, scores, decided, labels = read_predictions(predictions, len(classes))
    entries = levels_of(scores) | (decided.astype("<u2") << 14)  # (N, C)
    out, root = Path(out), Path(root)
    files = {name: file for name in images if (file := (files or {}).get(name, root / name)) != root / name}
    thumbnails = [f"thumbs/{i // FOLDER_OF}/{i}.jpg" for i in range(len(images))]
    places = {name: quote(os.fsencode(os.path.relpath(file.absolute(), out.resolve()))) for name, file in files.items()}
    if read is not None:
        places = dict(zip(images, thumbnails, strict=True)) | places
    with replacing_own_folder(out) as folder:
        _thumbnails(
            images, read or (lambda name: read_rgb(files.get(name, root / name), upright=True)),
            [folder / name for name in thumbnails], workers,
        )  # fmt: skip
        facts = {
            "classes": list(classes),
            "counts": [
                [int((decided[:, c] == CODES[name]).sum()) for name in ("yes", "unsure", "no")] for c in range(len(classes))
            ],
            "levels": LEVELS,
            "chances": chances_of_levels(answers),
            "measured": answers.curve is not None,
            "folder_of": FOLDER_OF,
            "root": Path(os.path.relpath(root.resolve(), out.resolve())).as_posix(),
            "files": places,
            # of each image the classes that are there, and those of which nothing is known
            "truth": None
            if labels is None
            else [[np.flatnonzero(row > 0).tolist(), np.flatnonzero(row < 0).tolist()] for row in labels],
        }
        columns = [_column(entries[:, c], f"column-{c}") for c in range(len(classes))]
        page = render(
            "gallery.html",
            TEMPLATES,
            styles=["base.css", "gallery.css"],
            scripts=["common.js", "gallery.js"],
            images="'self' file:",  # the photographs beside the page; a page opened from a server reaches that server alone
            count=len(images),
            has_truth=labels is not None,
            chance="measured chance that the class is present"
            if answers.curve is not None
            else "network's confidence (no chance was measured)",
            facts=data_block(facts, "facts"),
            names=data_block(images, "names"),
            columns=Markup("\n").join(columns),
        )
        (folder / "index.html").write_text(page, encoding="utf-8")
    return out / "index.html"


def levels_of(scores: np.ndarray) -> np.ndarray:
    """Scores as whole numbers from 0 to LEVELS, of their shape, uint16: what has the same chance keeps its order by score."""
    top = float(log_odds(np.ones(1))[0])
    return np.round((log_odds(scores) / top + 1) / 2 * LEVELS).astype("<u2")


def chances_of_levels(answers: Answers) -> list[float]:
    """The chance that a class is present at each level, to four digits; without a curve the score itself."""
    top = float(log_odds(np.ones(1))[0])
    scores = 1 / (1 + np.exp(-top * (2 * np.arange(LEVELS + 1) / LEVELS - 1)))
    return np.round(answers.present(scores[:, None])[:, 0], 4).tolist()


def read_predictions(path: Path, classes: int) -> tuple[list[str], np.ndarray, np.ndarray, np.ndarray | None]:
    """Images (N), scores (N, C) float32, decisions (N, C) uint8 by CODES; labels (N, C) where `evaluate` wrote the file.

    `predict` or it has just written it.
    """
    if path.suffix.lower() == ".parquet" and "label" in pq.read_schema(path).names:
        table = read_parquet(path)
        scores, answer, labels = (matrix(table[name]) for name in ("score", "answer", "label"))
        return table["id"].to_pylist(), scores, np.where(answer < 0, CODES["unsure"], answer).astype(np.uint8), labels
    wanted = ["image", "probability", "decision"]
    if path.suffix.lower() == ".csv":
        text = {"image": str, "decision": str}
        frame = pd.read_csv(path, usecols=wanted, dtype=text, keep_default_na=False, na_filter=False)
    else:
        frame = read_parquet(path, wanted).to_pandas()
    scores, codes = frame["probability"].to_numpy(np.float32), frame["decision"].map(CODES).to_numpy(np.uint8)
    return frame["image"].iloc[::classes].tolist(), scores.reshape(-1, classes), codes.reshape(-1, classes), None


def _column(entries: np.ndarray, name: str) -> Markup:
    """The entries of a class, two bytes each; the page decodes a column when it is asked for."""
    content = base64.b64encode(np.ascontiguousarray(entries).tobytes()).decode("ascii")
    return Markup(f'<script type="text/plain" id="{name}">{content}</script>')


def _thumbnails(names: Sequence[str], read: Callable[[str], Image.Image], files: Sequence[Path], workers: int | None) -> None:
    """Write the thumbnail of each image; one that can no longer be read has none."""
    for folder in {file.parent for file in files}:
        folder.mkdir(parents=True)

    def make(i: int) -> None:
        try:
            picture = read(names[i])
        except Rejected:
            return
        files[i].write_bytes(jpeg(fitted(picture, THUMBNAIL), 78))

    with ThreadPoolExecutor(max(1, worker_count() if workers is None else workers)) as pool:
        made: Any = pool.map(make, range(len(names)))
        for _ in progress(made, desc="thumbnails", total=len(names), unit="image"):
            pass
