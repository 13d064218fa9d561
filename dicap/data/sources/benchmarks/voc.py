"""PASCAL VOC 2007 (trainval / test) and 2012 (train / val, the VOC of the published tables), by docs/methods.md 2.1."""

from pathlib import Path

from dicap.data.sources.base import Item, RawSet, require, set_of_files, words_of
from dicap.errors import DataError

CLASSES = [
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog"),
    *("horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
]
PHASES = {"voc2007": ("trainval", "test"), "voc2012": ("train", "val")}  # VOC's names of our train and test splits
PUBLISHED = "VOCdevkit archives of host.robots.ox.ac.uk/pascal/VOC"


def read(dataset: str, root: Path) -> RawSet:
    """Read the lists `ImageSets/Main/<class>_<phase>.txt`.

    Flag 1 is a positive; flags 0 (difficult) and -1 are both negatives. Images without a flag of 1 in any class are left out.
    Images are sorted by name; classes are in alphabetical order.

    Args:
        root: VOC2007 or VOC2012, its parent folder, or the parent folder of VOCdevkit.

    Raises:
        DataError: a list is missing or has a line that is not `name flag`.
    """
    folder, lists = f"VOCdevkit/{dataset.upper()}", "ImageSets/Main"
    base = next((base for base in (root / folder, root / dataset.upper(), root) if (base / lists).is_dir()), None)
    if base is None:
        raise DataError(f"{root / folder / lists}: no such folder; data_root must hold {folder} of the {PUBLISHED}")
    items = []
    for split, phase in zip(("train", "test"), PHASES[dataset], strict=True):
        positives: dict[str, list[int]] = {}
        for number, name in enumerate(CLASSES):
            path = require(base / lists / f"{name}_{phase}.txt", "list of a class", PUBLISHED)
            rows = words_of(path, lambda words, _: words[1:] in (["1"], ["0"], ["-1"]), "an image's name and 1, 0 or -1")
            for image in (image for image, flag in rows if flag == "1"):
                positives.setdefault(image, []).append(number)
        folder = (base / "JPEGImages").relative_to(root).as_posix()
        items += [Item(image, f"{folder}/{image}.jpg", split, tuple(positives[image])) for image in sorted(positives)]
    return set_of_files(dataset, root, CLASSES, items, {"lists": lists, "phases": list(PHASES[dataset])})
