"""`dicap-stage suggest`: which unlabelled images to label next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from stages.support.common import ARTIFACTS, data_folder, device_option, load, params_option, placed
from stages.support.terminal import finish, opening

if TYPE_CHECKING:
    from dicap.data.store import Store
    from dicap.machine.runtime import Runtime
    from dicap.models import SavedModel
    from dicap.settings import Settings
    from dicap.training.inputs import Inputs


@click.command("suggest")
@click.option("--count", type=click.IntRange(1), default=50, show_default=True, help="Images to label.")
@click.option("--model", type=click.Path(path_type=Path), help="Another model than the pipeline's last.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("suggest"), show_default=True, help="Folder."
)
@device_option
@params_option
def command(count: int, model: Path | None, out: Path, device: str, params: Path) -> None:
    """Choose the unlabelled images to label next: the most uncertain ones, spread over the classes, no near copies.

    Writes index.html, a page to label them on: open it in a browser, download the labels at the end. To fill in by hand:
    labels.csv (names separated by `;`, or `-` for none of the classes).
    """
    import csv

    import numpy as np

    from dicap.data.labels import labelled_mask
    from dicap.data.sources.own.read import added_before
    from dicap.data.store import Store
    from dicap.errors import DataError
    from dicap.files.artifacts import read_split
    from dicap.files.written import check_own, replacing_own
    from dicap.pages.labelling import Question, write_labelling_page
    from dicap.use.suggest import suggest
    from stages.support.photographs import originals

    listing, page = out / "labels.csv", out / "index.html"
    check_own(listing, page)
    settings = load(params)
    store = Store.open(data_folder(settings))
    saved, runtime, inputs = _opened(settings, store, model or ARTIFACTS / "finetune" / "model.safetensors", device)
    if saved.settings.image_size != store.image_size or saved.classes != store.classes:
        raise DataError(f"{model or ARTIFACTS / 'finetune'}: trained on another data set than {store.folder}; run `dvc repro`")
    split = read_split(ARTIFACTS / "split" / "split.parquet", store.ids)
    open_ = split["role"].to_numpy() == "unlabeled"
    given = added_before(settings.own.added)  # perhaps since the set was converted
    open_ &= np.array([image not in given for image in store.ids])
    rows = np.flatnonzero(open_ & ~labelled_mask(store.folder))  # labels that a ratio below 1 hides need not be given again
    if not len(rows):
        hidden = f" (ratio {settings.ratio:g} hides the labels of {open_.sum()}: set it to 1 to train on all)"
        raise DataError(
            f"{store.folder}: every image is labelled already{hidden if open_.any() else ''}; name a folder of images without "
            f"labels to choose from: dicap-stage init-data {settings.data_root} --unlabeled FOLDER"
        )
    chosen = suggest(saved, inputs, rows, count, runtime)
    with replacing_own(listing) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["image", "labels", "chosen_for", "uncertainty", "model_says"])
        for found in chosen:
            likely = ";".join(saved.classes[c] for c in found.likely)
            writer.writerow([store.ids[found.row], "", saved.classes[found.asked], f"{found.uncertainty:.3f}", likely])
    questions = [Question(str(store.ids[found.row]), found.chance, found.likely, asked=found.asked) for found in chosen]
    pictures = originals(settings, store, [found.row for found in chosen])
    measured = saved.decisions.curve is not None
    write_labelling_page(questions, pictures, saved.classes, page, review=False, measured=measured)
    facts = {"images": len(chosen), "of": len(rows), "page": str(page), "list": str(listing)}
    finish("suggest", facts, [opening(page), f"dicap-stage import-labels {listing}", "dvc repro"])


def _opened(settings: Settings, store: Store, path: Path, device: str) -> tuple[SavedModel, Runtime, Inputs]:
    """A model and what it looks at: the features of the bank, where they are of the model's own backbone, else the images."""
    from contextlib import suppress

    from dicap.errors import DataError
    from dicap.machine.runtime import Runtime
    from dicap.models import backbone_of, load_model
    from dicap.network import detach_backbone
    from dicap.training.inputs import BankFeatures, Images
    from dicap.use.predict import open_model
    from stages.support.training import open_bank

    with suppress(DataError):  # the features may be of other settings by now, or none are there
        bank = open_bank(placed(settings))
        if backbone_of(path) == bank.recipe.weights:
            runtime = Runtime.choose(device)
            saved = load_model(path, runtime.device, stored=bank.backbone)
            detach_backbone(saved.network, bank.grid)
            return saved, runtime, BankFeatures(bank, settings.seed, settings.augment.flip)
    saved, runtime = open_model(path, device)
    return saved, runtime, Images(store, settings.seed, settings.augment.flip)
