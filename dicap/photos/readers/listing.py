"""What the readers of annotation formats have in common: a list of images with the names of their labels."""

import errno
import json
import os
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from dicap.data.sources.base import FileImages, Item, RawSet
from dicap.data.sources.files import list_images, readable
from dicap.errors import DataError
from dicap.settings.catalogue import OWN

SPLIT_WORDS = {
    "train": ("train", "training", "trainval"),
    "test": ("test", "testing"),
    "val": ("val", "valid", "validation", "dev"),
    "unlabeled": ("unlabeled", "unlabelled"),
}
SPLIT_NAMES = {word: split for split, words in SPLIT_WORDS.items() for word in words}


@dataclass(frozen=True)
class Entry:
    """One image: its file, its name (unique), the names of its labels (None = truly unlabelled), and the split if one is said.

    `split` is train, val, test or unlabeled; None where the format knows none. `absent`: the names that are known not to be
    there, where nothing is known of the others; None: all but the labels. `group`: what it has in common with others that belong
    on the same side of every split.
    """

    file: Path
    id: str
    labels: frozenset[str] | None
    split: str | None = None
    absent: frozenset[str] | None = None
    group: str | None = None


@dataclass
class Listing:
    """A folder's annotations, read.

    Attributes:
        where: the folder or file, for messages.
        entries: the images.
        source: facts about where they came from.
        notes: lines a user should know.
    """

    where: Path
    entries: list[Entry]
    source: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def to_raw(listing: Listing) -> RawSet:
    """The listing as a raw set: classes sorted by name, val counted as test where there is no test, else as train.

    A name that is said to be absent and is nowhere a label is no class.

    Raises:
        DataError: no image has a label, or a label's name cannot be written in a table.
    """
    where, entries, notes = listing.where, [_composed(entry) for entry in listing.entries], list(listing.notes)
    val = "train" if any(entry.split == "test" for entry in entries) else "test"
    if count := sum(entry.split == "val" for entry in entries):
        notes.append(f"{count} images of split val count as {val}")
    if count := sum(entry.split == "unlabeled" and bool(entry.labels) for entry in entries):
        notes.append(f"{count} images of split unlabeled have labels, which were ignored")
    classes = sorted({name for entry in entries if entry.split != "unlabeled" for name in entry.labels or ()})
    if not classes:
        raise DataError(f"{where}: none of {len(entries)} images has a label; label some, then try again")
    check_names(where, classes)
    strange = sorted({name for entry in entries for name in entry.absent or ()} - {*classes})
    if strange:
        shown = ", ".join(strange[:8]) + (" ..." if len(strange) > 8 else "")
        notes.append(f"{len(strange)} names are said to be absent and are nowhere a label, so they are no classes: {shown}")
    number = {name: i for i, name in enumerate(classes)}
    items = []
    for entry in entries:
        labels = absent = None
        if entry.labels is not None and entry.split != "unlabeled":
            labels = tuple(sorted(number[name] for name in entry.labels))
            absent = None if entry.absent is None else tuple(sorted(number[name] for name in entry.absent if name in number))
        if absent == () == labels:  # nothing is known of it
            labels = absent = None
        split = "unlabeled" if labels is None else val if entry.split == "val" else entry.split or "train"
        items.append(Item(entry.id, entry.id, split, labels, absent=absent, group=entry.group))
    images = FileImages(Path(), [entry.file for entry in entries], (), upright=True)
    return RawSet(OWN, classes, items, images, listing.source, notes)


def with_splits_of_folders(listing: Listing) -> Listing:
    """The listing with the splits that the images' folders name, where it says none itself and they all lie in such folders."""
    if any(entry.split is not None for entry in listing.entries):
        return listing
    found = [split_in(Path("/", entry.id).parent / "_", Path("/")) for entry in listing.entries]
    if not {"train"} < {*found} <= {"train", "val", "test"}:
        return listing
    entries = [replace(entry, split=split) for entry, split in zip(listing.entries, found, strict=True)]
    note = "no split is said: each image has that of the folder it lies in (train, val, test)"
    return replace(listing, entries=entries, notes=[*listing.notes, note])


def with_empty(listing: Listing, empty: str) -> Listing:
    """The listing with what an image means in which nothing is annotated: none of the classes, or that nobody looked at it.

    Raises:
        DataError: most of the images are so, and it is not said.
    """
    said = [entry for entry in listing.entries if entry.labels is not None and entry.split != "unlabeled"]
    bare = [entry for entry in said if not entry.labels and entry.absent is None]
    if not bare:
        return listing
    if empty == "auto" and 2 * len(bare) > len(said):
        raise DataError(
            f"{listing.where}: nothing is annotated in {len(bare)} of {len(said)} images (the first: {bare[0].id}): none of the "
            "classes, or not labelled? Set own.empty to none or to unlabeled (init-data --empty)"
        )
    if empty == "unlabeled":
        gone = {entry.id for entry in bare}
        entries = [replace(entry, labels=None, split="unlabeled") if entry.id in gone else entry for entry in listing.entries]
        note = f"images without an annotation, taken to be not labelled: {len(bare)}"
        return replace(listing, entries=entries, notes=[*listing.notes, note])
    note = f"images without an annotation, taken to show none of the classes: {len(bare)}"
    return replace(listing, notes=[*listing.notes, f"{note} (own.empty: unlabeled reads them otherwise)"])


def is_ignored(name: str, ignored: Iterable[str] | None) -> bool:
    """Whether a file is named as saying nothing: by its path below the folder, a folder above it, or its ending (`.`: none)."""
    path = Path(name)
    ways = {name, path.suffix.lower() or ".", *map(str, path.parents)} - ({"."} if path.suffix else set())
    return any(one.rstrip("/") in ways or one.lower() in ways for one in ignored or ())


def check_names(where: object, classes: Iterable[str]) -> None:
    """Refuse names of classes that the table of imported labels could not hold. Raises DataError."""
    for name in classes:
        if name in ("", "-", "*") or ";" in name or has_control(name):
            raise DataError(
                f"{where}: class {name!r}: no name, `-`, `*`, `;` and control characters mean something else in tables; rename it"
            )


def has_control(text: str) -> bool:
    """Whether a text holds a control character, such as the end of a line, or a byte that is no letter of UTF-8."""
    return any(unicodedata.category(letter) in ("Cc", "Cs") for letter in text)


def read_json(path: Path) -> Any:
    """The content of a file of annotations. Raises DataError."""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else error
        raise DataError(f"{path}: not readable as JSON ({why}); export it again, or move it out of the folder") from None


def split_in(path: Path, base: Path) -> str | None:
    """The split that the name of a file of annotations or a folder above it says, as `instances_train2017.json` does."""
    words = path.stem.lower().replace("-", "_").replace(".", "_").split("_")
    words += [part.lower() for part in path.parent.relative_to(base).parts] if path.is_relative_to(base) else []
    words = [word.rstrip("0123456789") for word in words]
    return next((SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES), None)


def _composed(entry: Entry) -> Entry:
    """The entry with the names of its classes as tables hold them: without blanks around, and as NFC.

    Some systems write an accent as a letter of its own.
    """
    labels, absent = (
        None if names is None else frozenset(unicodedata.normalize("NFC", name).strip() for name in names)
        for names in (entry.labels, entry.absent)
    )
    return replace(entry, labels=labels, absent=absent)


class Finder:
    """Finds the file that an annotation means, which is often not where the annotation says it is.

    Capitals, composed or decomposed accents, blanks around, backslashes and a missing ending do not matter. Where no file of the
    list is in its place, the folders are those of another machine: then an image below the root is meant whose path ends most
    like it. Where some are in place, the others are missing: one by the name of another folder's may be another photograph.

    Args:
        root: the folder of the data set.
        wanted: the names, each with the folders that it may be relative to, beside the root.
    """

    def __init__(self, root: Path, wanted: Iterable[tuple[str, tuple[Path, ...]]] = ()) -> None:
        self._root, self._real = root, Path(os.path.realpath(root))
        self._moved: dict[str, str] = {}
        self._strict = any(self._in_place(name, bases) is not None for name, bases in wanted)

    def find(self, name: str, *bases: Path) -> Path:
        """The file `name` below one of `bases` or the root; one that is nowhere as it was meant: `convert` says it is missing.

        Raises:
            DataError: it is no name of a file, or more than one file could be meant.
        """
        if (file := self._in_place(name, bases)) is not None:
            return file
        meant = Path(name.strip().replace("\\", "/"))
        if ".." in meant.parts:
            return (bases or (self._root,))[0] / meant
        found = None if self._strict else self._elsewhere([_plain(part) for part in meant.parts])
        if found is not None:
            self._moved[name] = found
        return self._root / (found if found is not None else meant)

    def notes(self) -> list[str]:
        """A line if images were found elsewhere than where they were said to be."""
        return [
            f"images found under another name: {len(self._moved)} ({name} is {readable(found)})"
            for name, found in [*self._moved.items()][:1]
        ]

    def is_here(self, name: str, *bases: Path) -> bool:
        """Whether a file is found by a name, wherever; False for what is no name, or fits several."""
        try:
            return os.path.isfile(self.find(name, *bases))
        except DataError:
            return False

    def _in_place(self, name: str, bases: Iterable[Path]) -> Path | None:
        try:
            os.stat(self._root / name)
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) in (None, errno.ENAMETOOLONG):
                raise DataError(f"{self._root}: {name[:60]!r} is no name of a file; correct it") from None
        plain = name.strip().replace("\\", "/").lstrip("/")
        spellings = [spelling for spelling in (name, name.strip(), plain) if ".." not in spelling.split("/")]
        for spelling in spellings:
            for base in (*bases, self._root):
                if os.path.isfile(file := base / spelling):  # which knows names that can be none
                    real = Path(os.path.realpath(file.parent), file.name)  # an address may lead by way of a link
                    said_whole = os.path.isabs(spelling) and real.is_relative_to(self._real)
                    return self._root / real.relative_to(self._real) if said_whole else file
        for base in (*bases, self._root) if plain in spellings else ():
            if found := self._variants.get(_plain(os.path.relpath(base / plain, self._root))):
                return self._root / self._only(name, found)
        return None

    def _elsewhere(self, wanted: list[str]) -> str | None:
        """The image whose path ends most like it: its last name has to be the same, and so has the folder, where both have one:
        `dog/1.jpg` is not the missing `cat/1.jpg`."""
        rated = []
        for path in self._by_name.get(wanted[-1], []) if wanted else []:
            parts = [_plain(part) for part in Path(path).parts]
            folders = zip(wanted[-2::-1], parts[-2::-1], strict=False)  # from the end
            common = len(list(takewhile(lambda pair: pair[0] == pair[1], folders)))
            if common or len(wanted) == 1 or len(parts) == 1:
                rated.append((common, path))
        best = [path for rate, path in rated if rate == max(rated)[0]]
        return self._only("/".join(wanted), best) if best else None

    def _only(self, name: str, found: list[str]) -> str:
        if len(found) > 1:
            raise DataError(
                f"{self._root}: {name!r} could be {readable(found[0])} or {readable(found[1])}; write its folder and ending too"
            )
        return found[0]

    @cached_property
    def _images(self) -> list[str]:
        return list_images(self._root, required=False)

    @cached_property
    def _variants(self) -> dict[str, list[str]]:
        return _by(self._images, _plain)

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        return _by(self._images, lambda path: _plain(Path(path).name))


def _by(paths: Iterable[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    """Paths by what a key makes of them, with and without the ending."""
    found: dict[str, list[str]] = {}
    for path in paths:
        name = key(path)
        for spelled in {name, name.rpartition(".")[0] if "." in Path(name).name else name}:
            found.setdefault(spelled, []).append(path)
    return found


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def relative_id(file: Path, root: Path) -> str:
    """An image's name: its path below the root, as text that can be written."""
    return readable(file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name)
