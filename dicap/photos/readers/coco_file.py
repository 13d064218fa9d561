"""COCO JSON of any edition: one file or several, as labelling tools and platforms export it, or as COCO is downloaded."""

import shlex
from collections import Counter
from pathlib import Path
from typing import Any

from dicap.errors import DataError
from dicap.photos.readers.listing import Finder, Listing, Row, read_json, split_in
from dicap.settings import Own

# Other annotations of the same images, in a download of COCO beside its `instances_*.json`.
OTHERS = ("person_keypoints", "captions", "stuff", "panoptic")
WITHOUT_LABELS = "image_info"
IN_PART = {"neg_category_ids", "not_exhaustive_category_ids"}  # of an image in which not every category was looked for


def is_coco(path: Path) -> bool:
    """Whether a file holds the words of images and categories: half a gigabyte is searched for them, not decoded twice."""
    data = path.read_bytes()
    return data[:64].lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{") and b'"images"' in data and b'"categories"' in data


def read(root: Path, own: Own) -> Listing:
    """An image with an annotation of a category has that label; one without any has none of them (but see `own.empty`).

    The split is read from the file's or its folder's name (train, val, test). Categories are matched by name over the files.
    A file none of whose images are here is passed by, where another one has some: few people download all of COCO.
    """
    listing = Listing([], {"annotations": own.files})
    for path in (root / name for name in own.files or ()):
        rows = _read_one(path, root)
        finder = Finder(root, [(row.image, row.folders) for row in rows])
        if not rows or any(finder.find(row.image, *row.folders).is_file() for row in rows):
            listing.rows += rows
        else:
            listing.notes.append(f"{path.name} was passed by: none of its {len(rows)} images is here")
    if listing.notes and not listing.rows:
        raise DataError(f"{root}: {listing.notes[0]}; put the folder of images there, or a link to it")
    return listing


def _read_one(path: Path, root: Path) -> list[Row]:
    try:
        content = read_json(path)
        for what in ("categories", "images"):
            for number, count in Counter(entry["id"] for entry in content[what]).most_common(1):
                if count > 1:
                    raise DataError(f"{path}: {what}: {count} have the id {number!r}; export it again")
        name_of = {entry["id"]: "" if entry["name"] is None else str(entry["name"]).strip() for entry in content["categories"]}
        labels: dict[Any, set[str]] = {entry["id"]: set() for entry in content["images"]}
        annotated = isinstance(content.get("annotations"), list) and not path.name.startswith(WITHOUT_LABELS)
        for entry in content["annotations"] if annotated else []:
            if "score" in entry:
                raise DataError(
                    f"{path}: annotations have a score, so they are a model's answers; leave the file out (init-data --ignore "
                    f"{shlex.quote(path.relative_to(root).as_posix())}), or the scores if somebody has corrected them"
                )
            labels[entry["image_id"]].add(name_of[entry["category_id"]])
        year = path.stem.split("_")[-1]  # instances_train2017.json means train2017/ or images/train2017/
        folders = (root / year, root / "images" / year, path.parent, root / "images", path.parent / "images")
        split, rows = split_in(path, root) or (None if annotated else "unlabeled"), []
        for image in content["images"]:
            if some := sorted(IN_PART & {*image}):
                raise DataError(
                    f"{path}: its images name categories that were or were not looked for ({some[0]}), so others are unknown; "
                    "write labels.csv with the columns image, labels, absent"
                )
            names = frozenset(labels[image["id"]]) if annotated else None
            rows.append(Row(str(image["file_name"]), names, split, empty=not names, where=str(path), folders=folders))
        return rows
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: an entry refers to {error}, which the file does not have; export it again") from None
