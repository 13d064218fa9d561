"""COCO JSON of any edition: one file or several, as labelling tools and data set platforms export it."""

import json
from pathlib import Path

from dicap.data.sources.listing import SPLIT_NAMES, Entry, Finder, Listing, relative_id
from dicap.errors import DataError


def find(root: Path) -> list[Path]:
    """The COCO files of a folder (in it, in annotations/, or in one of its folders), or the file itself."""
    places = [root] if root.is_file() else sorted([*root.glob("*.json"), *root.glob("*/*.json")])
    return [path for path in places if _is_coco(path)]


def read(root: Path, files: list[Path]) -> Listing:
    """An image with an annotation of a category has that label; one without any has none of them.

    The split is read from the file's or its folder's name (train, val, test). Categories are matched by name over the files.
    """
    base = root if root.is_dir() else root.parent
    finder, entries, notes = Finder(base), [], []
    seen: dict[str, str] = {}
    for path in files:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            name_of = {entry["id"]: str(entry["name"]).strip() for entry in content["categories"]}
            labels: dict[object, set[str]] = {entry["id"]: set() for entry in content["images"]}
            for entry in content.get("annotations", []):
                labels[entry["image_id"]].add(name_of[entry["category_id"]])
            places = (path.parent, base / "images", path.parent / "images", *_year_folders(base, path))
            for image in content["images"]:
                file = finder.find(str(image["file_name"]), *places)
                name = relative_id(file, base)
                if name in seen:
                    raise DataError(f"{path}: image {name!r} is listed in {seen[name]} already; keep one")
                seen[name] = path.name
                entries.append(Entry(file, name, frozenset(labels[image["id"]]), _split_of(path, base)))
        except (KeyError, TypeError) as error:
            raise DataError(f"{path}: an entry refers to {error}, which the file does not have; export it again") from None
    empty = sum(not entry.labels for entry in entries)
    if empty:
        notes.append(f"{empty} images have no annotation and count as showing none of the classes")
    return Listing("coco", entries, {"annotations": [path.name for path in files]}, notes)


def _is_coco(path: Path) -> bool:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and isinstance(content.get("images"), list) and isinstance(content.get("categories"), list)


def _split_of(path: Path, base: Path) -> str | None:
    words = path.stem.lower().replace("-", "_").replace(".", "_").split("_")
    words += [part.lower() for part in path.parent.relative_to(base).parts] if path.is_relative_to(base) else []
    words = [word.rstrip("0123456789") for word in words]
    return next((SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES), None)


def _year_folders(base: Path, path: Path) -> list[Path]:
    """instances_train2017.json means train2017/ or images/train2017/."""
    name = path.stem.split("_")[-1]
    return [base / name, base / "images" / name]
