"""COCO JSON in one file or several: exports of labelling tools and platforms, and downloads of COCO itself."""

from pathlib import Path
from typing import Any

from dicap.data.sources.files import list_others
from dicap.errors import DataError, first_of
from dicap.photos.readers.finder import Finder, is_ignored
from dicap.photos.readers.listing import Listing, Row, read_json, split_in, split_of
from dicap.photos.readers.question import ask_of_keys
from dicap.photos.readers.xml_files import names_of
from dicap.settings import Own

# Other annotations of the images, beside `instances_*.json` in a download of COCO.
OTHERS = ("person_keypoints", "captions", "stuff", "panoptic")
USUAL = {  # keys of images and annotations that say nothing about classes
    *("id", "file_name", "width", "height", "license", "coco_url", "flickr_url", "date_captured", "url", "path", "extra"),
    *("image_id", "category_id", "segmentation", "area", "bbox", "iscrowd", "keypoints", "num_keypoints", "attributes"),
}
REFUSED = {"neg_category_ids", "not_exhaustive_category_ids", "score"}  # keys of annotations that are no complete labels
OF_BOXES = ("occluded", "rotation", "track_id", "keyframe")  # attributes that CVAT gives to every box


def is_coco(path: Path) -> bool:
    """Whether a file holds the keys images and categories. It is searched, not decoded, since it may have half a gigabyte."""
    data = b"" if path.name.startswith(OTHERS) else path.read_bytes()
    return data[:64].lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{") and b'"images"' in data and b'"categories"' in data


def read(root: Path, own: Own) -> Listing:
    """Read the files. The labels of an image are the categories of its annotations; without any it has none (see `own.empty`).

    The split comes from the name of the file or its folder (train, val, test), or from the images' key `own.split`; the group
    from the key `own.group`. Categories of several files are matched by name. A file without any existing image is skipped if
    another file has some: few people download all of COCO.
    """
    listing = Listing([], {"annotations": own.files})
    for path in (root / name for name in own.files or ()):
        rows = _read_one(path, root, own)
        finder = Finder(root, [(row.image, row.folders) for row in rows])
        if not rows or any(finder.find(row.image, *row.folders).is_file() for row in rows):
            listing.rows += rows
        else:
            listing.notes.append(f"{path.name} was skipped: none of its {len(rows)} images is here")
    if listing.notes and not listing.rows:
        raise DataError(f"{root}: {listing.notes[0]}; put the folder of images there, or a link to it")
    others = [name for name in list_others(root) if Path(name).name.startswith(OTHERS) and not is_ignored(name, own.ignore)]
    if unread := [name for name in others if name not in (own.files or ())]:
        listing.notes.append(f"annotations of COCO that are not read, nor classes that only they have: {first_of(unread, 3)}")
    return listing


def _read_one(path: Path, root: Path, own: Own) -> list[Row]:
    """The rows of one file. Raises DataError; Question for a key without a role, or for attributes."""
    content = read_json(path)
    try:
        images, categories = content["images"], content["categories"]
        annotations = content.get("annotations")  # `image_info_*.json` of COCO has none: its images are not labelled
        _check_keys(path, images, annotations or [], own)
        name_of = {entry["id"]: str(entry["name"] or "").strip() for entry in categories}
        labels: dict[Any, set[str]] = {entry["id"]: set() for entry in images}
        if len(name_of) < len(categories) or len(labels) < len(images):
            raise DataError(f"{path}: two images have the same id, or two categories; export it again")
        for entry in annotations or ():
            attributes = {key: str(value) for key, value in (entry.get("attributes") or {}).items() if key not in OF_BOXES}
            labels[entry["image_id"]].update(names_of(name_of[entry["category_id"]], attributes, own.attributes, path))
        year = path.stem.split("_")[-1]  # instances_train2017.json means train2017/ or images/train2017/
        folders = (root / year, root / "images" / year, path.parent, root / "images", path.parent / "images")
        split, rows = split_in(path, root) or (None if annotations is not None else "unlabeled"), []
        for image in images:
            names = None if annotations is None else frozenset(labels[image["id"]])
            named = split_of(str(image.get(own.split) or ""), f"{path}: {image['file_name']}") if own.split else split
            group = str(image[own.group]) if own.group and image.get(own.group) is not None else None
            rows.append(Row(str(image["file_name"]), names, named, None, group, names == frozenset(), str(path), folders))
        return rows
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: an entry refers to {error}, which the file lacks; export it again") from None


def _check_keys(path: Path, images: list[dict[str, Any]], annotations: list[dict[str, Any]], own: Own) -> None:
    """Raise DataError for keys that say that the annotations are no complete labels; Question for an unknown key."""
    of_images = {key: 0 for image in images for key in image}
    keys = [*of_images, *{key: 0 for entry in annotations for key in entry}]
    for key in keys:
        if key in REFUSED and not is_ignored(key, own.ignore):
            text = f"key {key} is of a model's answers, or of images searched for some categories only"
            raise DataError(f"{path}: {text}; write labels.csv with the columns image, labels, absent, or --ignore {key}")
    ask_of_keys(path, [key for key in keys if key not in USUAL], [*of_images], own)
