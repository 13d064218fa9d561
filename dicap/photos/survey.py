"""Survey a folder of images before they are converted: what it holds, and what may go wrong."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unicodedata import normalize

import numpy as np

from dicap.data.lookalikes import folders_of_copies, note_of_lookalikes, thumbnail
from dicap.data.sources.base import Item, RawSet, Rejected, unknown_entries
from dicap.errors import DataError, first_of
from dicap.machine.progress import progress
from dicap.photos.readers.heads import SPLIT_NAMES
from dicap.photos.readers.read import TEST_SHARE, look, with_unlabelled
from dicap.settings import Own

MISSING = "missing"  # reason that the reader of images gives for a missing file
EXAMPLES = 5
SHOWN = 8  # names in a line
FEW = 10  # a class with fewer labelled images is hardly learnt


@dataclass(frozen=True)
class Survey:
    """What a folder holds.

    Attributes:
        root: the folder of the data set.
        counts: images by split.
        classes: (name, training images, test images) of every class, most frequent first.
        labels_per_image: mean number of labels of a labelled image.
        understood: (topic, how the labels are read).
        examples: (image, split, labels) of the first rows.
        ratio: share of the labels to use, and the reason.
        everywhere: classes that no labelled training image is known to lack.
        unreadable, missing: (path, reason).
        notes: sentences on assumptions.
    """

    root: Path
    counts: dict[str, int]
    classes: list[tuple[str, int, int]]
    labels_per_image: float
    understood: list[tuple[str, str]]
    examples: list[tuple[str, str, str]]
    ratio: tuple[float, str]
    everywhere: list[str]
    unreadable: list[tuple[str, str]]
    missing: list[tuple[str, str]]
    notes: list[str]

    @property
    def problems(self) -> list[str]:
        """Sentences on what may go wrong."""
        return list(_problems(self))


def survey(place: Path, options: Own) -> tuple[Survey, Own]:
    """Look at a folder (or the file of labels in it) and open every image; return the survey and the options to run the pipeline.

    A test split is drawn if the labels name none (own.test_share 0.2). Raises DataError, Question as `look`.
    """
    root, reading, raw = look(place, options.model_copy(update={"test_share": options.test_share or TEST_SHARE}))
    if "test_drawn" not in raw.source:
        reading = reading.model_copy(update={"test_share": options.test_share})
    below = raw if reading.unlabeled_root in (None, str(root)) else with_unlabelled(raw, root, root, reading.ignore)
    if left_out := len(below.items) - len(raw.items):
        raw.notes.append(f"images below {root} that no annotation names, left out: {left_out}")
    unreadable, missing, thumbnails = [], [], {}
    for i in progress(range(len(raw.items)), desc="look", total=len(raw.items), unit="image"):
        try:
            thumbnails[i] = thumbnail(raw.images.read(i))
        except Rejected as reason:
            (missing if str(reason) == MISSING else unreadable).append((raw.items[i].path, str(reason)))
    read, pictures = [raw.items[i] for i in thumbnails], np.array([*thumbnails.values()])
    if reading.derived == "auto" and read:
        folders = ["/".join(part for part in Path(one.path).parts[:-1] if part.lower() not in SPLIT_NAMES) for one in read]
        if copies := folders_of_copies(folders, pictures):
            text = f"almost all pictures in {first_of(copies, 4)} look like pictures of another folder"
            raise DataError(f"{root}: {text}: leave copies and thumbnails out (--ignore), or pass --derived photographs")
    raw.notes.extend(note_of_lookalikes([one.id for one in read], [one.split for one in read], pictures))
    counts = {split: sum(item.split == split for item in raw.items) for split in ("train", "test", "unlabeled")}
    seen = {split: Counter(c for item in raw.items if item.split == split for c in item.labels or ()) for split in counts}
    classes = [(name, seen["train"][c], seen["test"][c]) for c, name in enumerate(raw.classes)]
    if counts["unlabeled"]:
        ratio = 1.0, f"all labels are used, and the model also learns from the {counts['unlabeled']} unlabelled images"
    else:
        ratio = 0.5, "no image is unlabelled, so the labels of half the training images are hidden; --unlabeled names more images"
    classes.sort(key=lambda row: (-row[1] - row[2], row[0]))
    mean = sum(len(item.labels or ()) for item in raw.items) / max(1, counts["train"] + counts["test"])
    understood = list(_understood(raw, counts, reading))
    examples = [_example(item, raw.classes) for item in raw.items[:EXAMPLES]]
    everywhere = _everywhere(raw)
    overview = Survey(root, counts, classes, mean, understood, examples, ratio, everywhere, unreadable, missing, raw.notes)
    return overview, reading.model_copy(update={"names": raw.classes})


def _understood(raw: RawSet, counts: dict[str, int], reading: Own) -> Iterator[tuple[str, str]]:
    where = raw.source.get("table") or raw.source.get("export") or ", ".join(raw.source.get("annotations", [])[:3])
    yield "format", f"{reading.format}{f': {where}' if where else ''}"
    if reading.format == "folders":
        way = "--ignore leaves one out; splits are named train, val, test; where these are no labels: dicap-stage suggest"
        yield "labels", f"the folders {first_of(raw.classes, SHOWN)} ({way})"
    if read := raw.source.get("read"):
        yield "columns", ", ".join(f"{what}: {how}" for what, how in read.items())
    drawn = f" (the test split drawn: own.test_share {reading.test_share:g})" if "test_drawn" in raw.source else ""
    yield "splits", ", ".join(f"{count} {split}" for split, count in counts.items() if count) + drawn
    if in_part := [item for item in raw.items if item.absent is not None]:
        unknown = unknown_entries(len(raw.classes), in_part)
        yield "known", f"{len(in_part)} images are labelled in part: {unknown} entries (image, class) are unknown"


def _example(item: Item, classes: list[str]) -> tuple[str, str, str]:
    none = "(none of the classes)" if item.absent is None else "(none known)"
    labels = "(not labelled)" if item.labels is None else "; ".join(classes[c] for c in item.labels) or none
    if item.absent is not None:
        labels += f" (absent: {'; '.join(classes[c] for c in item.absent) or 'none known'})"
    return item.path, item.split, labels


def _everywhere(raw: RawSet) -> list[str]:
    train = [item for item in raw.items if item.split == "train"]
    seen = {c for item in train for c in item.labels or ()}
    missing = {c for item in train for c in (seen - {*(item.labels or ())} if item.absent is None else item.absent)}
    return [name for c, name in enumerate(raw.classes) if c in seen - missing]


def _problems(survey: Survey) -> Iterator[str]:
    total, train = sum(survey.counts.values()), survey.counts["train"]
    if survey.everywhere:
        nothing = "nothing" if len(survey.everywhere) == len(survey.classes) else "nothing of it"
        yield (
            f"no labelled training image is known to lack {first_of(survey.everywhere, SHOWN)}, so {nothing} can be learnt: "
            "add photographs without it, labelled `-` if they show no class at all"
        )
    for what, files in (("cannot be read", survey.unreadable), ("are missing", survey.missing)):
        if files:
            path, reason = files[0]
            why = f": {reason}" if reason != MISSING else ""
            yield f"{len(files)} of {total} images {what} ({len(files) / total:.1%}); the first: {path}{why}"
    if few := [name for name, seen, _ in survey.classes if seen < FEW]:
        yield f"classes with fewer than {FEW} labelled training images ({len(few)}): {first_of(few, SHOWN)}"
    if blind := [name for name, _, test in survey.classes if not test]:
        yield f"classes without a test image, which get no score ({len(blind)}): {first_of(blind, SHOWN)}"
    if train < 50:
        yield f"only {train} labelled training images; a few hundred are a good start"
    looks_alike: dict[str, list[str]] = {}
    for name, _, _ in survey.classes:  # capitals and kinds of blanks are easily overlooked
        looks_alike.setdefault(" ".join(normalize("NFKC", name).casefold().split()), []).append(name)
    if twins := [" and ".join(map(ascii, names)) for names in looks_alike.values() if len(names) > 1]:
        yield f"classes that look alike or differ in capitals only: {first_of(twins, SHOWN)}"
