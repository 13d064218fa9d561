"""A look at somebody's own images before anything is converted: what is there, and what may go wrong."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dicap.data.sources import own
from dicap.data.sources.base import Rejected
from dicap.data.sources.files import FilesAt
from dicap.data.sources.own import FORMATS
from dicap.errors import DataError
from dicap.progress import progress
from dicap.settings import Own

FEW = 10  # labelled images of a class below which it will hardly be learnt


@dataclass
class Survey:
    """What a folder holds.

    Attributes:
        kind: the format of its labels.
        counts: images by split.
        classes: (name, training images, test images) of every class, most frequent first.
        labels_per_image: mean number of labels of a labelled image.
        unreadable: (path, reason).
        unlisted: image files below the folder that no annotation names.
        problems: sentences.
    """

    kind: str
    counts: dict[str, int]
    classes: list[tuple[str, int, int]]
    labels_per_image: float
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    unlisted: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def survey(root: Path, options: Own) -> tuple[Survey, Own]:
    """Look at a folder, opening every image; returns what is there and the options that make it run.

    A test split is asked for where there is none (own.test_share 0.2), and images that no annotation names become unlabelled.

    Raises:
        DataError: no labels are found.
    """
    kind = own.detect(root) if options.format == "auto" else options.format
    assert kind in FORMATS
    try:
        raw = own.read("table", root, 0, options)
    except DataError as error:
        if "split test" not in str(error):
            raise
        options = options.model_copy(update={"test_share": 0.2})
        raw = own.read("table", root, 0, options)
    unlisted = 0
    if not options.unlabeled_root and root.is_dir() and kind != "folders":
        assert isinstance(raw.images, FilesAt)
        more, _ = own.with_unlabelled(raw, raw.images.paths, root)
        unlisted = len(more.items) - len(raw.items)
        if unlisted:
            options = options.model_copy(update={"unlabeled_root": str(root)})
            raw = own.read("table", root, 0, options)
    unreadable = []
    for i in progress(range(len(raw.items)), desc="look", total=len(raw.items), unit="image"):
        try:
            raw.images.read(i)
        except Rejected as reason:
            unreadable.append((raw.items[i].path, str(reason)))
    seen = {
        split: Counter(c for item in raw.items if item.split == split for c in item.labels or ()) for split in ("train", "test")
    }
    classes = [(name, seen["train"][c], seen["test"][c]) for c, name in enumerate(raw.classes)]
    labelled = [item for item in raw.items if item.labels is not None]
    result = Survey(
        kind,
        {split: sum(item.split == split for item in raw.items) for split in ("train", "test", "unlabeled")},
        sorted(classes, key=lambda row: (-row[1] - row[2], row[0])),
        sum(len(item.labels or ()) for item in labelled) / max(1, len(labelled)),
        unreadable,
        unlisted,
        notes=list(raw.notes),
    )
    result.problems = list(_problems(result))
    return result, options


def _problems(found: Survey) -> Iterator[str]:
    total = sum(found.counts.values())
    if found.unreadable:
        share = len(found.unreadable) / total
        more = "; raise convert.max_rejected, or mend them" if share > 0.01 else ""
        yield f"{len(found.unreadable)} of {total} images cannot be read ({share:.1%}){more}; the first: {found.unreadable[0][0]}"
    few = [name for name, train, _ in found.classes if train < FEW]
    if few:
        yield f"classes with fewer than {FEW} labelled training images ({len(few)}): {_first(few)}"
    blind = [name for name, _, test in found.classes if not test]
    if blind:
        yield f"classes without a test image, whose AP counts 0 ({len(blind)}): {_first(blind)}"
    if not found.counts["unlabeled"]:
        yield "no unlabelled images: below ratio 1 labelled ones stand in for them; own.unlabeled_root names a folder of more"
    if found.counts["train"] < 50:
        yield f"only {found.counts['train']} labelled training images; a few hundred are a good start"
    looks_alike = Counter(name.lower() for name, _, _ in found.classes)
    twins = [name for name, count in looks_alike.items() if count > 1]
    if twins:
        yield f"classes that differ in capitals only: {_first(twins)}"


def _first(names: list[str], most: int = 8) -> str:
    """The names, or the first of them and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
