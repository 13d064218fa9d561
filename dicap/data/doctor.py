"""Checks a converted set: are its files intact, and do test images leak into training?"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dicap.data import format as files
from dicap.data.store import Store
from dicap.errors import DataError
from dicap.files.checksum import sha256
from dicap.machine.progress import progress


@dataclass
class Findings:
    """The results of a check.

    Attributes:
        damage: a line for each damaged file; the set must not be used.
        warnings: lines for the user.
        duplicates: (id of a test image, id of a training or unlabelled image) with the same pixels.
    """

    meta: dict[str, Any]
    damage: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    duplicates: list[tuple[str, str]] = field(default_factory=list)


def examine(folder: Path) -> Findings:
    """Check the files of a set against meta.json, and the test images for duplicates of training images.

    Raises:
        DataError: the folder is not a converted set.
    """
    meta = files.read_meta(folder)
    findings = Findings(meta, warnings=[*meta["notes"]])
    for name, checksum in progress(meta["checksums"].items(), desc="checksums", unit="file"):
        path = folder / name
        if not path.exists():
            findings.damage.append(f"{path}: missing")
        elif sha256(path) != checksum:
            findings.damage.append(f"{path}: changed since convert wrote it (its checksum differs)")
    try:
        store = Store.open(folder)
        test, marks = store.is_test, store.digests().tolist()
        first = {marks[row]: row for row in np.flatnonzero(~test)[::-1]}
        leaks = [row for row in np.flatnonzero(test) if marks[row] in first]
        findings.duplicates = [(str(store.ids[row]), str(store.ids[first[marks[row]]])) for row in leaks]
    except DataError as error:
        findings.damage.append(str(error))
    if findings.duplicates:
        count, pair = len(findings.duplicates), " = ".join(findings.duplicates[0])
        findings.warnings.append(
            f"{count} test images are also training images, for instance {pair}: this leak makes the score too high"
        )
    return findings
