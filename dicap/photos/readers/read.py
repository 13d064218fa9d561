"""Data set `table`: the user's own images in any known format, read with the options of the settings' section `own`."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from dicap.data.sources.base import FileImages, Item, RawSet
from dicap.data.sources.files import list_images, readable, same_file
from dicap.errors import DataError, first_of
from dicap.photos.readers import coco_file, folders, label_studio, table, xml_files
from dicap.photos.readers.copies import with_groups, without_leaks
from dicap.photos.readers.derived import ask_of_derived
from dicap.photos.readers.finder import is_ignored
from dicap.photos.readers.imported import forgotten, with_added
from dicap.photos.readers.listing import to_raw
from dicap.photos.readers.names import may_be_doubted, with_words
from dicap.photos.readers.question import Question, joined, typed
from dicap.photos.readers.sheet import read_sheet
from dicap.photos.readers.understand import SEVERAL, TABLES, ask_of_folders, opened, understand
from dicap.randomness import order_by_name
from dicap.settings import Own

READERS = {
    "table": table.read,
    "coco": coco_file.read,
    "labelstudio": label_studio.read,
    "voc_xml": xml_files.read_voc,
    "cvat": xml_files.read_cvat,
    "folders": folders.read,
}
TEST_SHARE = 0.2  # of the labelled images, if the labels name no test split


def look(place: Path, options: Own) -> tuple[Path, Own, RawSet]:
    """Return the folder of a data set, the reading of its labels, which `init-data` writes down, and the images read so.

    Each question is answered by its proposed reading, and reading goes on with this answer. So the command asks all questions
    at once, and the options that it names at the end answer all of them.

    Args:
        place: the folder, or the file of labels in it.
        options: settings that the user gave; `own.names` are known to be classes, other names may be new classes.

    Raises DataError if no labels can be read, or not as proposed; Question if labels can be read in more than one way.
    """
    own, texts, answers = options, [], {}
    while True:
        try:
            root, reading = understand(place, own)
            widened = own.unlabeled_root is None and reading.format != "folders"  # photographs without a row are read, too
            if widened:
                reading = reading.model_copy(update={"unlabeled_root": str(root)})
            raw = read(root, reading, looking=True)
            if widened and own.format is None and place.is_dir():
                ids = [item.id for item in raw.items]
                if any(item.labels is None for item in raw.items):
                    named = {item.id for item in as_listed(root, reading, looking=True).items}
                    ask_of_folders(root, [image for image in ids if image not in named], reading.format or "")
                plain_labels = reading.labels and (reading.files or [""])[0].lower() in TABLES
                if reading.format == "table" and len(raw.classes) < SEVERAL and not plain_labels:
                    ask_of_folders(root, ids, "table", raw.classes)
        except Question as question:
            before, answers = answers, joined(answers, question.options)
            texts.append(question.text)
            if answers == before:  # the question was answered, but came again
                raise DataError("; ".join(texts)) from None
            own = own.model_copy(update=joined({key: getattr(own, key) for key in answers}, answers))
        except DataError as error:
            if not texts:
                raise
            raise DataError("; ".join([*texts, f"and with the proposed reading, {error}"])) from None
        else:
            if texts:
                usual = {"added", *["test_share"] * (options.test_share == TEST_SHARE)}
                raise Question("; ".join(texts), options.model_dump(exclude_defaults=True, exclude=usual), **answers)
            return root, reading, raw


def read(root: Path, own: Own, looking: bool = False) -> RawSet:
    """Read `data_root` as the settings say, then apply the options.

    The order is: unlabelled images of a second folder (`own.unlabeled_root`), groups of images that belong on one side of every
    split, a test split drawn from the labelled images (`own.test_share`) if the labels name none, and labels added later
    (`own.added`). Added labels come last so that they change no image of the test split.

    Args:
        looking: whether names beside `own.names` may be new classes.

    Raises DataError if no labels can be read, or a test split is missing and none is drawn; Question if labels can be read in
    more than one way, or some images may be derived from photographs.
    """
    root, own = opened(root, own)
    try:
        return _as_set(root, own, looking)
    except Question as question:
        if looking:
            raise
        found = {"new_classes", "added"} | ({"unlabeled_root"} if own.unlabeled_root == str(root) else set())
        found |= set() if own.label_folder != "auto" or folders.of_anything(own.names or ()) else {"format"}
        names = [name for name in own.names or () if may_be_doubted(name, own.names or ())]
        said = own.model_copy(update={"names": names or None}).model_dump(exclude_defaults=True, exclude=found)
        again = Question(question.text, said, **question.options)
        again.args = (again.proposing("init-data", str(root)),)
        raise again from None


def _as_set(root: Path, own: Own, looking: bool) -> RawSet:
    """The set that `read` returns."""
    if own.format in (None, "table") and not own.files:
        own = own.model_copy(update={"files": [table.DOCUMENTED]})
    raw = as_listed(root, own, looking)
    if own.format == "folders":
        ask_of_derived(root, own, [item.id for item in raw.items])
    if own.unlabeled_root:
        folder, listed = Path(own.unlabeled_root), {item.id for item in raw.items}
        raw = with_unlabelled(raw, folder, root, own.ignore)
        if own.format != "folders" and folder.resolve() == root.resolve():
            listed = {item.id for item in raw.items if item.labels is not None}
            ask_of_derived(root, own, [item.id for item in raw.items if item.id not in listed], listed)
        else:
            ask_of_derived(folder, own, [item.path for item in raw.items if item.id not in listed])
    raw = with_groups(raw)
    if own.test_share and not any(item.split == "test" for item in raw.items):
        raw = with_test(raw, own.test_share)
    raw = without_leaks(raw)
    if own.added:
        raw = with_added(raw, Path(own.added), own)
    if not looking and (lost := sorted({*(own.names or ())} - {*raw.classes})):
        shown = first_of(list(map(repr, lost)), 3)
        raise Question(f"{root}: no image is labelled {shown} any more; bring it back, or look again")
    raw.notes.extend(forgotten(own.added, raw))
    splits = {item.split for item in raw.items}
    if "train" not in splits:
        less = f", or leave the splits out: init-data --ignore {typed(own.split)}" if own.split else ""
        raise DataError(f"{root}: no image of split train; label some images of it{less}")
    if "test" not in splits:
        way = "set own.test_share, for example to 0.2, to draw one from the labelled images"
        raise DataError(f"{root}: no image of split test; {way}")
    return raw


def as_listed(root: Path, own: Own, looking: bool) -> RawSet:
    """The images that the labels name, before `read` applies the options. Arguments and errors as in `read`."""
    for name in own.files or ():
        if not (root / name).is_file():
            raise DataError(f"{root / name}: no such file of labels; look at what is there: dicap-stage init-data {root}")
    if own.format is None:  # `init-data` was not run
        heads = read_sheet(*(root / name for name in own.files or ())).header
        own = own.model_copy(update={"format": "table"} | {head: head for head in heads if head in table.DOCUMENTED_HEADS})
    listing = with_words(READERS[str(own.format)](root, own), own, looking)
    return to_raw(root, replace(listing, source=listing.source | {"format": own.format}), own, looking)


def with_unlabelled(raw: RawSet, folder: Path, base: Path, ignore: Iterable[str] | None = None) -> RawSet:
    """Add the images of a second folder as unlabelled images, except files that are already in the set under any name.

    The ids are paths below `base`, the folder of the data set; for a folder outside `base` they begin with the folder's name. So
    an image keeps its id, and the labels added to it, when other images come or go.

    Raises DataError if there is no such folder, or if an image would have the id of another image.
    """
    assert isinstance(raw.images, FileImages)
    known = {same_file(file) for file in raw.images.paths}
    images = list_images(folder, required=folder.resolve() != base.resolve())
    fresh = {same_file(folder / path): path for path in reversed(images) if not is_ignored(path, ignore)}
    others = sorted(path for file, path in fresh.items() if file not in known)
    place = Path(os.path.relpath(folder.resolve(), base.resolve()))
    prefix = Path(folder.resolve().name) if ".." in place.parts else place
    more = [Item(readable((prefix / path).as_posix()), readable(path), "unlabeled", None) for path in others]
    if clashes := sorted({item.id for item in raw.items} & {item.id for item in more}):
        raise DataError(f"{folder}: {clashes[0]!r} is the name of an image of the data set too; rename the folder")
    notes = [*raw.notes, *([f"{len(more)} unlabelled images: photographs in {folder} that no row names"] if more else [])]
    files = [*raw.images.paths, *(folder / path for path in others)]
    return replace(raw, items=[*raw.items, *more], images=FileImages(Path(), files, raw.images.below, upright=True), notes=notes)


def with_test(raw: RawSet, share: float) -> RawSet:
    """Draw a test split from the labelled training images, with rare classes in both parts; a group stays on one side."""
    groups: dict[str, list[int]] = {}
    for i, item in enumerate(raw.items):
        if item.split == "train":
            groups.setdefault(item.group or item.id, []).append(i)
    names = list(groups)
    labels = np.zeros((len(names), len(raw.classes)), bool)
    for place, rows in enumerate(groups.values()):
        labels[place, [c for row in rows for c in raw.items[row].labels or ()]] = True
    if len(names) == 1:
        text = f"all labelled images ({len(groups[names[0]])}) are copies of one photograph or of one group"
        raise DataError(f"{raw.dataset}: {text}; a test split needs another; where folders are the labels: --format folders")
    order = order_by_name(names, 0, "test")
    chosen = {row for place in np.flatnonzero(stratified(labels[order], share)) for row in groups[names[order[place]]]}
    items = [replace(item, split="test") if i in chosen else item for i, item in enumerate(raw.items)]
    total = sum(map(len, groups.values()))
    note = f"{len(chosen)} of {total} labelled images were drawn as the test split (own.test_share)"
    return replace(raw, items=items, notes=[*raw.notes, note], source=raw.source | {"test_drawn": len(chosen)})


def stratified(labels: np.ndarray, share: float) -> np.ndarray:
    """Which rows are drawn as the test part, (N,) bool: the first rows, adjusted so that each class is in both parts.

    From the rarest class to the commonest, each class with two images or more gets at least half its share in either part: its
    first rows in the test part, its last rows in the other. The rows come in a drawn order in which the place of a row does not
    depend on other rows (`dicap.randomness.order_by_name`), so adding rows moves few; an exactly balanced draw would move many.

    Args:
        labels: (N, C) bool; share: of the rows, in (0, 1).
    """
    n, counts = len(labels), labels.sum(0)
    part = np.full(n, -1)
    for c in np.argsort(counts, kind="stable")[np.count_nonzero(counts < 2) :]:  # a single image is in one part
        rows = np.flatnonzero(labels[:, c])
        for side, portion in ((1, share), (0, 1 - share)):
            lacking = max(int(portion * len(rows) / 2), 1) - np.count_nonzero(part[rows] == side)
            free = rows[part[rows] < 0][:: 1 if side else -1]
            part[free[: max(lacking, 0)]] = side
    wanted = min(max(round(share * n), 1), n - 1) - np.count_nonzero(part == 1)
    part[np.flatnonzero(part < 0)[: max(wanted, 0)]] = 1
    return part == 1
