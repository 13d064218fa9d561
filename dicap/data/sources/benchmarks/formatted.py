"""The published lists: `formatted_{train,val}_{images,labels}.npy` (docs/methods.md 2.2).

Images are unicode arrays of relative paths, labels are (N, C) float64 of 0 and 1; `val` is our test split. With the published
rows, ratio and seed the labelled images are those of the published code.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from dicap.data.sources.base import Item, RawSet, inside, set_of_files
from dicap.errors import DataError
from dicap.files.checksum import sha256
from dicap.files.npy import open_npy

AGAIN = "all four formatted_*.npy are needed; get it again"
PHASES = {"train": "train", "test": "val"}


def read_formatted(dataset: str, folder: Path, root: Path) -> RawSet:
    """List a data set from the four npy files. Raises DataError if a file is missing or malformed.

    Args:
        dataset: a benchmark set, which determines the names of the classes and the folder of the images.
        folder: the folder of the npy files.
        root: `data_root`: the base of the files' relative paths, or the data set's folder above it.
    """
    items: list[Item] = []
    width = 0
    for split, phase in PHASES.items():
        images, labels = _load_phase(folder, phase)
        if width and labels.shape[1] != width:
            path = folder / f"formatted_{phase}_labels.npy"
            raise DataError(f"{path}: {labels.shape[1]} classes, the train labels have {width}; use files of one origin")
        width = labels.shape[1]
        path_of = _locate(dataset, root, str(images[0]) if len(images) else "")
        for name, row in zip(images.tolist(), labels, strict=True):
            path = path_of(name)
            if not inside(root, path):
                raise DataError(f"{folder / f'formatted_{phase}_images.npy'}: {name!r} leaves data_root; mend the list")
            items.append(Item(Path(name).with_suffix("").as_posix(), path, split, tuple(np.flatnonzero(row).tolist())))
    classes, notes = _class_names(dataset, root, width)
    source = {"lists": "formatted npy"} | {file.name: sha256(file) for file in sorted(folder.glob("formatted_*.npy"))}
    return replace(set_of_files(dataset, root, classes, items, source), notes=notes)


def _load_phase(folder: Path, phase: str) -> tuple[np.ndarray, np.ndarray]:
    """Names (N,) and labels (N, C) of a phase, checked."""
    images_path, labels_path = (folder / f"formatted_{phase}_{what}.npy" for what in ("images", "labels"))
    images, labels = (open_npy(path, AGAIN) for path in (images_path, labels_path))
    if images.ndim != 1 or images.dtype.kind not in "US":
        raise DataError(f"{images_path}: found {images.ndim}-d {images.dtype}, expected a list of texts")
    if labels.ndim != 2 or labels.dtype.kind not in "fiub":
        raise DataError(f"{labels_path}: found {labels.ndim}-d {labels.dtype}, expected an array of images x classes")
    if len(images) != len(labels):
        raise DataError(f"{labels_path}: {len(labels)} rows, {images_path.name} has {len(images)}; use files of one origin")
    if not np.isin(labels, (0, 1)).all():
        raise DataError(f"{labels_path}: holds values other than 0 and 1; this reader needs complete labels")
    return images.astype(str), labels


def _locate(dataset: str, root: Path, first: str) -> Callable[[str], str]:
    """A function from a published name to a path below `root`; the location of the first image decides."""
    if dataset == "awa2":
        # BBAM's lists hold bare names, and the species is the part before the last underscore.
        base = "Animals_with_Attributes2/" if (root / "Animals_with_Attributes2").is_dir() else ""
        return lambda name: name if "/" in name else f"{base}JPEGImages/{name.rsplit('_', 1)[0]}/{name}"
    year = dataset.upper()
    prefixes = {
        "voc": ["", f"VOCdevkit/{year}/JPEGImages/", f"{year}/JPEGImages/", "JPEGImages/"],
        "coco": ["", "images/"],
        "nuswide": ["Flickr/", ""],
    }[dataset.rstrip("0123456789")]
    prefix = next((prefix for prefix in prefixes if (root / (prefix + first)).exists()), prefixes[0])
    return lambda name: prefix + name


def _class_names(dataset: str, root: Path, width: int) -> tuple[list[str], list[str]]:
    """Names of the classes, and notes about them. The npy files have no names, so classes may only be numbered."""
    from dicap.data.sources.benchmarks import awa2, coco, nuswide, voc

    names: list[str] = []
    if dataset.startswith("voc"):
        names = list(voc.CLASSES)
    elif dataset == "nuswide":
        names = list(nuswide.CONCEPTS)
    elif dataset.startswith("coco"):
        path = root / "annotations" / f"instances_train{dataset.removeprefix('coco')}.json"
        names = coco.read_instances(path)[0] if path.exists() else []
    elif dataset == "awa2":
        base = root / "Animals_with_Attributes2" if (root / "Animals_with_Attributes2").is_dir() else root
        names = awa2.numbered(base / "predicates.txt") if (base / "predicates.txt").exists() else []
    if len(names) == width:
        return names, (["the names of the concepts are assumed to be in alphabetical order"] if dataset == "nuswide" else [])
    return [f"class_{i:03d}" for i in range(width)], [f"the lists name no classes, so the {width} classes are numbered"]
