"""Is a converted set what it says it is, and is there something in it that would spoil an experiment?"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from dicap.data import format as files
from dicap.data.labels import labelled_mask, read_labels
from dicap.data.store import Store
from dicap.errors import DataError
from dicap.files.checksum import sha256
from dicap.machine.progress import progress


@dataclass
class Findings:
    """What an examination found.

    Attributes:
        counts: images per split.
        rejected: images that convert left out.
        unknown: entries (image, class) of labelled images per split of which nothing is known.
        damage: lines on what is broken; training on the set would be wrong.
        warnings: lines on what a user should know.
        duplicates: (id of a test image, id of a training image), the same pixels.
    """

    counts: dict[str, int] = field(default_factory=dict)
    rejected: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    duplicates: list[tuple[str, str]] = field(default_factory=list)


def examine(folder: Path) -> Findings:
    """Check the files of a set against meta.json, its labels, and the test images for copies of training images.

    Raises:
        DataError: the folder is not a converted set at all.
    """
    findings = Findings()
    meta = files.read_meta(folder)
    findings.counts, findings.rejected = meta["counts"], len(meta["rejected"])
    findings.unknown = meta.get("unknown", {})
    findings.warnings += meta["notes"]
    for name, checksum in progress(meta["checksums"].items(), desc="checksums", unit="file"):
        path = folder / name
        if not path.exists():
            findings.damage.append(f"{path}: missing")
        elif sha256(path) != checksum:
            findings.damage.append(f"{path}: its bytes differ from those that convert wrote")
    try:
        store = Store.open(folder)
        split = files.read_index(folder, ["split"])["split"].to_numpy()
        _check_index(store, meta, split, findings)
        read_labels(folder, np.flatnonzero(labelled_mask(folder)), partial=True)  # that each is of a class
    except DataError as error:
        findings.damage.append(str(error))
        return findings
    findings.duplicates = find_duplicates(store, split)
    if findings.duplicates:
        test, train = findings.duplicates[0]
        shown = f"{len(findings.duplicates)} test images are training images too, for instance {test} = {train}"
        findings.warnings.append(shown + ": the score is too good by them")
    return findings


def _check_index(store: Store, meta: dict, split: np.ndarray, findings: Findings) -> None:
    path = store.folder / files.INDEX
    for name, count in meta["counts"].items():
        found = int((split == name).sum())
        if found != count:
            findings.damage.append(f"{path}: {found} rows of split {name}, meta.json counts {count}")
    repeated = store.ids[pd.Index(store.ids).duplicated()]
    if len(repeated):
        findings.damage.append(f"{path}: id {repeated[0]!r} occurs more than once")


def find_duplicates(store: Store, split: np.ndarray) -> list[tuple[str, str]]:
    """Test images whose pixels, as they are stored, are also those of a training or unlabelled image: (its id, the other's)."""
    test, marks = split == "test", store.digests().tolist()
    first = {marks[row]: row for row in np.flatnonzero(~test)[::-1]}
    return [(str(store.ids[row]), str(store.ids[first[marks[row]]])) for row in np.flatnonzero(test) if marks[row] in first]
