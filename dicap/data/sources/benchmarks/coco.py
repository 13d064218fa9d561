"""MS-COCO 2014 and 2017 (train / val), by the rules of Cole et al., as in the published code (docs/methods.md 2.1)."""

import json
from pathlib import Path

from dicap.data.sources.base import Item, RawSet, require, set_of_files
from dicap.errors import DataError

PUBLISHED = "archives of cocodataset.org (train, val and annotations)"


def read(dataset: str, root: Path) -> RawSet:
    """Read `annotations/instances_{train,val}<year>.json`. Raises DataError if a file is missing or inconsistent.

    Only images with an annotation are kept; crowd annotations count. A class is a position in the file's list of categories.
    Images are ordered by their ids *as strings*, because the split permutes rows and so depends on their order.

    Args:
        root: folder with annotations/, and with train<year>/ and val<year>/ directly or under images/.
    """
    year = dataset.removeprefix("coco")
    classes: list[str] = []
    items = []
    for split, phase in (("train", "train"), ("test", "val")):
        path = require(root / "annotations" / f"instances_{phase}{year}.json", "annotations", PUBLISHED)
        names, listed = read_instances(path)
        if classes and names != classes:
            raise DataError(f"{path}: its categories differ from those of instances_train{year}.json; get both from one archive")
        classes = names
        name = f"{phase}{year}"
        folder = next((path for path in (name, f"images/{name}") if (root / path).is_dir()), name)
        require(root / folder, "images", PUBLISHED)
        items += [Item(Path(name).stem, f"{folder}/{name}", split, labels) for name, labels in listed]
    return set_of_files(dataset, root, classes, items, {"annotations": f"instances_{{train,val}}{year}.json"})


def read_instances(path: Path) -> tuple[list[str], list[tuple[str, tuple[int, ...]]]]:
    """Names of the classes, and (file name, labels) of the annotated images in published order."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        number = {entry["id"]: i for i, entry in enumerate(content["categories"])}
        names = [str(entry["name"]) for entry in content["categories"]]
        files = {entry["id"]: str(entry["file_name"]) for entry in content["images"]}
        labels: dict[int, set[int]] = {}
        for entry in content["annotations"]:
            labels.setdefault(entry["image_id"], set()).add(number[entry["category_id"]])
        order = sorted(labels, key=str)
        return names, [(files[image], tuple(sorted(labels[image]))) for image in order]
    except (ValueError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not readable as JSON ({error}); unpack the archive again") from None
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: an entry refers to {error}, which the file does not have; unpack the archive again") from None
