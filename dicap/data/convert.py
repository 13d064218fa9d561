"""A raw data set becomes resized images, an index and a description (`dicap.data.format`).

A small set is one file of images; a large one is written in shards (`dicap.data.shards`), which are finished one by one and
kept: a conversion that was killed goes on behind the last whole one, and one after an image was added converts one shard.
Several machines may make a shard each (`convert_shard`) before `convert` puts them together.

Everything is written into a hidden folder beside the destination, which takes the destination's name at the very end:
a killed or failed conversion leaves the earlier set as it was.
"""

import csv
import math
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from dicap.data import format as files
from dicap.data.kept import Kept
from dicap.data.resize import JPEG_QUALITY, results
from dicap.data.shards import Written, keys, shards_of, write_pixels
from dicap.data.sources.base import RawSet, unknown_entries
from dicap.data.sources.columns import Items
from dicap.errors import DataError
from dicap.files.artifacts import make_room, recover, swap_in
from dicap.machine.processes import cores
from dicap.machine.progress import progress

SHARD_SIZE = 16_384  # images of a shard on average, and at most of a set of one file; a shard has about 2.5 GB at 224 px


@dataclass(frozen=True)
class Plan:
    """The shards of a data set.

    Attributes:
        raw: the listed images, in columns.
        image_size, store: as `convert`.
        shards: rows of each; empty for a set of one file.
        keys: their names among those kept.
        kept: where finished shards lie.
    """

    raw: RawSet
    image_size: int
    store: str
    shards: list[range]
    keys: list[str]
    kept: Kept

    @staticmethod
    def of(raw: RawSet, *, image_size: int, store: str, shard_size: int, kept: Path, code: str) -> "Plan":
        """The plan of a conversion; looks at the files of all images of a set in shards, but reads none.

        Raises:
            DataError: two images have the same id.
        """
        raw = replace(raw, items=Items.of(raw.items))
        assert isinstance(raw.items, Items)
        repeated = raw.items.ids.repeated()
        if repeated is not None:
            count = sum(name == repeated for name in raw.items.ids)
            raise DataError(f"{raw.dataset}: image {repeated!r} is listed {count} times; keep one")
        shards = shards_of(raw.items.ids, shard_size)
        names = keys(raw, shards, image_size=image_size, store=store, code=code)
        return Plan(raw, image_size, store, shards, names, Kept(kept))

    @property
    def missing(self) -> list[int]:
        """Shards that nobody has finished."""
        return [i for i, key in enumerate(self.keys) if not self.kept.holds(key)]

    @property
    def items(self) -> Items:
        """The listed images."""
        assert isinstance(self.raw.items, Items)
        return self.raw.items


def convert(
    raw: RawSet,
    destination: Path,
    *,
    image_size: int,
    store: str = "array",
    max_rejected: float = 0.01,
    shard_size: int = SHARD_SIZE,
    kept: Path | None = None,
    code: str = "",
    workers: int | None = None,
) -> dict[str, Any]:
    """Convert a raw data set.

    Each image is decoded to RGB and resized to a square with Pillow's bilinear filter, the aspect ratio ignored
    (docs/methods.md 2.4). Files that cannot be decoded are left out, listed in meta.json with the reason.

    Args:
        raw: the listed images.
        destination: `data/converted`; replaced as a whole when everything has been written.
        image_size: side in pixels.
        store: array, or jpeg (re-encoded at quality 95, 4:4:4, for small disks; the loss is measured and recorded).
        max_rejected: share of rejected images above which the conversion fails.
        shard_size: images of a shard on average; a set of no more is one file.
        kept: where finished shards are kept; None: beside the destination.
        code: what stands for the code that makes the pixels; a shard made by other code is made again.
        workers: processes; None: one a core; 0: none.

    Returns:
        The content of meta.json.

    Raises:
        DataError: too many images were rejected, two have the same id, a split lost all its images, the disk is
            full, or another conversion into the same folder is going on.
    """
    kept = kept or destination.with_name(f".{destination.name}.shards")
    plan = Plan.of(raw, image_size=image_size, store=store, shard_size=shard_size, kept=kept, code=code)
    make_room(destination, folder=True)
    with _exclusive(destination) as scratch:
        with _trouble(destination):
            parts = _shards(plan, workers) if plan.shards else [_one_file(plan, scratch, workers)]
            meta = _describe(plan, parts, scratch, max_rejected, destination)
        swap_in(scratch, destination)
    plan.kept.clean(set(plan.keys))
    return meta


def convert_shard(plan: Plan, shard: int, workers: int | None) -> bool:
    """Convert one shard into the folder of those kept, for a `convert` later on; False if it is there already, and whole.

    Raises:
        DataError: the disk is full, or another process is converting it.
    """
    if plan.kept.whole(plan.keys[shard]):
        return False
    with _trouble(plan.kept.folder):
        _make(plan, [shard], workers)
    return True


def _shards(plan: Plan, workers: int | None) -> list[Written]:
    """All shards, of which those that are not whole are made."""
    with ThreadPoolExecutor(max(cores() if workers is None else workers, 1)) as pool:
        whole = list(progress(pool.map(plan.kept.whole, plan.keys), desc="shards kept", total=len(plan.keys), unit="shard"))
    _make(plan, [i for i, found in enumerate(whole) if not found], workers)
    return [Written.read(plan.kept.path(key), plan.kept.meta(key)) for key in plan.keys]


def _make(plan: Plan, shards: list[int], workers: int | None) -> None:
    """Make some shards, one after the other; the workers are busy with the next while the last is written."""
    spans = [plan.shards[i] for i in shards]
    found = results(plan.raw.images, spans, plan.image_size, plan.store == "jpeg", workers)
    shown = progress(found, desc=f"convert {plan.raw.dataset}", total=sum(map(len, spans)), unit="image")
    with closing(shown):
        for i, rows in zip(shards, spans, strict=True):
            with plan.kept.making(plan.keys[i], f"shard {i}") as folder:
                write_pixels(shown, len(rows), folder, image_size=plan.image_size, store=plan.store).note(folder)
        next(shown, None)  # an image is counted when the next one is asked for


def _one_file(plan: Plan, scratch: Path, workers: int | None) -> Written:
    n = len(plan.items)
    found = results(plan.raw.images, [range(n)], plan.image_size, plan.store == "jpeg", workers)
    with closing(progress(found, desc=f"convert {plan.raw.dataset}", total=n, unit="image")) as shown:
        written = write_pixels(shown, n, scratch, image_size=plan.image_size, store=plan.store)
        next(shown, None)
    return written


def _describe(plan: Plan, parts: list[Written], scratch: Path, max_rejected: float, destination: Path) -> dict[str, Any]:
    """Write the index and meta.json of a set whose pixels are written, and bring those of its shards."""
    raw, items = plan.raw, plan.items
    spans = plan.shards or [range(len(items))]
    rejected = [
        {"path": items[rows.start + row].path, "reason": reason}
        for rows, part in zip(spans, parts, strict=True)
        for row, reason in part.rejected.items()
    ]
    rows = np.concatenate([span.start + part.kept for span, part in zip(spans, parts, strict=True)])
    _judge(raw, rejected, rows, max_rejected, destination)
    kept = items if len(rows) == len(items) else items[rows]
    unknown = {name: _unknown(kept, name, len(raw.classes)) for name in ("train", "test")}
    partial = any(unknown.values())
    files.write_index(scratch / files.INDEX, _tables(plan, parts, spans), partial=partial)

    checksums: dict[str, str] = {}
    sizes: list[int] = []  # images of each shard
    if plan.shards:
        for key, part in zip(plan.keys, parts, strict=True):
            if not len(part.kept):
                continue
            for name, checksum in part.checksums.items():
                place = files.numbered(name, len(sizes))
                plan.kept.link(key, name, scratch / place)
                checksums[place] = checksum
            sizes.append(len(part.kept))
    else:
        checksums = dict(parts[0].checksums)
    checksums[files.INDEX] = files.sha256(scratch / files.INDEX)
    if files.OFFSETS in checksums:  # last, as in every earlier set: equal sets are equal bytes
        checksums[files.OFFSETS] = checksums.pop(files.OFFSETS)
    notes = list(raw.notes)
    if rejected:
        notes.append(f"{len(rejected)} images were rejected, so the split differs from one drawn with them")
    schema = files.PARTIAL_SCHEMA if partial else files.SCHEMA
    meta = {
        "schema": files.SHARDED_SCHEMA if plan.shards else schema,
        "dataset": raw.dataset,
        "image_size": plan.image_size,
        "store": plan.store,
        "classes": raw.classes,
        "counts": {name: int(kept.where("split", name).sum()) for name in files.SPLITS},
        "rejected": rejected,
        "checksums": checksums,
        "hidden_labels": kept.table["labels"].null_count == 0,
        "notes": notes,
        "source": raw.source,
    }
    if plan.shards:
        meta["shards"] = sizes
    later = {was: kept.ids[kept.where("added", was)].tolist() for was in ("train", "unlabeled")}
    if any(later.values()):
        meta["added"] = later  # labels given later: `split` never hides them
    if partial:
        meta["unknown"] = unknown  # entries (image, class) of which nothing is known, of the labelled images
    if plan.store == "jpeg":
        mean = sum(part.error for part in parts) / (len(rows) * plan.image_size**2 * 3)
        meta["fidelity"] = {
            "quality": JPEG_QUALITY,
            "rms_difference": round(math.sqrt(mean), 4),
            "psnr_db": round(10 * math.log10(255**2 / max(mean, 1e-12)), 2),
        }
    files.write_meta(scratch, meta)
    return meta


def _tables(plan: Plan, parts: Iterable[Written], spans: list[range]) -> Iterator[pa.Table]:
    """The index of each shard."""
    for rows, part in zip(spans, parts, strict=True):
        items, sizes = plan.items[rows.start : rows.stop][part.kept], part.sizes[part.kept]
        if len(items):
            table = items.table.append_column("width", pa.array(sizes[:, 0]))
            yield table.append_column("height", pa.array(sizes[:, 1]))


def _unknown(items: Items, split: str, classes: int) -> int:
    return unknown_entries(classes, items[items.where("split", split) & items.table["absent"].is_valid().to_numpy()])


def _judge(raw: RawSet, rejected: list[dict[str, str]], kept: np.ndarray, max_rejected: float, destination: Path) -> None:
    """Fail if too much was rejected, leaving a list of what it was."""
    listing = destination.with_name(f"{destination.name}.rejected.csv")
    listing.unlink(missing_ok=True)
    share = len(rejected) / max(len(raw.items), 1)
    assert isinstance(raw.items, Items)
    listed, left = (
        {split for split in files.SPLITS if part.where("split", split).any()} for part in (raw.items, raw.items[kept])
    )
    lost = [split for split in ("train", "test") if split in listed and split not in left]
    if raw.items and share <= max_rejected and not lost:
        return
    if not rejected:
        raise DataError(f"{raw.dataset}: the raw data set lists no images; check data_root")
    with listing.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["path", "reason"])
        writer.writeheader()
        writer.writerows(rejected)
    first = f"the first is {rejected[0]['path']}: {rejected[0]['reason']}; all are listed in {listing}"
    if share <= max_rejected:
        raise DataError(f"{raw.dataset}: no image of split {lost[0]} is left of those listed; {first}")
    raise DataError(
        f"{raw.dataset}: {len(rejected)} of {len(raw.items)} images rejected ({share:.1%}), "
        f"more than convert.max_rejected ({max_rejected:.1%}); {first}; repair or remove them, or raise convert.max_rejected"
    )


@contextmanager
def _trouble(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{place}: {error.strerror or error}; make room or choose another disk") from None
    except BrokenProcessPool:
        raise DataError(f"{place}: a worker process was killed (often the memory is full); convert with --workers 0") from None


class _exclusive:
    """The scratch folder beside `destination`, empty, held under a lock; removed on the way out."""

    def __init__(self, destination: Path) -> None:
        self._destination = destination
        self._scratch = destination.with_name(f".{destination.name}.converting")

    def __enter__(self) -> Path:
        import fcntl

        self._lock = self._destination.with_name(f".{self._destination.name}.lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            raise DataError(f"{self._destination}: another `dicap-stage convert` is writing it; wait for its end") from None
        recover(self._destination)
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        return self._scratch

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._lock.close()  # the file stays: removing it would let a third process lock a new one
