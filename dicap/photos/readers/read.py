"""Data set `table`: anybody's own images, in whichever format they come, with the options of the settings' section `own`."""

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
from dicap.photos.readers.heads import plain
from dicap.photos.readers.listing import is_ignored, to_raw
from dicap.photos.readers.names import ask_of_names, with_words
from dicap.photos.readers.question import Question, joined, typed
from dicap.photos.readers.sheet import OTHERS, read_names, read_sheet, read_sheets
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
IMPORTED = ("image", "labels", "absent", "was", "photo", "model_says", "surprise", "look_at")  # some for the eye alone
TEST_SHARE = 0.2  # of the labelled images, where no test split is said
LISTS = Path("labels")  # of a project: where `import-labels` writes
LISTED = re.compile(r"added-([0-9a-f]{12})\.csv")  # what it writes


@dataclass(frozen=True)
class Given:
    """Labels given later to an image: the names of its labels, and of the classes known not to be there (None: all others).

    Beside them the marks of what the data set itself said of the image then (`was`) and of its file; None: not known.
    """

    labels: list[str]
    absent: list[str] | None = None
    was: str | None = field(default=None, compare=False)
    photo: str | None = field(default=None, compare=False)

    def among(self, classes: Iterable[str]) -> "Given":
        """The same where these were all the classes there were: of others nothing is known."""
        return self if self.absent is not None else replace(self, absent=sorted({*classes} - {*self.labels}))

    def whole(self, classes: Iterable[str]) -> "Given":
        """The same; where it speaks of each of these classes, as one of whose classes nothing is unknown."""
        return replace(self, absent=None) if {*classes} <= {*self.labels, *(self.absent or ())} else self

    def after(self, before: "Given | None") -> "Given":
        """What is known with what was known before: the later word counts, of the classes it does not name the earlier one."""
        if before is None or self.absent is None:
            return self
        labels = sorted({*before.labels, *self.labels} - {*self.absent})
        absent = None if before.absent is None else sorted({*before.absent, *self.absent} - {*self.labels})
        return replace(self, labels=labels, absent=absent)

    def standing(self, own: "Given | None", photo: str) -> "Given | None":
        """What this import still says beside the `own` words of now, newer where they were changed, and of this photograph."""
        if self.is_of_another(photo):
            return None
        return own.after(self) if own is not None and self.is_older(own) else self

    def is_of_another(self, photo: str) -> bool:
        """Whether it was said of another photograph than the one with this mark; not where a mark is lacking."""
        return bool(self.photo) and photo not in (self.photo, "")

    def is_older(self, own: "Given | None") -> bool:
        """Whether the data set changed its `own` words since."""
        return own is not None and self.was not in (None, own.mark())

    def mark(self) -> str:
        """What tells it from other words about the same image."""
        absent = None if self.absent is None else sorted(self.absent)
        return hashlib.sha256(json.dumps([sorted(self.labels), absent]).encode()).hexdigest()[:12]


def look(place: Path, said: Own) -> tuple[Path, Own, RawSet]:
    """The folder of a data set, the reading of its labels, which `init-data` writes down, and what is read so.

    A question is answered by the reading that would be chosen, and what comes of it is looked at in turn: so all is asked at
    once, and the options that are named at the end are an answer to all of it.

    Args:
        place: the folder, or the file of labels in it.
        said: what the user says of it; `own.names` are names that are certain, and others may be new.

    Raises:
        DataError: nothing readable is there, or what would be chosen is not readable.
        Question: something can be read in more than one way.
    """
    own, texts, answers = said, [], {}
    while True:
        try:
            root, reading = understand(place, own)
            widened = own.unlabeled_root is None and reading.format != "folders"  # by photographs that no row names, now or later
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
            if answers == before:  # it has been answered, and is asked again
                raise DataError("; ".join(texts)) from None
            own = own.model_copy(update=joined({key: getattr(own, key) for key in answers}, answers))
        except DataError as error:
            if not texts:
                raise
            raise DataError("; ".join([*texts, f"and as it would be read, {error}"])) from None
        else:
            if texts:
                usual = {"added", *["test_share"] * (said.test_share == TEST_SHARE)}
                raise Question("; ".join(texts), said.model_dump(exclude_defaults=True, exclude=usual), **answers)
            return root, reading, raw


def read(root: Path, own: Own, looking: bool = False) -> RawSet:
    """Read `data_root` as the settings say, then apply the options.

    In this order: unlabelled images of a second folder (`own.unlabeled_root`), groups of images that belong on one side of every
    split, a test split drawn from the labelled images (`own.test_share`) where there is none, and labels added later
    (`own.added`), which so change no image of the test split.

    Args:
        looking: whether classes may be others than `own.names`.

    Raises:
        DataError: nothing readable is there, or a test split is missing and none is asked for.
        Question: what is there may be made of photographs.
    """
    root, own = opened(root, own)
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
    less = f", or leave the splits out: init-data --ignore {typed(own.split)}" if own.split else ""
    ways = {
        "train": f"label some images of it{less}",
        "test": "set own.test_share, for example to 0.2, to draw one from the labelled images",
    }
    splits = {item.split for item in raw.items}
    if lacking := [split for split in ways if split not in splits]:
        raise DataError(f"{root}: no image of split {lacking[0]}; {ways[lacking[0]]}")
    return raw


def as_listed(root: Path, own: Own, looking: bool) -> RawSet:
    """The images that the labels name, without what `read` adds to them. Arguments and errors as there."""
    kind, heads = own.format or "table", {}
    files = own.files or ([table.DOCUMENTED[0]] if kind == "table" else [])
    for name in files:
        if not (root / name).is_file():
            raise DataError(f"{root / name}: no such file of labels; look at what is there: dicap-stage init-data {root}")
    if own.format is None:  # nobody ran `init-data`
        heads = {head: head for head in read_sheets([root / name for name in files]).header if head in table.DOCUMENTED[1]}
    own = own.model_copy(update={"format": kind, "files": files or None} | heads)
    listing = with_words(READERS[kind](root, own), own, looking)
    return to_raw(root, replace(listing, source=listing.source | {"format": kind}), own, looking)


def with_added(raw: RawSet, path: Path, base: Path, new_classes: Iterable[str] = ()) -> RawSet:
    """Labels given later, in the file that `import-labels` writes. An unlabelled image becomes a training image.

    The newer word counts: where the data set itself says of an image what it said when its labels were imported, they count, else
    it was corrected since. An image of the file that was removed is left out, with a note, and so is one that is another
    photograph by now: its labels are not given to one of a similar name, but to one that is the same file, by whichever of
    several links it goes now.

    Args:
        base: the folder that ids are paths below.
        new_classes: classes of which nothing is known in images that do not name them; so are those that no image of the data set
            itself has.

    Raises:
        DataError: the file is missing, or not readable.
    """
    ids = by_spelling(item.id for item in raw.items)
    added = {ids.get(image, ids.get(normalize("NFC", image), image)): given for image, given in added_before(path).items()}
    files = dict(zip((item.id for item in raw.items), getattr(raw.images, "paths", ()), strict=True))
    if others := sorted(added.keys() - files.keys()):
        links = {same_file(file): image for image, file in files.items()}
        added = {links.get(same_file(base / image), image): added[image] for image in others} | {
            image: given for image, given in added.items() if image in files
        }
    names = sorted({*raw.classes, *(name for given in added.values() for name in given.labels)})
    number = {name: i for i, name in enumerate(names)}
    fresh = ({*names} - {*raw.classes}) | ({*new_classes} & {*names})
    before = {*raw.classes} - fresh
    items, unknown, newer, exchanged, differ = [], 0, [], [], []
    for item in raw.items:
        own = given_of(item, raw.classes)
        given, was, later = own.among(before) if own and fresh else own, None, added.get(item.id)
        if later is not None and later.is_of_another(photo_mark(files[item.id])):
            exchanged.append(item.id)
        elif later is not None:
            was = item.split if item.split != "test" else None
            corrected = later.is_older(own)
            newer += [item.id] * corrected
            given = given.after(later) if corrected and given else later.after(given)
            differ += [item.id] * (own is not None and not corrected and before & ({*own.labels} ^ {*given.labels}) != set())
        if given is not None:
            labels = tuple(sorted(number[name] for name in given.labels))
            absent = None if given.absent is None else tuple(sorted(number[name] for name in given.absent if name in number))
            unknown += bool(fresh) and given.absent is not None and not fresh <= {*given.labels, *given.absent}
            if labels or absent != ():  # else nothing is known of it
                item = Item(item.id, item.path, "train" if was else item.split, labels, was, absent, item.group)
        items.append(item)
    gone = sorted(added.keys() - files.keys())
    notes = [*raw.notes, f"{len(added) - len(gone) - len(exchanged)} images have labels from {path.name}"]
    texts = {
        "labels of images that are not in the data set any more": gone,
        "labels of images by whose names there are other photographs now, left out": exchanged,
        "images whose own labels were changed after the import, and count": newer,
        "images of which the data set itself says otherwise, and does not count": differ,
    }
    notes += [f"{path.name}: {text}: {len(ids)} (the first: {ids[0]})" for text, ids in texts.items() if ids]
    if fresh:
        notes.append(f"classes that came with {path.name}: {', '.join(sorted(fresh))}; unknown in {unknown} labelled images")
    return replace(raw, classes=names, items=items, notes=notes)


def photo_mark(file: Path) -> str:
    """What tells a photograph from another one of its name; empty where it is not there."""
    return sha256(file)[:16] if file.is_file() else ""


def forgotten(added: str | None, raw: RawSet) -> list[str]:
    """Notes on lists of labels of images of the set that the one in force does not hold, as where params.yaml was taken back.

    Not on one whose images are among those of a longer list: that was written later, with all that was known before.
    """
    kept = {*added_before(added)}
    files = dict(zip((item.id for item in raw.items), getattr(raw.images, "paths", ()), strict=True))
    lists = {path: added_before(path) for path in sorted((Path(added).parent if added else LISTS).glob("added-*.csv"))}
    notes = []
    for path, labels in lists.items():
        lost = [
            image
            for image in sorted(labels.keys() & files.keys() - kept)
            if not labels[image].is_of_another(photo_mark(files[image]))
        ]
        if lost and not any(labels.keys() < others.keys() for others in lists.values()):
            text = f"{path} holds labels of {len(lost)} images that own.added ({added or 'empty'}) does not"
            notes.append(f"{text} (the first: {lost[0]}); dicap-stage import-labels {path} brings them back")
    return notes


def given_of(item: Item, classes: list[str]) -> Given | None:
    """What is known of an image, by name; None where it is not labelled."""
    if item.labels is None:
        return None
    return Given([classes[c] for c in item.labels], None if item.absent is None else [classes[c] for c in item.absent])


def added_before(path: Path | str | None) -> dict[str, Given]:
    """What `import-labels` wrote, in whose file names are separated by `;` alone; {} where there is none.

    Raises:
        DataError: the file is missing, or its content is not that which it is named by.
    """
    if path is None:
        return {}
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path}: no such file; bring it back (git checkout {path}), or set own.added to null")
    named = LISTED.fullmatch(path.name)
    if named is not None and named[1] != content_mark(path.read_bytes()):
        way = f"bring it back (git checkout {path}), or rename it and set own.added to that"
        raise DataError(f"{path}: not as import-labels wrote it; {way}")
    return read_added(path, separator=";")


def content_mark(content: bytes) -> str:
    """What a list of imported labels is named by, whichever ends of lines Git gave it."""
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()[:12]


def read_added(
    path: Path,
    known: Iterable[str] = (),
    images: Iterable[str] | None = None,
    separator: str = "auto",
) -> dict[str, Given]:
    """{image: what is known of it} of a table with columns image and labels; rows that are empty are left out, `-` means none.

    With a column `absent` beside the labels nothing is known of the classes that are in neither of the two; there `*` means all
    but the labels, and `-` none.

    Args:
        known: names of classes, which settle what a comma between two of them means.
        images: ids of the data set. Folders are part of a name: where `a/1.jpg` was removed its labels are not those of `1.jpg`.
        separator: what separates names; `auto`: `;`, and a question where a comma might.

    Raises:
        DataError: the file is missing, lacks a column or has another, gives an image two answers, names one that is not among
            `images`, says of a class that it is there and not, or leaves open what an empty cell of `absent` means.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; `dicap-stage import-labels` writes it")
    sheet = read_sheet(path)
    sheet.cells.columns = [plain(head) for head in sheet.header]  # a spreadsheet may have given capitals
    if "unsure" in sheet.header:  # as `predict --per-image` writes it, and nothing else
        raise DataError(f"{path}: answers of a model, which are no labels; correct them, then take out the column unsure")
    if lost := [name for name in ("image", "labels") if name not in sheet.header]:
        raise sheet.lacks(lost[0], "expected image, labels")
    if strange := [name for name in sheet.header if name not in IMPORTED]:
        raise DataError(f"{path}: column {strange[0]} is none that import-labels reads, and may change the labels; take it out")
    given: dict[str, Given] = {}
    ids = None if images is None else by_spelling(images)
    between = ";" if separator == "auto" else separator
    present = read_names(sheet, "labels", between)
    absent = table.read_absent(sheet, "absent" if "absent" in sheet.header else None, present, between)
    if separator == "auto":
        certain = {*known, OTHERS}
        rows = zip(present, absent, sheet.places, strict=True)
        places = {name: where for here, gone, where in rows for name in (*(here or ()), *(gone or ()))}
        separated = sheet.separated({"labels", "absent"} & {*sheet.header})
        try:
            ask_of_names(places | dict.fromkeys(certain, ""), certain, True, separated)
        except Question as question:  # whose options are those of another command
            raise DataError(question.text) from None
    marks = [sheet.raw(head) if head in sheet.header else [None] * len(present) for head in ("was", "photo")]
    in_part = any(gone is not None for gone in absent)
    for row, (name, names, gone, was, photo) in enumerate(zip(sheet.raw("image"), present, absent, *marks, strict=True)):
        if names is None and not gone:
            continue
        if in_part and names and gone is None:
            raise sheet.error(row, "absent: empty beside labels; write `*` if all others are absent, `-` if none is known to be")
        whole = names == [] or gone == [OTHERS]
        of_image = Given(names or [], None if whole else gone, None if was == "?" else was, photo)
        if ids is not None:
            forms = name, name.strip(), normalize("NFC", name.strip())  # a name may begin with a blank
            if (image := next((ids[form] for form in forms if form in ids), None)) is None:
                if LISTED.fullmatch(path.name):  # all that was ever given
                    continue
                raise sheet.error(row, f"image {name!r} is not in the data set; write its id as `suggest` does")
            name = image
        if given.get(name, of_image) != of_image:
            raise sheet.error(row, f"image {name!r} has other labels than on an earlier line; keep one of them")
        given[name] = of_image
    return given


def by_spelling(ids: Iterable[str]) -> dict[str, str]:
    """{spelling: image}, of each by its id and by the composed one: a program may write an accent as a letter of its own."""
    ids = [*ids]
    return {normalize("NFC", image): image for image in ids} | {image: image for image in ids}


def with_unlabelled(raw: RawSet, folder: Path, base: Path, ignore: Iterable[str] | None = None) -> RawSet:
    """Images of a second folder without labels; those already in the set, under any name, are passed over.

    Their ids are their paths below `base`, the folder of the data set; of a folder elsewhere they begin with its name. So an
    image keeps its id, and with it the labels given later, whatever other images there are.

    Raises:
        DataError: there is no such folder, or one of its images would have the id of another image.
    """
    assert isinstance(raw.images, FileImages)
    known = {same_file(file) for file in raw.images.paths}
    images = list_images(folder, required=folder.resolve() != base.resolve())
    fresh = {same_file(folder / path): path for path in reversed(images) if not is_ignored(path, ignore)}
    others = sorted(path for file, path in fresh.items() if file not in known)
    place = Path(os.path.relpath(folder.resolve(), base.resolve()))
    prefix = Path(folder.resolve().name) if ".." in place.parts else place
    more = [Item(readable((prefix / path).as_posix()), readable(path), "unlabeled", None) for path in others]
    if twice := sorted({item.id for item in raw.items} & {item.id for item in more}):
        raise DataError(f"{folder}: {twice[0]!r} is the name of an image of the data set too; rename the folder")
    notes = [*raw.notes, *([f"{len(more)} unlabelled images: photographs in {folder} that no row names"] if more else [])]
    files = [*raw.images.paths, *(folder / path for path in others)]
    return replace(raw, items=[*raw.items, *more], images=FileImages(Path(), files, raw.images.below, upright=True), notes=notes)


def with_test(raw: RawSet, share: float) -> RawSet:
    """A test split of the labelled training images, stratified so that rare classes are in both parts; a group stays together."""
    groups: dict[str, list[int]] = {}
    for i, item in enumerate(raw.items):
        if item.split == "train":
            groups.setdefault(item.group or item.id, []).append(i)
    names = list(groups)
    labels = np.zeros((len(names), len(raw.classes)), bool)
    for place, rows in enumerate(groups.values()):
        labels[place, [c for row in rows for c in raw.items[row].labels or ()]] = True
    if len(names) == 1:
        what = f"all labelled images ({len(groups[names[0]])}) are one photograph, its copies or its group"
        raise DataError(f"{raw.dataset}: {what}; a test split needs another; where folders are the labels: --format folders")
    order = order_by_name(names, 0, "test")
    chosen = {row for place in np.flatnonzero(stratified(labels[order], share)) for row in groups[names[order[place]]]}
    items = [replace(item, split="test") if i in chosen else item for i, item in enumerate(raw.items)]
    total = sum(map(len, groups.values()))
    note = f"{len(chosen)} of {total} labelled images were drawn as the test split (own.test_share)"
    return replace(raw, items=items, notes=[*raw.notes, note], source=raw.source | {"test_drawn": len(chosen)})


def stratified(labels: np.ndarray, share: float) -> np.ndarray:
    """Which rows are drawn as the test part, (N,) bool: the first of them, but that no class is left out on a side.

    From the rarest class to the commonest, each has at least half its share in either part, and one image of two: its first rows
    in the one, its last in the other. Hence in a drawn order that does not depend on the other rows
    (`dicap.randomness.order_by_name`) a list that grows moves hardly a row, as an exactly balanced draw would.

    Args:
        labels: (N, C) bool; share: of the rows, in (0, 1).
    """
    n, counts = len(labels), labels.sum(0)
    part = np.full(n, -1)
    for c in np.argsort(counts, kind="stable")[np.count_nonzero(counts < 2) :]:  # a single image is in one part
        rows = np.flatnonzero(labels[:, c])
        for side, its_share in ((1, share), (0, 1 - share)):
            lacking = max(int(its_share * len(rows) / 2), 1) - np.count_nonzero(part[rows] == side)
            free = rows[part[rows] < 0][:: 1 if side else -1]
            part[free[: max(lacking, 0)]] = side
    wanted = min(max(round(share * n), 1), n - 1) - np.count_nonzero(part == 1)
    part[np.flatnonzero(part < 0)[: max(wanted, 0)]] = 1
    return part == 1
