"""The page on which photographs are labelled, or their labels reviewed: one file, nothing leaves it."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from markupsafe import Markup
from PIL import Image

from dicap.files.written import replacing_own
from dicap.pages.html import address, data_block, render
from dicap.photos.pages import CHANCE, TEMPLATES, jpeg

LARGE, THUMBNAIL = 1024, 160  # pixels
BUDGET = 100  # photographs of LARGE pixels; more are made smaller, so that the page stays about as large as these


@dataclass(frozen=True)
class Question:
    """A photograph to label.

    Attributes:
        id: its name in the data set.
        chance: (C,) that each class is present.
        on: classes that are on at first: the likely ones, or in a review those it is labelled with.
        odd: in a review the classes whose label is surprising, the most surprising first.
        unknown: in a review the classes of which nothing is known; what is not answered stays unknown.
        photo: mark of its file, which the downloaded labels carry (`dicap.photos.readers.read.photo_mark`).
    """

    id: str
    chance: np.ndarray
    on: list[int]
    odd: Sequence[int] = ()
    unknown: Sequence[int] = ()
    photo: str = ""


def write_labelling_page(
    questions: Sequence[Question],
    pictures: Iterable[Image.Image],
    classes: Sequence[str],
    out: Path,
    *,
    review: bool,
    measured: bool,
    folder: str | None = None,
) -> str:
    """Write the page to the file `out`; return the name under which it downloads the labels first.

    The browser keeps what a user decides under the batch's key (`batch_key`).

    Args:
        pictures: one a question, of any size.
        review: the photographs are labelled already.
        measured: the chances are measured ones, not the network's confidences.
        folder: where photographs lie of which none is labelled yet; `classes` are then names to begin with, without chances.
    """
    assert questions
    side = int(np.clip(LARGE * np.sqrt(BUDGET / len(questions)), 256, LARGE))
    photographs, items = [], []
    for number, (question, picture) in enumerate(zip(questions, pictures, strict=True)):
        photographs.append(data_block(address(jpeg(picture, side)), f"photograph-{number}"))
        more = {"chance": question.chance.round(4).tolist(), "thumbnail": address(jpeg(picture, THUMBNAIL, 75))}
        items.append(asdict(question) | more)
    count = len(questions)
    batch = {
        "key": batch_key(questions, classes, [item["thumbnail"] for item in items], review=review),
        "classes": [] if folder else list(classes),
        "extra": list(classes) if folder else [],
        "folder": folder,
        "items": items,
    }
    page = render(
        "labelling.html",
        TEMPLATES,
        styles=["base.css", "labelling.css"],
        scripts=["common.js", "labelling.js"],
        title=f"{'Review' if review else 'Label'} {count:,} photograph{'s' if count != 1 else ''}",
        count=count,
        classes=len(classes),
        legend=("Type the name of a class that is not listed." if folder else f"The percentage is the {CHANCE[measured]}.")
        + (" Ringed: a label that surprises." if review else "")
        + (" Dashed: unknown, and stays so; press once for yes, twice for no." if any(len(q.unknown) for q in questions) else ""),
        batch=data_block(batch, "batch"),
        photographs=Markup("\n").join(photographs),
    )
    with replacing_own(out) as temporary:
        temporary.write_text(page, encoding="utf-8")
    return f"labels-{batch['key'][:6]}.csv"


def batch_key(questions: Sequence[Question], classes: Sequence[str], pictures: Sequence[str] = (), *, review: bool) -> str:
    """What the decisions of a batch are kept under: one browser may keep those of projects with equal names."""
    said = [[sorted(question.on), sorted(question.unknown)] for question in questions] if review else None
    content = [[question.id for question in questions], list(classes), list(pictures), said]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:20]
