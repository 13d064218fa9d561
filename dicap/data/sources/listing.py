"""What the readers of annotation formats have in common: a list of images with the names of their labels."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dicap.data.sources.base import Item, RawSet
from dicap.data.sources.files import FilesAt, list_images, same_file
from dicap.errors import DataError

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "trainval": "train",
    "test": "test",
    "testing": "test",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "unlabeled": "unlabeled",
    "unlabelled": "unlabeled",
}


@dataclass(frozen=True)
class Entry:
    """One image: its file, its name (unique), the names of its labels (None = truly unlabelled), and the split if one is said.

    `split` is train, val, test or unlabeled; None where the format knows none.
    """

    file: Path
    id: str
    labels: frozenset[str] | None
    split: str | None = None


@dataclass
class Listing:
    """A folder's annotations, read.

    Attributes:
        kind: name of the format.
        entries: the images.
        source: facts about where they came from.
        notes: lines a user should know.
    """

    kind: str
    entries: list[Entry]
    source: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def to_raw(listing: Listing, dataset: str) -> RawSet:
    """The listing as a raw set: classes sorted by name, val counted as test where there is no test, else as train.

    Raises:
        DataError: no image has a label.
    """
    has_test = any(entry.split == "test" for entry in listing.entries)
    split_of = {"train": "train", "test": "test", "val": "train" if has_test else "test", None: "train", "unlabeled": "unlabeled"}
    classes = sorted({name for entry in listing.entries for name in entry.labels or ()})
    if not classes:
        raise DataError(f"{listing.kind}: none of {len(listing.entries)} images has a label; annotate some, then try again")
    number = {name: i for i, name in enumerate(classes)}
    items = []
    for entry in listing.entries:
        split = "unlabeled" if entry.labels is None else split_of[entry.split]
        labels = None if split == "unlabeled" else tuple(sorted(number[name] for name in entry.labels or ()))
        items.append(Item(entry.id, entry.id, split, labels))
    return RawSet(dataset, classes, items, FilesAt([entry.file for entry in listing.entries]), listing.source, listing.notes)


class Finder:
    """Finds the file that an annotation means, which is often not where the annotation says it is."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._by_name: dict[str, list[str]] | None = None

    def find(self, name: str, *bases: Path) -> Path:
        """The file `name` below one of `bases` or the root; else the one image below the root with the same last name.

        A path that is not there is returned as it was meant: `convert` rejects it as missing and says so.
        """
        name = name.replace("\\", "/").lstrip("/")
        for base in (*bases, self._root):
            if ".." not in Path(name).parts and (base / name).is_file():
                return base / name
        if self._by_name is None:
            self._by_name = {}
            for path in list_images(self._root):
                self._by_name.setdefault(Path(path).name, []).append(path)
        found = self._by_name.get(Path(name).name, [])
        return self._root / (found[0] if len(found) == 1 else Path(name).name if ".." in Path(name).parts else name)


def relative_id(file: Path, root: Path) -> str:
    """An image's name: its path below the root."""
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name


def not_listed(root: Path, entries: list[Entry]) -> list[str]:
    """Images below the root that no entry names, as paths relative to it."""
    known = {same_file(entry.file) for entry in entries}
    return [path for path in list_images(root) if same_file(root / path) not in known]
