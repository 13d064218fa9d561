"""Data set `table`: anybody's own images, in whichever format they come, with the options of the settings' section `own`."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unicodedata import normalize

import numpy as np

from dicap.data.sources.base import FileImages, Item, RawSet
from dicap.data.sources.files import base_of, files_ending, linked_folder, list_images, readable, same_file
from dicap.errors import DataError
from dicap.photos.readers import coco_file, folders, label_studio, table, xml_files
from dicap.photos.readers.listing import Listing, read_json, to_raw, with_splits_of_folders
from dicap.photos.readers.sheet import ABSENT, IMAGE, LABEL, OTHERS, Labels, read_sheet
from dicap.randomness import order_by_name
from dicap.settings import Own
from dicap.settings.catalogue import FORMATS

# The readers that look for files of their own, in this order; `table` and `folders`, which have options, look besides.
READERS = {"coco": coco_file, "labelstudio": label_studio, "voc_xml": xml_files, "cvat": xml_files}
OPTIONS = {"table": ("separator", "empty", "empty_absent"), "folders": ("label_folder",)}  # of own, that one format alone reads


@dataclass(frozen=True)
class Given:
    """Labels given later to an image: the names of its labels, and of the classes known not to be there (None: all others)."""

    labels: list[str]
    absent: list[str] | None = None

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
        return Given(labels, None if before.absent is None else sorted({*before.absent, *self.absent} - {*self.labels}))


def read(root: Path, own: Own) -> RawSet:
    """Read `data_root` in the format that `own.format` names (auto: the one it looks like), then apply the options.

    In this order: unlabelled images of a second folder (`own.unlabeled_root`), a test split drawn from the labelled images
    (`own.test_share`) where there is none, and labels added later (`own.added`), which so change no image of the test split.

    Raises:
        DataError: nothing readable is there, or a test split is missing and none is asked for.
    """
    kind = detect(root) if own.format == "auto" else own.format
    listing = read_listing(root, kind, own)
    if kind != "folders":
        listing = with_splits_of_folders(listing)
    raw, files = one_each(to_raw(listing), [entry.file for entry in listing.entries])
    base = base_of(root) if kind == "coco" else root if root.is_dir() else root.parent
    leaves = {folder: linked_folder(folder / "_", base) for folder in {file.parent for file in files} if kind != "folders"}
    below = [leaves[file.parent] for file in files if leaves]
    if own.unlabeled_root:
        raw, files = with_unlabelled(raw, files, Path(own.unlabeled_root), base)
    for name in sorted({name for names in OPTIONS.values() for name in names} - {*OPTIONS.get(kind, ())}):
        if getattr(own, name) != "auto":
            note = f"nothing reads own.{name} {getattr(own, name)!r}: the labels are of the format {kind}"
            raw = replace(raw, notes=[*raw.notes, note])
    if own.test_share and not any(item.split == "test" for item in raw.items):
        raw = with_test(raw, own.test_share)
    raw = replace(raw, images=FileImages(Path(), files, below, upright=True), source=raw.source | {"format": kind})
    if own.added:
        raw = with_added(raw, Path(own.added), base)
    for split in ("train", "test"):
        if not any(item.split == split for item in raw.items):
            way = "set own.test_share, for example to 0.2, to draw one from the labelled images" if split == "test" else ""
            raise DataError(f"{listing.where}: no image of split {split}; {way or 'label some images'}")
    return raw


def detect(root: Path) -> str:
    """The format a folder or file looks like. Raises DataError where it looks like none."""
    if not root.exists():
        raise DataError(f"{root}: no such folder or file; set data_root to the folder that holds your images and labels")
    if root.suffix.lower() in (*FORMATS["table"], ".xlsx", ".xls", ".ods") or (
        root.is_dir() and any((root / name).is_file() for name in table.NAMES)
    ):
        return "table"
    for kind, reader in READERS.items():
        if reader.find(root):
            return kind
    if root.is_dir() and table.candidates(root):
        return "table"
    for path in [root] if root.is_file() else files_ending(root, FORMATS["coco"], ("*", "annotations/*")):
        if path.suffix.lower() in FORMATS["coco"]:
            read_json(path)  # it may hold the labels; where it cannot be read, folders would be taken for labels
    if root.is_dir() and any(path.is_dir() and not path.name.startswith(".") for path in root.iterdir()):
        return "folders"
    if root.is_dir() and list_images(root, required=False):
        raise DataError(f"{root}: holds photographs and no labels yet; choose the first to label: dicap-stage suggest {root}")
    raise DataError(
        f"{root}: holds no labels that are known here: a labels.csv, a COCO or Label Studio JSON, Pascal VOC or CVAT XML, or a "
        "folder for each label"
    )


def read_listing(root: Path, kind: str, own: Own) -> Listing:
    """The annotations of a format. Raises DataError."""
    if kind == "table":
        return table.read(root, separator=own.separator, empty=own.empty, empty_absent=own.empty_absent)
    if kind == "folders":
        return folders.read(root, own.label_folder, Path(own.unlabeled_root) if own.unlabeled_root else None)
    found = READERS[kind].find(root)
    if not found:
        raise DataError(f"{root}: own.format is {kind}, but no such file is there; set it to auto")
    return READERS[kind].read(root, found)


def one_each(raw: RawSet, files: list[Path]) -> tuple[RawSet, list[Path]]:
    """One item a file: links to it and lines that repeat it are taken out, those without labels first.

    Raises:
        DataError: two names of one file have different labels, or are of different splits.
    """
    place: dict[object, int] = {}
    repeated = []
    for i, (item, file) in enumerate(zip(raw.items, files, strict=True)):
        first = place.setdefault(same_file(file), i)
        if first == i:
            continue
        other = raw.items[first]
        if None not in (item.labels, other.labels) and replace(item, id=other.id, path=other.path) != other:
            raise DataError(
                f"{raw.dataset}: image {item.id!r} is the same file as {other.id!r}, with other labels or in another split; "
                "keep one of them"
            )
        if other.labels is None and item.labels is not None:
            place[same_file(file)], i = i, first
        repeated.append(i)
    if not repeated:
        return raw, files
    kept = sorted({*range(len(files))} - {*repeated})
    note = f"images that are the same file as another, counted once: {len(repeated)} (the first: {raw.items[repeated[0]].id})"
    return replace(raw, items=[raw.items[i] for i in kept], notes=[*raw.notes, note]), [files[i] for i in kept]


def with_added(raw: RawSet, path: Path, base: Path) -> RawSet:
    """Labels given later, in the file that `import-labels` writes. An unlabelled image becomes a training image.

    Of a class that no image of the data set itself has, nothing is known in the images that are not in the file. An image of the
    file that was removed is left out, with a note: its labels are not given to one of a similar name, but to one that is the same
    file, by whichever of several links it goes now.

    Args:
        base: the folder that ids are paths below.

    Raises:
        DataError: the file is missing, or not readable.
    """
    forms = {normalize("NFC", item.id): item.id for item in raw.items} | {item.id: item.id for item in raw.items}
    added = {forms.get(image, forms.get(normalize("NFC", image), image)): given for image, given in added_before(path).items()}
    if others := added.keys() - {*forms.values()}:
        assert isinstance(raw.images, FileImages)
        names_of = {same_file(file): item.id for file, item in zip(raw.images.paths, raw.items, strict=True)}
        links = {image: names_of[file] for image in sorted(others) if (file := same_file(base / image)) in names_of}
        added = {known: added[image] for image, known in links.items()} | {i: g for i, g in added.items() if i not in links}
    names = sorted({*raw.classes, *(name for given in added.values() for name in given.labels)})
    number = {name: i for i, name in enumerate(names)}
    fresh = {*names} - {*raw.classes}
    items, unknown = [], 0
    for item in raw.items:
        given, was = given_of(item.labels, item.absent, raw.classes), item.added
        if given is not None and fresh:
            given = given.among(raw.classes)
        if item.id in added:
            given = added[item.id].after(given)
            was = item.split if item.split != "test" else None
        if given is not None:
            labels = tuple(sorted(number[name] for name in given.labels))
            absent = None if given.absent is None else tuple(sorted(number[name] for name in given.absent if name in number))
            unknown += bool(fresh) and given.absent is not None and not fresh <= {*given.labels, *given.absent}
            if labels or absent != ():  # else nothing is known of it
                item = Item(item.id, item.path, "train" if was else item.split, labels, was, absent)
        items.append(item)
    gone = sorted(added.keys() - {item.id for item in items})
    notes = [*raw.notes, f"{len(added) - len(gone)} images have labels from {path.name}"]
    if gone:
        notes.append(f"{path.name}: labels of images that are not in the data set any more: {len(gone)} (the first: {gone[0]})")
    if fresh:
        notes.append(f"classes that came with {path.name}: {', '.join(sorted(fresh))}; unknown in {unknown} labelled images")
    return replace(raw, classes=names, items=items, notes=notes)


def given_of(labels: Sequence[int] | None, absent: Sequence[int] | None, classes: list[str]) -> Given | None:
    """What is known of an image, by name; None where it is not labelled."""
    if labels is None:
        return None
    return Given([classes[c] for c in labels], None if absent is None else [classes[c] for c in absent])


def added_before(path: Path | str | None) -> dict[str, Given]:
    """What `import-labels` wrote, in whose file names are separated by `;` alone; {} where there is none. Raises DataError."""
    return {} if path is None else read_added(Path(path), known=None, separator=";")


def read_added(
    path: Path,
    known: Iterable[str] | None = (),
    images: Iterable[str] | None = None,
    separator: str = "auto",
) -> dict[str, Given]:
    """{image: what is known of it} of a table with columns image and labels; rows that are empty are left out, `-` means none.

    With a column `absent` beside the labels nothing is known of the classes that are in neither of the two; there `*` means all
    but the labels, and `-` none.

    Args:
        known: names of classes, which settle what a comma between two of them means; None: every text is a name.
        images: ids of the data set. Folders are part of a name: where `a/1.jpg` was removed its labels are not those of `1.jpg`.
        separator: what separates names; `auto`: `;`, and a question where a comma might.

    Raises:
        DataError: the file is missing, lacks a column, gives an image two answers, names one that is not in `images`, says of a
            class that it is there and not, or leaves open what an empty cell of `absent` means.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; `dicap-stage import-labels` writes it")
    sheet = read_sheet(path)
    image, labels = sheet.column(IMAGE), sheet.column(LABEL)
    for name, column in (("image", image), ("labels", labels)):
        if column is None:
            raise DataError(f"{path}: column {name} is missing (found {', '.join(sheet.header)}); expected image, labels")
    assert image is not None and labels is not None
    found: dict[str, Given] = {}
    ids = {*(images or ())}
    composed = {normalize("NFC", image): image for image in ids}  # a program may have written an accent as a letter of its own
    present = Labels(sheet, labels, separator, known).read()
    absent: list[list[str] | None] = [None] * len(present)
    if (column := sheet.column(ABSENT)) is not None:
        absent = table.read_absent(sheet, column, present, separator, known)
    in_part = any(gone is not None for gone in absent)
    for row, (name, names, gone) in enumerate(zip(sheet.texts(image), present, absent, strict=True)):
        if names is None and not gone:
            continue
        if known is None or sheet.rows[row][image] in ids:  # a name may begin with a blank
            name = str(sheet.rows[row][image])
        if in_part and names and gone is None:
            raise sheet.error(
                row, "absent: empty beside labels; write `*` if all other classes are absent, `-` if that is known of none"
            )
        given = Given(names or [], None if names == [] or gone == [OTHERS] else gone)
        if images is not None and name not in ids:
            if (form := normalize("NFC", name)) not in composed:
                raise sheet.error(row, f"image {name!r} is not in the data set; write its id as `suggest` does")
            name = composed[form]
        if found.get(name, given) != given:
            raise sheet.error(row, f"image {name!r} has other labels than on an earlier line; keep one of them")
        found[name] = given
    return found


def with_unlabelled(raw: RawSet, files: list[Path], folder: Path, base: Path) -> tuple[RawSet, list[Path]]:
    """Images of a second folder without labels; those already in the set, under any name, are passed over.

    Their ids are their paths below `base`, the folder of the data set; of a folder elsewhere they begin with its name. So an
    image keeps its id, and with it the labels given later, whatever other images there are.

    Raises:
        DataError: there is no such folder, or one of its images would have the id of another image.
    """
    known = {same_file(file) for file in files}
    fresh = {same_file(folder / path): path for path in reversed(list_images(folder))}  # of several links the first
    found = sorted(path for file, path in fresh.items() if file not in known)
    place = Path(os.path.relpath(folder.resolve(), base.resolve()))
    prefix = Path(folder.resolve().name) if ".." in place.parts else place
    more = [Item(readable((prefix / path).as_posix()), readable(path), "unlabeled", None) for path in found]
    if twice := sorted({item.id for item in raw.items} & {item.id for item in more}):
        raise DataError(f"{folder}: {twice[0]!r} is the name of an image of the data set too; rename the folder")
    note = f"{len(more)} unlabelled images from own.unlabeled_root"
    return replace(raw, items=[*raw.items, *more], notes=[*raw.notes, note]), [*files, *(folder / path for path in found)]


def with_test(raw: RawSet, share: float) -> RawSet:
    """A test split of the labelled training images, stratified so that rare classes are in both parts."""
    rows = [i for i, item in enumerate(raw.items) if item.split == "train"]
    labels = np.zeros((len(rows), len(raw.classes)), bool)
    for place, row in enumerate(rows):
        labels[place, list(raw.items[row].labels or ())] = True
    order = order_by_name((raw.items[row].id for row in rows), 0, "test")
    chosen = {rows[order[place]] for place in np.flatnonzero(stratified(labels[order], share))}
    items = [replace(item, split="test") if i in chosen else item for i, item in enumerate(raw.items)]
    notes = [*raw.notes, f"{len(chosen)} of {len(rows)} labelled images were drawn as the test split (own.test_share)"]
    return replace(raw, items=items, notes=notes, source=raw.source | {"test_drawn": len(chosen)})


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
