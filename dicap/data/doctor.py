"""Is a converted set what it says it is, and is there something in it that would spoil an experiment?"""

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
    """What an examination found.

    Attributes:
        damage: lines on what is broken; training on the set would be wrong.
        warnings: lines on what a user should know.
        duplicates: (id of a test image, id of a training or unlabelled image), the same pixels.
    """

    meta: dict[str, Any]
    damage: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    duplicates: list[tuple[str, str]] = field(default_factory=list)


def examine(folder: Path) -> Findings:
    """Check the files of a set against meta.json, and the test images for copies of training images.

    Raises:
        DataError: the folder is not a converted set at all.
    """
    meta = files.read_meta(folder)
    findings = Findings(meta, warnings=[*meta["notes"]])
    for name, checksum in progress(meta["checksums"].items(), desc="checksums", unit="file"):
        path = folder / name
        if not path.exists():
            findings.damage.append(f"{path}: missing")
        elif sha256(path) != checksum:
            findings.damage.append(f"{path}: its bytes differ from those that convert wrote")
    try:
        store = Store.open(folder)
        test, marks = store.is_test, store.digests().tolist()
        first = {marks[row]: row for row in np.flatnonzero(~test)[::-1]}
        copies = [row for row in np.flatnonzero(test) if marks[row] in first]
        findings.duplicates = [(str(store.ids[row]), str(store.ids[first[marks[row]]])) for row in copies]
    except DataError as error:
        findings.damage.append(str(error))
    if findings.duplicates:
        count, pair = len(findings.duplicates), " = ".join(findings.duplicates[0])
        findings.warnings.append(
            f"{count} test images are training images too, for instance {pair}: the score is too good by them"
        )
    return findings
