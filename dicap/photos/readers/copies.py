"""Groups: photographs that must stay on one side of every split and fold, or the test would score pictures already seen."""

import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from unicodedata import normalize

from scipy.cluster.hierarchy import DisjointSet

from dicap.data.sources.base import FileImages, RawSet
from dicap.files.checksum import sha256

# The ending that Roboflow gives to a copy. Turned or recoloured copies of one photograph have the same name before the ending.
COPY = re.compile(r"\.rf\.[0-9A-Za-z]{8,}$")
FIRST = {"test": 0, "train": 1, "unlabeled": 2}  # among files of equal bytes the lowest is kept


def with_groups(raw: RawSet) -> RawSet:
    """Find the groups of images; the id of one image names the group.

    A group holds images with one value of `own.group`, Roboflow's copies of one photograph, files of a folder that differ only in
    their endings, and files of equal bytes. Among files of equal bytes, unlabelled ones beside a labelled one and training images
    beside a test image are left out.
    """
    assert isinstance(raw.images, FileImages)
    alike: dict[tuple[str, str | None], list[int]] = {}
    for i, (item, mark) in enumerate(zip(raw.items, checksums(raw.images.paths), strict=True)):
        path = PurePosixPath(item.id)
        stem, is_copy = COPY.subn("", path.stem)
        group = item.group and " ".join(normalize("NFKC", item.group).casefold().split()).removesuffix(".0")  # gaps make 1 a 1.0
        for kind in (("bytes", mark), ("group", group), ("name", stem if is_copy else str(path.with_suffix("")))):
            if kind[1] is not None:
                alike.setdefault(kind, []).append(i)
    linked = DisjointSet(range(len(raw.items)))
    for rows in alike.values():
        for i in rows[1:]:
            linked.merge(rows[0], i)
    groups = [(min(raw.items[i].id for i in rows), rows) for rows in linked.subsets() if len(rows) > 1]
    group = {i: name for name, rows in groups for i in rows}
    items = [replace(item, group=group.get(i)) for i, item in enumerate(raw.items)]
    dropped, pairs, differ = set(), [], []
    for rows in (rows for (kind, _), rows in alike.items() if kind == "bytes" and len(rows) > 1):
        first = min(rows, key=lambda i: FIRST[items[i].split])
        dropped |= {i for i in rows if items[i].split != items[first].split}
        pairs += [f"{items[i].id} = {items[first].id}" for i in rows if i != first]
        labels = {(items[i].labels, items[i].absent): items[i].id for i in rows if items[i].labels is not None}
        differ += [" and ".join([*labels.values()][:2])] * (len(labels) > 1)
    texts = {
        "copies of the same bytes under other names": pairs,
        "copies left out beside a labelled or a test image": sorted(items[i].id for i in dropped),
        "copies whose labels contradict each other": differ,
    }
    return _without(replace(raw, items=items), dropped, texts)


def without_leaks(raw: RawSet) -> RawSet:
    """Leave out unlabelled images whose group has a test image; note training images whose group has one."""
    tests = {item.group for item in raw.items if item.split == "test"} - {None}
    dropped = {i for i, item in enumerate(raw.items) if item.split == "unlabeled" and item.group in tests}
    leaks = [item.id for item in raw.items if item.split == "train" and item.group in tests]
    texts = {
        "unlabelled images of one group with a test image, left out": sorted(raw.items[i].id for i in dropped),
        "training images of one group with a test image, which make the score too good": leaks,
    }
    return _without(raw, dropped, texts)


def _without(raw: RawSet, dropped: Collection[int], texts: Mapping[str, list[str]]) -> RawSet:
    """The set without some rows, with a note for each text about some of its images."""
    assert isinstance(raw.images, FileImages)
    kept = [i for i in range(len(raw.items)) if i not in dropped]
    images = FileImages(Path(), [raw.images.paths[i] for i in kept], [raw.images.below[i] for i in kept], upright=True)
    notes = [f"{text}: {len(ids)} (the first: {ids[0]})" for text, ids in texts.items() if ids]
    return replace(raw, items=[raw.items[i] for i in kept], images=images, notes=[*raw.notes, *notes])


def checksums(files: Sequence[Path]) -> list[str | None]:
    """The checksum of each file whose size another file has, too; None for other files and for missing ones."""
    sizes = [os.path.getsize(file) if os.path.isfile(file) else 0 for file in files]
    often = Counter(sizes)
    return [sha256(file) if size and often[size] > 1 else None for file, size in zip(files, sizes, strict=True)]
