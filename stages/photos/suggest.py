"""`dicap-stage suggest`: which unlabelled images to label next, or first."""

import shlex
from pathlib import Path
from unicodedata import normalize

import click

from dicap.errors import DataError, SettingsError
from dicap.settings.resolve import TEMPLATE, read_yaml, resolve_values
from stages.photos.photographs import originals, unlabelled, write_list
from stages.support.common import ARTIFACTS, data_folder, device_option, known_features, load, out_option, params_option
from stages.support.terminal import finish, opening, say

BY = ("spread", "random")  # benchmarks/suggest.py compares these and other ways
LIST, PAGE = "labels.csv", "index.html"


@click.command("suggest")
@click.argument("folder", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--count", type=click.IntRange(1), default=50, show_default=True, help="Images to label.")
@click.option("--by", type=click.Choice(BY), default=BY[0], show_default=True, help="How to choose.")
@click.option("--classes", help="Classes to begin with, for FOLDER: 'dog;cat'.")
@click.option("--model", type=click.Path(path_type=Path), help="Another model than the pipeline's last.")
@out_option("suggest", "Folder.", folder=True)
@device_option
@params_option
def command(
    folder: Path | None, count: int, by: str, classes: str | None, model: Path | None, out: Path, device: str, params: Path
) -> None:
    """Choose the images to label next.

    spread chooses images that stand for many others, none of them labelled; random draws at random, as the intervals of `count`
    need. The images are the unlabelled ones of the project, compared by its model, or those in FOLDER, where nothing is labelled
    yet, compared by a pretrained network. Writes index.html, a page to label them on: open it in a browser and download the
    labels at the end. To label by hand, fill in labels.csv (names separated by `;`, or `-` for none of the classes).
    """
    from dicap.files.written import check_own

    check_own(out / LIST, out / PAGE)
    if folder is not None:
        names = list(dict.fromkeys(name for part in (classes or "").split(";") if (name := normalize("NFC", part.strip()))))
        if reserved := {"-", "*"}.intersection(names):  # `-` and `*` have other meanings in a list of labels
            raise SettingsError(f"--classes: {min(reserved)!r} cannot be the name of a class; expected names, as 'dog;cat'")
        _first(folder, count, by, names, out, device, params)
        return
    from dicap.data.labels import labelled_mask
    from dicap.data.store import Store
    from dicap.photos.pages.labelling import Question, write_labelling_page
    from dicap.photos.predict import open_model
    from dicap.photos.suggest import suggest

    settings = load(params)
    store = Store.open(data_folder(settings))
    saved, _ = open_model(model or ARTIFACTS / "finetune", device)
    if saved.settings.image_size != store.image_size or saved.classes != store.classes:
        raise DataError(f"{model or ARTIFACTS / 'finetune'}: trained on another data set than {store.folder}; run `dvc repro`")
    labelled, candidates = labelled_mask(store.folder), unlabelled(settings, store)
    rows = candidates[~labelled[candidates]]  # labels that a ratio below 1 hides need not be given again
    if not len(rows):
        hidden = f" (ratio {settings.ratio:g} hides the labels of {len(candidates)}: set it to 1 to train on all)"
        way = f"name a folder of images without labels: dicap-stage init-data {settings.data_root} --unlabeled FOLDER"
        raise DataError(f"{store.folder}: every image is labelled already{hidden if len(candidates) else ''}; {way}")
    chosen, chance = suggest(saved, store, rows, count, device, by, labelled.nonzero()[0], known_features())
    likely = [(one >= 0.5).nonzero()[0].tolist() for one in chance]
    marks, pictures = originals(settings, store, chosen.tolist())
    entries = zip(store.ids[chosen], chance, likely, marks, strict=True)
    questions = [Question(str(name), one, on, photo=mark) for name, one, on, mark in entries]
    listed = [(question.id, "", ";".join(saved.classes[c] for c in question.on), question.photo) for question in questions]
    write_list(out / LIST, [("image", "labels", "model_says", "photo"), *listed])
    measured = saved.evidence.measured is not None
    write_labelling_page(questions, pictures, saved.classes, out / PAGE, review=False, measured=measured)
    _finish(out, count, len(chosen), len(rows), [f"dicap-stage import-labels {out / LIST}", "dvc repro"])


def _first(folder: Path, count: int, by: str, classes: list[str], out: Path, device: str, params: Path) -> None:
    """Choose images in a folder where nothing is labelled, by the backbone that a project of this folder would start from."""
    import numpy as np

    from dicap.data.sources.base import read_rgb
    from dicap.frozen.features.recipe import pretrained_network
    from dicap.machine.runtime import Runtime
    from dicap.photos.folder import photographs
    from dicap.photos.pages.labelling import Question, write_labelling_page
    from dicap.photos.suggest import first

    if out.resolve() == folder.resolve():
        raise SettingsError(f"--out: {out} is the folder of the photographs and may hold their own {LIST}; name another folder")
    if (folder / LIST).exists():  # the list of this batch would replace it
        text = f"labels exist already; dicap-stage init-data {shlex.quote(str(folder))} reads them, and after `dvc repro`"
        raise DataError(f"{folder / LIST}: {text} dicap-stage suggest, without a folder, chooses the next images")
    own = read_yaml(params) if params.exists() else {}
    values = read_yaml(TEMPLATE / "settings.yaml") | {"dataset": "table", "data_root": str(folder), "protocol": "recommended"}
    network = ("backbone", "backbone_weights", "weights_file", "image_size", "network")
    values |= {key: own[key] for key in network if own.get(key) is not None}
    settings = resolve_values(values, params).settings
    photos = photographs(folder)
    chosen = first(pretrained_network(settings), photos, settings.image_size, count, Runtime.choose(device), by)
    write_list(out / LIST, [("image", "labels"), *((one.name, "") for one in chosen)])
    questions = [Question(one.name, np.array([]), []) for one in chosen]
    place = shlex.quote(str(folder))
    pictures = (read_rgb(Path(str(one.source)), upright=True) for one in chosen)
    write_labelling_page(questions, pictures, classes, out / PAGE, review=False, measured=False, folder=place)
    filled = f"mv {shlex.quote(str(out / LIST))} {place}/labels.csv"
    _finish(out, count, len(chosen), len(photos), [filled, f"dicap-stage init-data {place}"])


def _finish(out: Path, asked: int, chosen: int, of: int, following: list[str]) -> None:
    if chosen < asked:
        reason = "without near copies and unreadable files"
        say(f"--count: {asked} images are wanted, and {of} have no labels: {chosen} are listed, {reason}")
    facts = {"images": chosen, "of": of, "page": str(out / PAGE), "list": str(out / LIST)}
    finish("suggest", facts, [opening(out / PAGE), *following])
