"""Converts a raw data set into resized images, an index and a description (`dicap.data.format`).

Everything is written into a hidden folder next to the destination, which is renamed at the end, so a killed or failed conversion
leaves the earlier set unchanged. Decoded images are kept in a store (`dicap.files.content_store`), with keys that change if the
image file changes. So a conversion after a kill continues, and an added photograph costs only its own decoding.
"""

import csv
import json
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from dicap.data import format as files
from dicap.data.lookalikes import note_of_lookalikes, thumbnail
from dicap.data.resize import SIZES, square, squares
from dicap.data.sources.base import LEADS_OUT, FileImages, RawSet, decoders, unknown_entries
from dicap.errors import DataError
from dicap.files.atomic import replacing_folder
from dicap.files.checksum import sha256
from dicap.files.content_store import ContentStore, digest
from dicap.files.npy import open_npy, write_head
from dicap.machine.progress import progress
from dicap.settings.catalogue import OWN


def convert(
    raw: RawSet,
    destination: Path,
    *,
    image_size: int,
    max_rejected: float = 0.01,
    known: Path | None = None,
    code: str = "",
    workers: int | None = None,
) -> dict[str, Any]:
    """Convert a raw data set.

    Each image is decoded to RGB and resized to a square with Pillow's bilinear filter, the aspect ratio ignored
    (docs/methods.md 2.4). Files that cannot be decoded are left out, listed in meta.json with the reason.

    Args:
        destination: `data/converted`; replaced as a whole when everything has been written.
        image_size: side in pixels.
        max_rejected: share of rejected images above which the conversion fails.
        known: folder of the store of decoded images; None: no store.
        code: identifies the code that makes the pixels; images decoded by other code are decoded again.
        workers: processes; None: one per core; 0: none.

    Returns:
        The content of meta.json.

    Raises:
        DataError: too many images were rejected, two images have the same id, all images of a split were rejected, the disk is
            full, or another process is converting into the same folder.
    """
    _refuse_twice(raw)
    kind = f"{type(raw.images).__module__}.{type(raw.images).__qualname__}"
    facts = {"dataset": raw.dataset, "images": kind, "image_size": image_size, "code": code, **decoders()}
    try:
        with replacing_folder(destination) as scratch:
            results = _squares(raw, image_size, workers, None if known is None else ContentStore.of(known, facts))
            bar = progress(results, desc=f"convert {raw.dataset}", total=len(raw.items), unit="image")
            with closing(results), closing(bar):
                sizes, rejected = _write_pixels(bar, scratch, image_size)
            _check_rejected(raw, rejected, max_rejected, destination)
            return _describe(raw, sizes, rejected, scratch, image_size)
    except OSError as error:
        path = error.filename or destination
        raise DataError(f"{path}: {error.strerror or error}; make room or choose another disk") from None
    except BrokenProcessPool:
        raise DataError(
            f"{destination}: a worker process was killed (often the memory is full); convert with --workers 0"
        ) from None


def check_files(raw: RawSet, destination: Path, max_rejected: float) -> None:
    """Raise, before anything is replaced, the DataError of `convert` for images that are listed twice, missing or outside."""
    _refuse_twice(raw)
    if isinstance(images := raw.images, FileImages):
        missing = {row: "missing" for row, path in enumerate(images.paths) if not path.is_file()}
        outside = {row: LEADS_OUT for row in range(len(images.paths)) if row not in missing and images.leads_out(row)}
        _check_rejected(raw, missing | outside, max_rejected, destination)


def _refuse_twice(raw: RawSet) -> None:
    for name, count in Counter(item.id for item in raw.items).most_common(1):
        if count > 1:
            raise DataError(f"{raw.dataset}: image {name!r} is listed {count} times; keep one")


def _squares(raw: RawSet, image_size: int, workers: int | None, cache: ContentStore | None) -> Generator[bytes | str]:
    """The result of `square` for each image, in order: from the store if the image file did not change, else newly decoded."""
    n = len(raw.items)
    if cache is None:
        yield from squares(raw.images, range(n), image_size, workers)
        return
    keys = np.array([digest(json.dumps(raw.images.mark(i)).encode()) for i in range(n)], "S16")
    known = cache.has(keys)
    with closing(squares(raw.images, np.flatnonzero(~known).tolist(), image_size, workers)) as decoded:
        for i in range(n):
            result = cache.read(keys[i]) if known[i] else None
            if result is None:
                result = square(raw.images, i, image_size) if known[i] else next(decoded)  # known, but the stored one is damaged
                if isinstance(result, bytes):
                    cache.add(keys[i : i + 1], [result])
            yield result


def _write_pixels(results: Iterator[bytes | str], folder: Path, image_size: int) -> tuple[list[tuple[int, int]], dict[int, str]]:
    """Write the images as one array. Returns (width, height) of each original, and {row: reason} of the rejected images."""
    sizes: list[tuple[int, int]] = []
    rejected: dict[int, str] = {}
    with (folder / files.ARRAY).open("wb") as file:
        write_head(file, (0, image_size, image_size, 3), np.uint8)
        for row, result in enumerate(results):
            if isinstance(result, str):
                rejected[row] = result
                continue
            sizes.append(SIZES.unpack_from(result))
            file.write(memoryview(result)[SIZES.size :])
        file.seek(0)
        write_head(file, (len(sizes), image_size, image_size, 3), np.uint8)
    return sizes, rejected


def _describe(
    raw: RawSet, sizes: list[tuple[int, int]], reasons: dict[int, str], scratch: Path, image_size: int
) -> dict[str, Any]:
    """Write the index and meta.json after `_write_pixels`; returns the content of meta.json."""
    items = [item for row, item in enumerate(raw.items) if row not in reasons]
    unknown = {
        split: unknown_entries(len(raw.classes), (item for item in items if item.split == split)) for split in ("train", "test")
    }
    partial = any(unknown.values())
    grouped = any(item.group is not None for item in items)
    names = ["id", "path", "split", "labels", *["absent"] * partial, *["group"] * grouped]
    columns: dict[str, Any] = {name: [getattr(item, name) for item in items] for name in names}
    columns |= {"width": [width for width, _ in sizes], "height": [height for _, height in sizes]}
    files.write_index(scratch / files.INDEX, columns)
    rejected = [{"path": raw.items[row].path, "reason": reason} for row, reason in reasons.items()]
    notes = list(raw.notes)
    if rejected:
        notes.append(f"{len(rejected)} images were rejected, so the split differs from one drawn with them")
    if raw.dataset == OWN:
        pixels = open_npy(scratch / files.ARRAY, files.AGAIN, np.uint8, (len(items), image_size, image_size, 3))
        thumbnails = np.array([thumbnail(Image.fromarray(image)) for image in pixels])
        notes += note_of_lookalikes(columns["id"], columns["split"], thumbnails)
    meta = {
        "schema": files.PARTIAL_SCHEMA if partial else files.SCHEMA,
        "dataset": raw.dataset,
        "image_size": image_size,
        "classes": raw.classes,
        "counts": {split: sum(item.split == split for item in items) for split in files.SPLITS},
        "rejected": rejected,
        "checksums": {name: sha256(scratch / name) for name in (files.ARRAY, files.INDEX)},
        "notes": notes,
        "source": raw.source,
    }
    later = {was: [item.id for item in items if item.added == was] for was in ("train", "unlabeled")}
    if any(later.values()):
        meta["added"] = later  # images whose labels were given later: `split` never hides these labels
    if grouped:
        meta["grouped"] = True  # the index has the groups
    if partial:
        meta["unknown"] = unknown  # numbers of unknown entries (image, class) of labelled images
    files.write_meta(scratch, meta)
    return meta


def _check_rejected(raw: RawSet, rejected: dict[int, str], max_rejected: float, destination: Path) -> None:
    """Raise DataError if too many images were rejected, and write a list of them."""
    listing = destination.with_name(f"{destination.name}.rejected.csv")
    listing.unlink(missing_ok=True)
    share = len(rejected) / max(len(raw.items), 1)
    remaining = {item.split for row, item in enumerate(raw.items) if row not in rejected}
    lost = [split for split in ("train", "test") if split not in remaining and any(item.split == split for item in raw.items)]
    if raw.items and share <= max_rejected and not lost:
        return
    if not rejected:
        raise DataError(f"{raw.dataset}: the raw data set lists no images; check data_root")
    entries = [(raw.items[row].path, reason) for row, reason in rejected.items()]
    with listing.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("path", "reason"), *entries])
    first = f"the first is {entries[0][0]}: {entries[0][1]}; all are listed in {listing}"
    if share <= max_rejected:
        raise DataError(f"{raw.dataset}: all listed images of split {lost[0]} were rejected; {first}")
    raise DataError(
        f"{raw.dataset}: {len(rejected)} of {len(raw.items)} images rejected ({share:.1%}), "
        f"more than convert.max_rejected ({max_rejected:.1%}); {first}; repair or remove them, or raise convert.max_rejected"
    )
