"""`dicap-stage review`: labelled images whose labels are probably wrong."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dicap.errors import DataError
from stages.photos.photographs import originals, write_list
from stages.support.common import ARTIFACTS, data_folder, device_option, load, out_option, params_option
from stages.support.terminal import finish, opening, say

if TYPE_CHECKING:
    import numpy as np

    from dicap.data.store import Store
    from dicap.settings import Settings


@click.command("review")
@click.option("--count", type=click.IntRange(1), default=40, show_default=True, help="Images to look at.")
@click.option("--again", is_flag=True, help="Also images whose labels came through import-labels.")
@out_option("review", "Folder.", folder=True)
@device_option
@params_option
def command(count: int, again: bool, out: Path, device: str, params: Path) -> None:
    """Show the labelled images with the least likely labels, to find wrong ones.

    Writes index.html, a page to correct them on: open it in a browser, download the labels at the end, and type the
    command that the page names. review.csv lists all labelled images, the least likely labels first.
    """
    import numpy as np

    from dicap.data.labels import labelled_mask, read_labels
    from dicap.data.store import Store
    from dicap.files.artifacts import read_roles
    from dicap.files.written import check_own
    from dicap.photos.pages.labelling import Question, write_labelling_page
    from dicap.photos.readers.imported import added_before
    from dicap.photos.review import chances, doubts

    listing, page = out / "review.csv", out / "index.html"
    check_own(listing, page)
    settings = load(params)
    store = Store.open(data_folder(settings))
    roles = read_roles(ARTIFACTS / "split" / "split.parquet", store.ids)
    rows = np.flatnonzero(labelled_mask(store.folder) & (roles != "test"))  # also labels that `ratio` hides from training
    ids = [str(store.ids[row]) for row in rows]
    if len(rows) < 2:
        raise DataError(f"{store.folder}: fewer than two labelled images to compare; label some first (dicap-stage suggest)")
    labels = read_labels(store.folder, rows, partial=True)
    in_part = bool((labels < 0).any())
    scores = out_of_fold_scores(settings, store, rows, labels, roles, device)
    looked_at = added_before(settings.own.added) if settings.own.added and not again else {}
    ranked = doubts(scores, labels, np.array([image not in looked_at for image in ids]))
    if not ranked:
        raise DataError(f"{store.folder}: every labelled image was looked at; --again shows them once more")
    chance, names = chances(scores, labels), store.classes
    table = [["image", "labels", *["absent"] * in_part, "surprise", "look_at"]]
    questions = []
    for doubt in ranked:
        on, off, unknown = (np.flatnonzero(labels[doubt.row] == value).tolist() for value in (1, 0, -1))
        questions.append(Question(ids[doubt.row], chance[doubt.row], on, doubt.odd, unknown))
        given, absent, odd = (";".join(names[c] for c in classes) for classes in (on, off, doubt.odd))
        if not unknown:
            given, absent = given or "-", "*"
        table.append([ids[doubt.row], given, *[absent or "-"] * in_part, f"{doubt.surprise:.3f}", odd])
    write_list(listing, table)
    marks, pictures = originals(settings, store, [int(rows[doubt.row]) for doubt in ranked[:count]])
    shown = [replace(question, photo=mark) for question, mark in zip(questions, marks, strict=False)]
    downloaded = write_labelling_page(shown, pictures, names, page, review=True, measured=True)
    seen_by = f"{settings.backbone} ({settings.backbone_weights} weights) before training"
    say(f"ranked by linear heads on the features of {seen_by}, each image scored out of fold")
    facts = {"images": len(shown), "of": len(ranked), "page": str(page), "list": str(listing)}
    finish("review", facts, [opening(page), f"dicap-stage import-labels {downloaded}", "dvc repro"])


def out_of_fold_scores(
    settings: Settings, store: Store, rows: np.ndarray, labels: np.ndarray, roles: np.ndarray, device: str
) -> np.ndarray:
    """Scores (n, C) of labelled rows, by heads on the features of the backbone before training."""
    import numpy as np

    from dicap.frozen.features.recipe import pretrained_network
    from dicap.frozen.inputs import open_features
    from dicap.machine.progress import progress
    from dicap.machine.runtime import Runtime
    from dicap.photos.folder import stored
    from dicap.photos.predict import embeddings
    from dicap.photos.review import among_neighbours, out_of_fold

    if settings.needs_features:
        seen = np.flatnonzero(roles != "test")  # unlabelled images count as neighbours, too
        features = open_features(ARTIFACTS / "features", settings, store).mean(seen)
    else:
        seen, photos = rows, progress(stored(store, rows), desc="review", total=len(rows), unit="image")
        _, features = embeddings(pretrained_network(settings), photos, store.image_size, Runtime.choose(device))
    return out_of_fold(among_neighbours(features)[np.searchsorted(seen, rows)], labels)
