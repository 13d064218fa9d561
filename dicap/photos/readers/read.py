"""Data set `table`: the user's own images in any known format, read with the options of the settings' section `own`."""

import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from unicodedata import normalize

import numpy as np

from dicap.data.sources.base import FileImages, Item, RawSet
from dicap.data.sources.files import list_images, readable, same_file
from dicap.errors import DataError, first_of
from dicap.files.checksum import sha256
from dicap.photos.readers import coco_file, folders, label_studio, table, xml_files
from dicap.photos.readers.copies import with_groups, without_leaks
from dicap.photos.readers.derived import ask_of_derived
from dicap.photos.readers.finder import is_ignored
from dicap.photos.readers.heads import plain
from dicap.photos.readers.listing import to_raw
from dicap.photos.readers.names import ask_of_names, with_words
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
IMPORTED = ("image", "labels", "absent", "was", "photo", "model_says", "surprise", "look_at")  # the last three are not read
TEST_SHARE = 0.2  # of the labelled images, if the labels name no test split
LISTS = Path("labels")  # folder of a project in which `import-labels` writes
LISTED = re.compile(r"added-([0-9a-f]{12})\.csv")  # files that `import-labels` writes


@dataclass(frozen=True)
class Given:
    """Labels of one image that were added later.

    Attributes:
        labels: names of the labels.
        absent: names of the classes known to be absent; None: all classes but the labels.
        was: mark of the data set's own labels of the image when these were imported; None: not known.
        photo: mark of the image's file at that time; None: not known.
    """

    labels: list[str]
    absent: list[str] | None = None
    was: str | None = field(default=None, compare=False)
    photo: str | None = field(default=None, compare=False)

    def among(self, classes: Iterable[str]) -> "Given":
        """The same labels, saying something of these classes only."""
        return self if self.absent is not None else replace(self, absent=sorted({*classes} - {*self.labels}))

    def whole(self, classes: Iterable[str]) -> "Given":
        """The same labels; if they say something of each of these classes, no class is unknown."""
        return replace(self, absent=None) if {*classes} <= {*self.labels, *(self.absent or ())} else self

    def after(self, before: "Given | None") -> "Given":
        """Join these labels with earlier ones, which count for the classes that these do not name."""
        if before is None or self.absent is None:
            return self
        labels = sorted({*before.labels, *self.labels} - {*self.absent})
        absent = None if before.absent is None else sorted({*before.absent, *self.absent} - {*self.labels})
        return replace(self, labels=labels, absent=absent)

    def standing(self, own: "Given | None", photo: str) -> "Given | None":
        """What remains of this import beside the data set's `own` present labels: corrections after the import come first.

        None if the import was made for another photograph than the one with the mark `photo`.
        """
        if self.is_of_another(photo):
            return None
        return own.after(self) if own is not None and self.is_older(own) else self

    def is_of_another(self, photo: str) -> bool:
        """Whether the labels were given to another photograph than the one with this mark; False if a mark is missing."""
        return bool(self.photo) and photo not in (self.photo, "")

    def is_older(self, own: "Given | None") -> bool:
        """Whether the data set's `own` labels were changed after the import."""
        return own is not None and self.was not in (None, own.mark())

    def mark(self) -> str:
        """A checksum of the labels and the absent classes."""
        absent = None if self.absent is None else sorted(self.absent)
        return hashlib.sha256(json.dumps([sorted(self.labels), absent]).encode()).hexdigest()[:12]


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

    Raises DataError if no labels can be read, or a test split is missing and none is drawn; Question if some images may be
    derived from photographs.
    """
    root, own = opened(root, own)
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
        raw = with_added(raw, Path(own.added), root, own.new_classes or ())
    if not looking and (lost := sorted({*(own.names or ())} - {*raw.classes})):
        shown = first_of(list(map(repr, lost)), 3)
        way = f"bring it back, or run `dicap-stage init-data {root}` again"
        raise DataError(f"{root}: no image is labelled {shown} any more; {way}")
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


def with_added(raw: RawSet, path: Path, base: Path, new_classes: Iterable[str] = ()) -> RawSet:
    """Add the labels in a file that `import-labels` wrote. An unlabelled image becomes a training image.

    The newer labels count: imported labels, unless the data set's own labels of the image were corrected after the import.
    Labels of a removed image, or of an image whose file is another photograph now, are left out with a note. An image that has
    another name now keeps its labels only if both names are links to one file.

    Args:
        base: the folder that ids are relative to.
        new_classes: classes that are unknown in images that do not name them; classes that only the file names are such, too.

    Raises DataError if the file is missing or not readable.
    """
    ids = by_spelling(item.id for item in raw.items)
    added = {ids.get(image, ids.get(normalize("NFC", image), image)): given for image, given in added_before(path).items()}
    files = dict(zip((item.id for item in raw.items), getattr(raw.images, "paths", ()), strict=True))
    if others := sorted(added.keys() - files.keys()):
        links = {same_file(file): image for image, file in files.items()}
        moved = {links.get(same_file(base / image), image): added[image] for image in others}
        added = moved | {image: given for image, given in added.items() if image in files}
    names = sorted({*raw.classes, *(name for given in added.values() for name in given.labels)})
    number = {name: i for i, name in enumerate(names)}
    fresh = ({*names} - {*raw.classes}) | ({*new_classes} & {*names})
    own_classes = {*raw.classes} - fresh
    items, unknown, newer, exchanged, differ = [], 0, [], [], []
    for item in raw.items:
        own = given_of(item, raw.classes)
        given, was, later = own.among(own_classes) if own and fresh else own, None, added.get(item.id)
        if later is not None and later.is_of_another(photo_mark(files[item.id])):
            exchanged.append(item.id)
        elif later is not None:
            was = item.split if item.split != "test" else None
            corrected = later.is_older(own)
            newer += [item.id] * corrected
            given = given.after(later) if corrected and given else later.after(given)
            differ += [item.id] * (own is not None and not corrected and own_classes & ({*own.labels} ^ {*given.labels}) != set())
        if given is not None:
            labels = tuple(sorted(number[name] for name in given.labels))
            absent = None if given.absent is None else tuple(sorted(number[name] for name in given.absent if name in number))
            unknown += bool(fresh) and given.absent is not None and not fresh <= {*given.labels, *given.absent}
            if labels or absent != ():  # else nothing is known of the image
                item = Item(item.id, item.path, "train" if was else item.split, labels, was, absent, item.group)
        items.append(item)
    removed = sorted(added.keys() - files.keys())
    notes = [*raw.notes, f"{len(added) - len(removed) - len(exchanged)} images have labels from {path.name}"]
    texts = {
        "labels of images that are not in the data set any more": removed,
        "labels of images whose files are other photographs now, left out": exchanged,
        "images whose own labels were changed after the import, so their own labels count": newer,
        "images whose own labels differ from the imported labels, so the imported labels count": differ,
    }
    notes += [f"{path.name}: {text}: {len(ids)} (the first: {ids[0]})" for text, ids in texts.items() if ids]
    if fresh:
        notes.append(f"classes that came with {path.name}: {', '.join(sorted(fresh))}; unknown in {unknown} labelled images")
    return replace(raw, classes=names, items=items, notes=notes)


def photo_mark(file: Path) -> str:
    """A checksum that distinguishes photographs of one name; empty for a missing file."""
    return sha256(file)[:16] if file.is_file() else ""


def forgotten(added: str | None, raw: RawSet) -> list[str]:
    """Notes on lists with labels that `own.added` lacks, as after params.yaml was reverted.

    A list whose images are all in a longer list gets no note: the longer list was written later and holds all earlier labels.
    """
    kept = {*added_before(added)}
    files = dict(zip((item.id for item in raw.items), getattr(raw.images, "paths", ()), strict=True))
    lists = {path: added_before(path) for path in sorted((Path(added).parent if added else LISTS).glob("added-*.csv"))}
    notes = []
    for path, labels in lists.items():
        missing = sorted(labels.keys() & files.keys() - kept)
        lost = [image for image in missing if not labels[image].is_of_another(photo_mark(files[image]))]
        if lost and not any(labels.keys() < others.keys() for others in lists.values()):
            text = f"{path} holds labels of {len(lost)} images that own.added ({added or 'empty'}) does not"
            notes.append(f"{text} (the first: {lost[0]}); dicap-stage import-labels {path} brings them back")
    return notes


def given_of(item: Item, classes: list[str]) -> Given | None:
    """The labels of an item by their names; None if the item is not labelled."""
    if item.labels is None:
        return None
    return Given([classes[c] for c in item.labels], None if item.absent is None else [classes[c] for c in item.absent])


def added_before(path: Path | str | None) -> dict[str, Given]:
    """{image: labels} that `import-labels` wrote; {} without a file.

    Raises DataError if the file is missing or its content does not fit the checksum in its name.
    """
    if path is None:
        return {}
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file; bring it back (git checkout {path}), or set own.added to null")
    named = LISTED.fullmatch(path.name)
    if named is not None and named[1] != content_mark(path.read_bytes()):
        way = f"bring it back (git checkout {path}), or rename it and set own.added to the new name"
        raise DataError(f"{path}: not as import-labels wrote it; {way}")
    return read_added(path, separator=";")


def content_mark(content: bytes) -> str:
    """The checksum in the name of a list of imported labels; it does not depend on the ends of lines, which Git may change."""
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()[:12]


def read_added(
    path: Path,
    known: Iterable[str] = (),
    images: Iterable[str] | None = None,
    separator: str = "auto",
) -> dict[str, Given]:
    """{image: labels} of a table with columns image and labels. Rows with empty labels are left out; `-` means none.

    With a column `absent`, classes in neither column are unknown; in this column `*` means all but the labels, and `-` none.

    Args:
        known: names of classes, which show whether a comma separates names or belongs to a name.
        images: ids of the data set. Folders are part of a name: labels of a removed `a/1.jpg` are not given to `1.jpg`.
        separator: what separates names; `auto`: `;`, and an error if a comma might.

    Raises DataError if the file is missing, a column is missing or unknown, an image is not among `images` or has other labels on
    a second row, a class is both a label and absent, or a cell of `absent` is empty beside labels.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; `dicap-stage import-labels` writes it")
    sheet = read_sheet(path, required=False)
    heads = {plain(head): head for head in sheet.header}  # a spreadsheet may have given capitals
    if "unsure" in heads:  # as `predict --per-image` writes it, and nothing else
        raise DataError(f"{path}: answers of a model, which are no labels; correct them, then take out the column unsure")
    if lost := [name for name in ("image", "labels") if name not in heads]:
        raise sheet.lacks(lost[0], "expected image, labels")
    if unknown := [name for name in heads if name not in IMPORTED]:
        raise DataError(f"{path}: import-labels does not know column {unknown[0]}, which may change the labels; take it out")
    known, between = {*known}, ";" if separator == "auto" else separator
    absent = heads.get("absent") if any(sheet.texts(heads.get("absent"))) else None
    own = Own(image=heads["image"], labels=heads["labels"], absent=absent, separator=between, names=[*known])
    try:
        rows = table.rows_of(sheet, own, path.parent)
        if separator == "auto":
            ask_of_names(rows, known, separator)
    except Question as question:  # its options belong to `init-data`
        raise DataError(question.text.replace("; --empty-absent absent", "")) from None
    given: dict[str, Given] = {}
    ids = None if images is None else by_spelling(images)
    for row, was, photo in zip(rows, *(sheet.raw(heads.get(head)) for head in ("was", "photo")), strict=True):
        if row.labels is None:
            continue
        absent_names = None if row.absent is None else sorted(row.absent)
        mark = was if "was" in heads and was != "?" else None
        of_image, name = Given(sorted(row.labels), absent_names, mark, photo), row.image
        if ids is not None:
            spellings = name, name.strip(), normalize("NFC", name.strip())  # a name may begin with a blank
            if (image := next((ids[spelling] for spelling in spellings if spelling in ids), None)) is None:
                if LISTED.fullmatch(path.name):  # such a list keeps the labels of removed images
                    continue
                raise DataError(f"{row.where}: image {name!r} is not in the data set; write its id as `suggest` does")
            name = image
        if given.get(name, of_image) != of_image:
            raise DataError(f"{row.where}: image {name!r} has other labels than on an earlier line; keep one of them")
        given[name] = of_image
    return given


def by_spelling(ids: Iterable[str]) -> dict[str, str]:
    """{spelling: image}: each image by its id and by its id in NFC, since a program may write an accent as a letter."""
    ids = [*ids]
    return {normalize("NFC", image): image for image in ids} | {image: image for image in ids}


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
