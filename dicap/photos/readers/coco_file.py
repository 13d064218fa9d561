"""COCO JSON of any edition: one file or several, as labelling tools and platforms export it, or as COCO is downloaded."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dicap.errors import DataError
from dicap.photos.readers.listing import Entry, Finder, Listing, read_json, relative_id, split_in, with_empty
from dicap.settings import Own
from dicap.settings.catalogue import FORMATS

# Other annotations of the same images, in a download of COCO beside its `instances_*.json`.
OTHERS = ("person_keypoints", "captions", "stuff", "panoptic")
WITHOUT_LABELS = "image_info"
# Keys of an image in files of which not every category was looked for in every image (LVIS): categories that are known not to be
# there, and those whose objects were not all drawn.
NEGATIVE, OPEN = "neg_category_ids", "not_exhaustive_category_ids"


def find(root: Path, kind: str, paths: Iterable[Path]) -> list[Path]:
    """The COCO files among the files of a folder, in it or in one of its folders.

    Where `instances_*.json` lie, keypoints and captions of the same images beside them are passed by.
    """
    places = [path for path in paths if path.suffix.lower() in FORMATS["coco"] and path.parent.parent in (root, root.parent)]
    instances = {path.parent for path in places if path.name.startswith("instances_")}
    return [path for path in places if not (path.parent in instances and path.name.startswith(OTHERS)) and _is_coco(path)]


def read(root: Path, own: Own) -> Listing:
    """An image with an annotation of a category has that label; one without any has none of them (but see `own.empty`).

    The split is read from the file's or its folder's name (train, val, test). Categories are matched by name over the files.
    A file none of whose images are here is passed by, where another one has some: few people download all of COCO.

    Where images name the categories that were verified not to be there, as in LVIS, nothing is known of the categories that are
    neither annotated nor named.
    """
    files = [root / name for name in own.files or ()]
    base = root
    entries: list[Entry] = []
    seen: dict[str, str] = {}
    absent: list[tuple[Path, int]] = []
    used: list[str] = []
    finders: list[Finder] = []
    for path in files:
        found = _read_one(path, base, finders)
        if found and not any(entry.file.is_file() for entry in found):
            absent.append((path, len(found)))
            continue
        for entry in found:
            if entry.id in seen:
                raise DataError(
                    f"{path}: image {entry.id!r} is listed in {seen[entry.id]} already; set data_root to one of the two files"
                )
            seen[entry.id] = path.name
        entries += found
        used.append(path.name)
    if absent and not entries:
        raise DataError(
            f"{absent[0][0]}: none of its {absent[0][1]} images is below {base}; put the folder of images there, or a link to it"
        )
    notes = [note for finder in finders for note in finder.notes()]
    notes += [f"{path.name} was passed by: none of its {count} images is here" for path, count in absent]
    in_part = sum(entry.absent is not None for entry in entries)
    if in_part:
        notes.append(f"images that say which categories they do not show, taken to be labelled in part: {in_part}")
    return with_empty(Listing(root, entries, {"annotations": used}, notes), own.empty)


def _read_one(path: Path, base: Path, finders: list[Finder]) -> list[Entry]:
    try:
        content = read_json(path)
        for what in ("categories", "images"):
            for number, count in Counter(entry["id"] for entry in content[what]).most_common(1):
                if count > 1:
                    raise DataError(f"{path}: {what}: {count} have the id {number!r}; export it again")
        name_of = {entry["id"]: "" if entry["name"] is None else str(entry["name"]).strip() for entry in content["categories"]}
        labels: dict[object, set[str]] = {entry["id"]: set() for entry in content["images"]}
        annotated = isinstance(content.get("annotations"), list) and not path.name.startswith(WITHOUT_LABELS)
        for entry in content["annotations"] if annotated else []:
            labels[entry["image_id"]].add(name_of[entry["category_id"]])
        year = path.stem.split("_")[-1]  # instances_train2017.json means train2017/ or images/train2017/
        places = (base / year, base / "images" / year, path.parent, base / "images", path.parent / "images")
        entries, split = [], split_in(path, base) if annotated else "unlabeled"
        finder = Finder(base, ((_file_name(image), places) for image in content["images"]))
        finders.append(finder)
        verified = any(NEGATIVE in image for image in content["images"])
        for image in content["images"]:
            file = finder.find(_file_name(image), *places)
            names = frozenset(labels[image["id"]]) if annotated else None
            absent = None if names is None else _absent(image, names, name_of, verified)
            if names is not None and (both := sorted(names & (absent or frozenset()))):
                raise DataError(
                    f"{path}: image {_file_name(image)!r}: {both[0]!r} is annotated and in {NEGATIVE}; mend one of them"
                )
            entries.append(Entry(file, relative_id(file, base), names, split, absent))
        return entries
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: an entry refers to {error}, which the file does not have; export it again") from None


def _file_name(image: dict[str, Any]) -> str:
    """Where an image lies; LVIS gives an address alone, whose end is COCO's folder and file."""
    if "file_name" not in image and "coco_url" in image:
        return "/".join(str(image["coco_url"]).split("/")[-2:])
    return str(image["file_name"])


def _absent(image: dict[str, Any], labels: frozenset[str], name_of: dict[Any, str], verified: bool) -> frozenset[str] | None:
    """The categories that are known not to be in an image; None where those are all but its labels.

    Args:
        verified: whether images of this file say what was verified not to be there; else all is but what was left open.
    """
    if verified:
        return frozenset(name_of[number] for number in image.get(NEGATIVE, ()))
    open_ = {name_of[number] for number in image.get(OPEN, ())} - labels
    return frozenset(name_of.values()) - labels - open_ if open_ else None


def _is_coco(path: Path) -> bool:
    """Whether a file holds the words of images and categories: half a gigabyte is searched for them, not decoded twice."""
    try:
        data = path.read_bytes()
    except OSError:
        return False
    return data[:64].lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{") and b'"images"' in data and b'"categories"' in data
