"""Converted sets and features in shards: memory that does not grow with the set, one shard rewritten, reading as from one file.

Images are made up from their number (`--size`, 32 px), so that nothing but this project's own work is measured. Each kind of
process is measured at the number of images and at a tenth of it: the one that converts, its workers, one that reads every image
as a loader's worker does, and one that computes features with a tiny network. Then one image is added in the middle. Reading is
timed against a set of one file with the same images, the two taking turns, at 224 px, which is judged, and at the size of the
made-up images."""

import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Parser, finish, median_ratio, take_turns
from made_up import settings
from PIL import Image

from dicap.data.convert import convert
from dicap.data.kept import Kept
from dicap.data.sources.base import Item, RawSet
from dicap.data.sources.columns import Items
from dicap.data.store import Store
from dicap.features.compute import fill, gather, shard_key, shard_stage
from dicap.features.recipe import Recipe, pretrained_network

TARGET = 0.9  # of the images/s from one file
FLAT = 1.1  # of the memory at a tenth of the images
BATCH = 256
ENGINE = {"name": "torch"}


class MadeUp:
    """Image i, drawn from its number; where one was `added`, those behind it are the same as before."""

    def __init__(self, size: int, added: int | None = None) -> None:
        self._size, self._added = size, added

    def number(self, i: int) -> int:
        """The number that image i has without the added one."""
        return i if self._added is None or i < self._added else -1 if i == self._added else i - 1

    def read(self, i: int) -> Image.Image:
        """Noise."""
        pixels = np.random.default_rng(self.number(i) + 1).bytes(self._size**2 * 3)
        return Image.frombytes("RGB", (self._size, self._size), pixels)

    def mark(self, i: int) -> str:
        """Its number says it all."""
        return str(self.number(i))


def made_up(n: int, size: int, added: int | None = None) -> RawSet:
    """`n` images, and one more where one is added."""
    images = MadeUp(size, added)

    def items() -> Iterator[Item]:
        for i in range(n + (added is not None)):
            name = f"photograph-{images.number(i):08d}.jpg"
            yield Item(name, f"folder/{name}", "test" if i % 10 == 9 else "train", (i % 20,))

    return RawSet("made-up", [f"class {c}" for c in range(20)], Items.of(items()), images)


def convert_apart(place: Path, n: int, size: int, shard: int, added: int | None) -> dict[str, Any]:
    """Convert in this process and its workers; MiB at the peak of either, seconds, shards, and images read."""
    begin = time.perf_counter()
    raw = made_up(n, size, added)
    meta = convert(raw, place / "set", image_size=size, shard_size=shard, kept=place / "kept", workers=2)
    return {
        "converting": peak(resource.RUSAGE_SELF),
        "worker": peak(resource.RUSAGE_CHILDREN),
        "seconds": time.perf_counter() - begin,
        "shards": len(meta["shards"]),
    }


def read_apart(place: Path) -> dict[str, Any]:
    """Read all images in random order; MiB of memory of the process's own (the images' pages are the system's)."""
    store = Store.open(place / "set")
    rows, highest = np.random.default_rng(0).permutation(store.n), 0.0
    for start in range(0, store.n, BATCH):
        store.read_channels_last(rows[start : start + BATCH])
        highest = max(highest, own_memory()) if start % (64 * BATCH) == 0 else highest
    highest = max(highest, own_memory())
    return {"reading": highest, "with names": max(highest, own_memory() if store.ids[0] else 0.0)}


def features_apart(place: Path, size: int) -> dict[str, Any]:
    """Compute the features of all shards with a tiny network; MiB at the peak of this process's own memory."""
    s = settings(
        place, {"dataset": "table", "data_root": ".", "backbone": "test_resnet.r160_in1k", "backbone_weights": "random"}
        | {"image_size": size, "features.tiles": "none", "features.grid": 1},
    )  # fmt: skip
    store, network = Store.open(place / "set"), pretrained_network(s)
    recipe, kept, keys, highest = replace(Recipe.of(s, store, network), views=0), Kept(place / "kept-features"), [], 0.0
    for number in range(store.shards):
        shard = Store.open(store.folder, number)
        of_shard = recipe.of_shard(shard)
        keys.append(shard_key(of_shard, ENGINE))
        if not kept.whole(keys[-1]):
            fill(place / "working", of_shard, shard, network, engine=ENGINE, stage=shard_stage(of_shard), workers=0)
            kept.take(keys[-1], place / "working")
        highest = max(highest, own_memory())
    gather(place / "features", recipe, kept, keys, store.meta["shards"], engine=ENGINE)
    return {"features": max(highest, own_memory())}


def peak(who: int) -> float:
    """MiB at the peak, of this process or of the largest of its children."""
    return resource.getrusage(who).ru_maxrss / 1024


def own_memory() -> float:
    """MiB that this process holds for itself alone, files that it has mapped left out."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def apart(work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What one of the three above finds in a process of its own."""
    context = multiprocessing.get_context("fork")  # nothing is imported again
    here, there = context.Pipe(duplex=False)

    def run() -> None:
        torch.set_num_threads(1)
        there.send(work(*arguments))

    process = context.Process(target=run)
    process.start()
    there.close()
    found = here.recv()
    process.join()
    return found


def memory(place: Path, n: int, size: int, shard: int) -> dict[str, Any]:
    """What each kind of process held at its peak, in MiB."""
    place.mkdir()
    found = apart(convert_apart, place, n, size, shard, None) | apart(read_apart, place) | apart(features_apart, place, size)
    return {name: round(value, 1) for name, value in found.items()}


def one_more(place: Path, n: int, size: int, shard: int) -> dict[str, Any]:
    """What is written anew when one image is added in the middle."""
    files = {part: {path.stat().st_ino for path in (place / part).glob("*-0*.npy")} for part in ("set", "features")}
    again = apart(convert_apart, place, n, size, shard, n // 2)
    apart(features_apart, place, size)
    new = {part: len({path.stat().st_ino for path in (place / part).glob("*-0*.npy")} - files[part]) for part in files}
    return {"files of pixels": new["set"], "files of features": new["features"], "seconds": round(again["seconds"], 1)}


def reading(place: Path, n: int, size: int, shard: int, rounds: int) -> dict[str, Any]:
    """Images a second from shards and from one file, of all in batches, at random as in training and in order as in scoring."""
    raw = made_up(n, size)
    for name, length in (("shards", shard), ("one", n)):
        convert(raw, place / name, image_size=size, shard_size=length, workers=0)
    stores = {name: Store.open(place / name) for name in ("shards", "one")}
    orders = {"random": np.random.default_rng(0).permutation(n), "in order": np.arange(n)}
    times = max(2**17 // (n * size // 32), 1)
    found: dict[str, Any] = {"images": n, "shards": stores["shards"].shards, "same": True}

    def all_of(store: Store, batches: list[np.ndarray]) -> None:
        for batch in batches * times:
            store.read_channels_last(batch)

    for order, rows in orders.items():
        batches = [rows[i : i + BATCH] for i in range(0, n, BATCH)]
        found["same"] &= all((stores["shards"].pixels(batch) == stores["one"].pixels(batch)).all() for batch in batches)
        seconds = take_turns({name: lambda store=store, b=batches: all_of(store, b) for name, store in stores.items()}, rounds)
        found[order] = {name: round(times * n / float(np.median(of))) for name, of in seconds.items()}
        found[order]["ratio"] = round(median_ratio(seconds["one"], seconds["shards"]), 3)
    return found


def main() -> int:
    """Measure, write, and say whether all targets are reached."""
    parser = Parser(__doc__, "shards", images=2000, shard=50, large=32, few=256)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=32, help="side of the images in pixels")
    parser.add_argument("--shard", type=int, default=2048, help="images of a shard on average")
    parser.add_argument("--large", type=int, default=224, help="side of the images in pixels for which reading is judged")
    parser.add_argument("--few", type=int, default=4096, help="their number")
    chosen = parser.options()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        held = {n: memory(place / str(n), n, chosen.size, chosen.shard) for n in (chosen.images // 10, chosen.images)}
        added = one_more(place / str(chosen.images), chosen.images, chosen.size, chosen.shard)
        large = reading(place / "large", chosen.few, chosen.large, max(chosen.few // 40, 2), chosen.rounds)
        small = reading(place / "small", chosen.images // 5, chosen.size, chosen.shard // 5, chosen.rounds)
    few, many = held.values()
    kinds = ("converting", "worker", "reading", "with names", "features")
    growth = {name: round(many[name] / few[name], 3) for name in kinds}
    one_shard = added["files of pixels"] == 1 and added["files of features"] == 2  # plain and mirrored
    for name in kinds:
        print(f"{name:11} {few[name]:>8.1f} MiB, {many[name]:.1f} MiB with ten times the images: {growth[name]:.2f}")
    print(f"one image more: {added['files of pixels']} file of pixels written anew, {added['seconds']} s of {many['seconds']}")
    for side, found in ((chosen.size, small), (chosen.large, large)):
        ratios = " and ".join(f"{found[order]['ratio']:.2f} {order}" for order in ("random", "in order"))
        print(f"reading at {side} px: {ratios} of one file's images/s")
    result = {"images": list(held), "size": chosen.size, "shard": chosen.shard, "memory_mib": held, "growth": growth}
    result |= {"one_image_more": added, "reading": {str(chosen.large): large, str(chosen.size): small}}
    flat = max(growth.values()) <= FLAT
    same = large["same"] and small["same"] and one_shard
    ratio = min(large[order]["ratio"] for order in ("random", "in order"))
    return finish("shards", result, ratio, TARGET, chosen, same=same, quick=flat)


if __name__ == "__main__":
    sys.exit(main())
