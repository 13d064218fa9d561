"""Labels that `import-labels` added: its lists, and how their labels join the data set's own labels."""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from unicodedata import normalize

from dicap.data.sources.base import Item, RawSet
from dicap.errors import DataError
from dicap.files.checksum import sha256
from dicap.photos.readers import table
from dicap.photos.readers.heads import plain
from dicap.photos.readers.names import ask_of_names
from dicap.photos.readers.question import Question
from dicap.photos.readers.sheet import read_sheet
from dicap.settings import Own

COLUMNS = ("image", "labels", "absent", "was", "photo", "model_says", "surprise", "look_at")  # the last three are not read
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


def with_added(raw: RawSet, path: Path, options: Own) -> RawSet:
    """Add the labels in a file that `import-labels` wrote. An unlabelled image becomes a training image.

    The newer labels count: imported labels, unless the data set's own labels of the image were corrected after the import.
    Labels of a removed image, or of an image whose file is another photograph now, are left out with a note.

    Args:
        options: settings. Its `new_classes` are unknown in images that do not name them, as are classes that only the file names;
            but a column of 0 and 1 (`classes`) says 0 of its class, too.

    Raises DataError if the file is missing or not readable.
    """
    files = dict(zip((item.id for item in raw.items), getattr(raw.images, "paths", ()), strict=True))
    ids = by_spelling(files)
    added = {_image(name, ids) or name: given for name, given in added_before(path).items()}
    names = sorted({*raw.classes, *(name for given in added.values() for name in given.labels)})
    number = {name: i for i, name in enumerate(names)}
    own_classes = {*raw.classes} - ({*(options.new_classes or ())} - {*(options.classes or ())})
    fresh = {*names} - own_classes
    items, exchanged, newer, differ = [], [], [], []
    for item in raw.items:
        stated, later = given_of(item, raw.classes), added.get(item.id)
        own = stated.among(own_classes) if stated and fresh else stated
        if later is not None and later.is_of_another(photo_mark(files[item.id])):
            exchanged.append(item.id)
            later = None
        given = own
        if later is not None and own is not None and later.is_older(stated):
            newer.append(item.id)
            given = own.after(later)
        elif later is not None:
            given = later.after(own)
            differ += [item.id] * (own is not None and own_classes & ({*own.labels} ^ {*given.labels}) != set())
        if given is not None:
            labels = tuple(sorted(number[name] for name in given.labels))
            absent = None if given.absent is None else tuple(sorted(number[name] for name in given.absent if name in number))
            if labels or absent != ():  # else nothing is known of the image
                item = replace(item, labels=labels, absent=absent)
            if later is not None and item.labels is not None and item.split != "test":
                item = replace(item, split="train", added=item.split)
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
        notes.append(f"classes that came with {path.name}: {', '.join(sorted(fresh))}; unknown in images that do not name them")
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
    if unknown := [name for name in heads if name not in COLUMNS]:
        raise DataError(f"{path}: import-labels does not know column {unknown[0]}, which may change the labels; take it out")
    known, between = {*known}, ";" if separator == "auto" else separator
    absent = heads.get("absent") if any(sheet.texts(heads.get("absent"))) else None
    own = Own(image=heads["image"], labels=heads["labels"], absent=absent, separator=between, names=[*known])
    try:
        rows = table.rows_of(sheet, own, path.parent)
        if separator == "auto":
            ask_of_names(rows, known, separator)
    except DataError as error:  # options of `init-data` are none of `import-labels`
        text = error.text if isinstance(error, Question) else str(error)
        raise DataError(re.sub("; (--empty-absent absent|or name it with --names)", "", text)) from None
    given: dict[str, Given] = {}
    ids = None if images is None else by_spelling(images)
    for row, was, photo in zip(rows, *(sheet.raw(heads.get(head)) for head in ("was", "photo")), strict=True):
        if row.labels is None:
            continue
        image = row.image if ids is None else _image(row.image, ids)
        if image is None:
            if LISTED.fullmatch(path.name):  # such a list keeps the labels of removed images
                continue
            raise DataError(f"{row.where}: image {row.image!r} is not in the data set; write its id as `suggest` does")
        absent_names = None if row.absent is None else sorted(row.absent)
        labels = Given(sorted(row.labels), absent_names, was if "was" in heads and was != "?" else None, photo)
        if given.setdefault(image, labels) != labels:
            raise DataError(f"{row.where}: image {image!r} has other labels than on an earlier line; keep one of them")
    return given


def by_spelling(ids: Iterable[str]) -> dict[str, str]:
    """{spelling: image}: each image by its id and by its id in NFC, since a program may write an accent as a letter."""
    ids = [*ids]
    return {normalize("NFC", image): image for image in ids} | {image: image for image in ids}


def _image(name: str, ids: dict[str, str]) -> str | None:
    """The image that a name means, given `by_spelling`; the names of some images begin with a blank."""
    return next((ids[one] for one in (name, name.strip(), normalize("NFC", name.strip())) if one in ids), None)
