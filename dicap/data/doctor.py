"""Is a converted set what it says it is, and is there something in it that would spoil an experiment?"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dicap.data import format as files
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
        unknown: unknown entries (image, class) of labelled images, per split.
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
    """Check the files of a set against meta.json, and the test images for copies of training images.

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
    except DataError as error:
        findings.damage.append(str(error))
        return findings
    findings.duplicates = find_duplicates(store, split)
    if findings.duplicates:
        test, train = findings.duplicates[0]
        shown = f"{len(findings.duplicates)} test images are training images too, for instance {test} = {train}"
        findings.warnings.append(shown + ": the score is too good by them")
    return findings


def find_duplicates(store: Store, split: np.ndarray) -> list[tuple[str, str]]:
    """(id, id of the other) for each test image that is stored with the same pixels as a training or unlabelled image."""
    test, marks = split == "test", store.digests().tolist()
    first = {marks[row]: row for row in np.flatnonzero(~test)[::-1]}
    return [(str(store.ids[row]), str(store.ids[first[marks[row]]])) for row in np.flatnonzero(test) if marks[row] in first]
