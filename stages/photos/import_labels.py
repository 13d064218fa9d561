"""`dicap-stage import-labels`: new labels for your own data set."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dicap.errors import DataError, SettingsError, did_you_mean
from dicap.files.atomic import replacing
from dicap.settings.resolve import change_settings
from stages.support.common import load, params_option, take_turns
from stages.support.terminal import finish, say

if TYPE_CHECKING:
    from dicap.data.sources.base import RawSet
    from dicap.photos.readers.imported import Given
    from dicap.settings import Own

SHOWN = 20  # changed images that are listed


@click.command("import-labels")
@click.argument("filled", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--new-classes", is_flag=True, help="Allow classes that no image had so far.")
@click.option("--separator", help="What separates names in a cell, beside `;`. [own.separator]")
@params_option
def command(filled: Path, new_classes: bool, separator: str | None, params: Path) -> None:
    """Add the labels of FILLED, a table of image and labels as `suggest` writes it, and set params.yaml to use them.

    Rows whose labels are empty are left out; `-` means none of the classes. An optional column `absent` names classes verified
    not to be there (`*`: all others); classes in neither column are then unknown. These images train from then on, whatever the
    ratio. A new class is unknown in the images that were labelled before. Changed labels are listed. If the data set's own
    labels are corrected later, the correction counts. One file under labels/, named by its content, keeps all labels given so
    far: commit it with params.yaml.
    """
    import pandas as pd

    from dicap.photos.readers.imported import LISTED, LISTS, added_before, content_mark, forgotten, with_added
    from dicap.photos.readers.read import read

    take_turns(params)  # a second import waits, and then builds on the labels of the first
    settings = load(params)
    if settings.dataset != "table":
        raise SettingsError(f"{params}: dataset: found {settings.dataset!r}; only your own data (table) takes new labels")
    own, root = settings.own, Path(settings.data_root).resolve()
    raw = read(root, own.model_copy(update={"added": None}), looking=True)  # a class may occur in imported labels only
    before = added_before(own.added)
    classes = sorted({*raw.classes, *(name for labels in before.values() for name in labels.labels)})
    given, names = filled_in(filled, {item.id for item in raw.items}, classes, new_classes, separator, own)
    own_labels = own_words(raw, {*given, *before})
    standing = {image: now for image, labels in before.items() if (now := labels.standing(*own_labels[image]))}
    if names:  # new classes are unknown in the images that were labelled before
        before, standing = ({image: labels.among(classes) for image, labels in of.items()} for of in (before, standing))
    other = [image for image, labels in given.items() if labels.is_of_another(own_labels[image][1])]
    if other:  # the list is of another folder, or older than an exchange of photographs
        say(f"note: left out, since another photograph has the name by now: {len(other)} (the first: {min(other)})")
    given = {image: marked(labels, *own_labels[image]) for image, labels in given.items() if image not in other}
    if own.added and LISTED.fullmatch(filled.name):
        kept = Path(own.added).with_name(filled.name)  # a copy elsewhere may have a newer time
        if (kept if kept.is_file() else filled).stat().st_mtime_ns < Path(own.added).stat().st_mtime_ns:
            then = {*classes} - {*(own.new_classes or ())}  # in the list, later classes are unknown
            given = {image: labels.among(then) for image, labels in given.items()}
            given = {image: standing[image].after(labels) if image in standing else labels for image, labels in given.items()}
    if not given:
        raise DataError(f"{filled}: all its labels were given to other photographs of these names; label the ones that are here")
    every = before | {image: labels.after(standing.get(image)) for image, labels in given.items()}
    content = pd.DataFrame(table_of(every)).to_csv(index=False, header=False, lineterminator="\n").encode()
    path = LISTS / f"added-{content_mark(content)}.csv"
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    later = sorted({*(own.new_classes or ()), *names})
    was = known(with_added(raw, Path(own.added), own) if own.added else raw)
    now = known(with_added(raw, path, own.model_copy(update={"new_classes": later})))  # as `convert` will have it
    change_settings(params, {"own.added": path.as_posix(), "own.new_classes": later or None})
    again = sorted(given.keys() & was.keys())
    changed = [line for image in again if (line := compared(image, was[image], now[image], classes))]
    for line in changed[:SHOWN]:
        say(line)
    if len(changed) > SHOWN:
        say(f"... and {len(changed) - SHOWN} more")
    if unknown := sum(not {*names} <= {*now[image].labels, *(now[image].absent or ())} for image in was):
        say(f"{', '.join(names)}: unknown, neither there nor absent, in {unknown} images that were labelled before")
    for note in forgotten(path.as_posix(), raw):
        say(f"note: {note}")
    facts = {"new": len(given) - len(again), "changed": len(changed), "confirmed": len(again) - len(changed)}
    finish("import-labels", facts | {"in all": len(every), "labels": str(path)}, ["dvc repro"])


def filled_in(
    filled: Path, images: set[str], classes: list[str], new_classes: bool, separator: str | None, own: Own
) -> tuple[dict[str, Given], list[str]]:
    """Return the labels of each image in a list, and the names of new classes. Raises DataError for a faulty list."""
    from dicap.photos.readers.imported import read_added
    from dicap.photos.readers.listing import check_names
    from dicap.photos.readers.names import says_nothing

    given = read_added(filled, classes, images, separator or own.separator)
    if not given:
        raise DataError(f"{filled}: no row has labels of an existing image; fill in column labels (`-` for none of the classes)")
    names = sorted({name for labels in given.values() for name in (*labels.labels, *(labels.absent or ()))} - set(classes))
    if (words := [name for name in names if says_nothing(name, (*classes, *names))]) and own.words != "class":
        ways = "write `-` for none of the classes, nothing where it is not known, or set own.words to class in params.yaml"
        raise DataError(f"{filled}: {words[0]!r} is no name of a class; {ways}")
    if names and not new_classes:
        ways = f"correct the spelling, or pass --new-classes{did_you_mean(names[0], classes)}"
        raise DataError(f"{filled}: no image was labelled {', '.join(names[:5])} so far; {ways}")
    check_names(filled, names)
    return {image: labels.whole({*classes, *names}) for image, labels in given.items()}, names


def own_words(raw: RawSet, images: Collection[str]) -> dict[str, tuple[Given | None, str]]:
    """{image: the data set's own labels (None: not labelled), and the mark of the image's file}."""
    from dicap.photos.readers.imported import given_of, photo_mark

    files = zip(raw.items, getattr(raw.images, "paths", ()), strict=True)
    known = {item.id: (given_of(item, raw.classes), photo_mark(file)) for item, file in files if item.id in images}
    return dict.fromkeys(images, (None, "")) | known


def known(raw: RawSet) -> dict[str, Given]:
    """The labels and absent classes of each labelled image."""
    from dicap.photos.readers.imported import given_of

    return {item.id: labels.among(raw.classes) for item in raw.items if (labels := given_of(item, raw.classes)) is not None}


def marked(labels: Given, own: Given | None, photo: str) -> Given:
    """Labels with marks of the data set's own labels and of the photograph; marks of an earlier import stay."""
    was = ("" if own is None else own.mark()) if labels.was is None else labels.was
    return replace(labels, was=was, photo=labels.photo or photo)


def table_of(given: dict[str, Given]) -> list[list[str]]:
    """The rows of the file of labels, as `read_added` reads them.

    `was` and `photo` are marks of the data set's own labels of the image and of its file at the time of the import.
    """
    rows = [["image", "labels", "absent", "was", "photo"]]
    for image, entry in sorted(given.items()):
        labels = ";".join(entry.labels) or ("-" if entry.absent is None else "")
        absent = "*" if entry.absent is None else ";".join(entry.absent) or "-"
        rows.append([image, labels, absent, "?" if entry.was is None else entry.was, entry.photo or ""])
    return rows


def compared(image: str, was: Given, now: Given, classes: list[str]) -> str:
    """`<image>: - name lost, + name gained, name absent (was unknown)`; empty where nothing changes."""
    changes = [f"- {name}" for name in sorted({*was.labels} - {*now.labels})]
    changes += [f"+ {name}" for name in sorted({*now.labels} - {*was.labels})]
    absent = {*(now.absent or ())} & {*classes} - {*(was.absent or ()), *was.labels}
    changes += [f"{name} absent (was unknown)" for name in sorted(absent)]
    return f"{image}: {', '.join(changes)}" if changes else ""
