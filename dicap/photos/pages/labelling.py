"""The page for labelling photographs or reviewing their labels: one file that sends nothing."""

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
BUDGET = 100  # photographs of LARGE pixels; more photographs are made smaller, so that the page does not grow further


@dataclass(frozen=True)
class Question:
    """A photograph to label.

    Attributes:
        id: its name in the data set.
        chance: (C,) that each class is present.
        on: classes that are switched on at first: the likely ones, or in a review the labels.
        odd: in a review the classes with a surprising entry, the most surprising first.
        unknown: in a review the unknown classes; they stay unknown without an answer.
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
    """Write the page to the file `out`; return the name of the first file of labels that the page downloads.

    The browser stores the user's answers under the key of the batch (`batch_key`).

    Args:
        pictures: a picture for each question, of any size.
        review: the photographs are labelled already.
        measured: the chances are measured, not the network's confidences.
        folder: folder of photographs that are all unlabelled; `classes` are then suggestions without chances.
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
    """The key of a batch's answers in the browser, which differs between projects even if their images have equal names."""
    labels = [[sorted(question.on), sorted(question.unknown)] for question in questions] if review else None
    content = [[question.id for question in questions], list(classes), list(pictures), labels]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:20]
