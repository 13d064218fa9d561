"""Which frozen backbone, at which image size and grid: what its features cost and what they give.

    python benchmarks/sizes.py --data FOLDER [FOLDER ...] [--networks NAME@SIZE ...] [--grids 1 2 4] [--seeds 1 2 3]

A FOLDER holds photographs with labels.csv, as the data set `table` takes them, converted at each size and kept in --cache. Heads
are trained on the labelled images alone (the stage `warmup`, configs/table.yaml). Their mAP is that of *training* images whose
labels the ratio hides: settings are chosen by it, and no test label is read here.

    network, size   the linear head, solved on signed roots as `protocol: recommended` does, on the mean of the map
    grid            ML-Decoder of 256/512 by steps, with a bank of 4 strong views, Lite0 at --decoder-size, pooled to grid x grid

Seconds are those of the features of all images (one view for a solved head, six for ML-Decoder) and of a head's training; bytes
are those of an image's features on disk.

Writes sizes.json among the results and ends with `sizes ratio=R target=1`, R: (mAP of the default network and size + 0.5) over
the best of what costs no more seconds, the smallest over sets and ratios. Exits 1 below it.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from common import Parser, finish
from heads import HEADS
from made_up import ROOT
from photographs import SMOKE, Place, warmup_maps

TARGET, SLACK = 1.0, 0.5
VIEWS = 4
DEFAULT = "tf_efficientnet_lite0@224"  # image_size as published, which configs/table.yaml keeps
NETWORKS = [f"tf_efficientnet_{one}" for one in ("lite0@128", "lite0@160", "lite0@224", "lite0@288", "lite1@240", "lite2@260")]


def measured(place: Place, head: str, ratios: list[float], seeds: list[int], epochs: dict[str, int]) -> dict[str, Any]:
    """Of one choice of features: seconds, bytes, and of each ratio the mAP of each seed, the better of network and average."""
    row: dict[str, Any] = {"head": head, "features_seconds": round(place.seconds, 1), "bytes": place.bank.recipe.bytes_per_image}
    spent = []
    for ratio in ratios:
        maps = []
        for seed in seeds:
            experiment = place.experiment(HEADS[head] | epochs, ratio, seed)
            with tempfile.TemporaryDirectory() as scratch:
                found, seconds = warmup_maps(place, experiment, experiment.roles.unlabeled, Path(scratch))
            maps.append(max(found.values()))
            spent.append(seconds)
        row[str(ratio)] = maps
    return row | {"head_seconds": round(float(np.mean(spent)), 1)}


def main() -> int:
    """Convert, compute, train, write."""
    toy = [f"{SMOKE['backbone']}@{size}" for size in (32, 48)]
    given = Parser(__doc__, "sizes", networks=toy, grids=[1, 2], decoder_size=32, ratios=[0.4], seeds=[1])
    given.add_argument("--data", type=Path, nargs="+", help="folders of photographs with labels.csv; not needed at toy size")
    given.add_argument("--networks", nargs="+", default=NETWORKS, help="timm's name, @ and the side in pixels")
    given.add_argument("--grids", type=int, nargs="*", default=[1, 2, 4], help="of ML-Decoder's features")
    given.add_argument("--decoder-size", type=int, default=128, help="side in pixels for the grids")
    given.add_argument("--ratios", type=float, nargs="+", default=[0.05, 0.1])
    given.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    given.add_argument("--cache", type=Path, default=ROOT / ".dicap" / "sizes", help="where sets and features are kept")
    options = given.options()
    if options.data is None and not options.smoke:
        given.error("--data: name folders of photographs with labels.csv")
    epochs = {"warmup.epochs": 1, "warmup.eval_every": 1} if options.smoke else {}
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        cache = Path(scratch) if options.smoke else options.cache

        def add(data: Path | None, backbone: str, size: int, head: str, **features: Any) -> None:
            name = data.name if data else "toy"
            common = HEADS[head] | (SMOKE if options.smoke else {}) | {"backbone": backbone, "image_size": size}
            common |= {f"features.{key}": value for key, value in features.items()}
            place = Place(cache / name / str(size), data, common)
            what = {"set": name, "network": f"{backbone}@{size}", "images": place.store.n, **features}
            rows.append(what | measured(place, head, options.ratios, options.seeds, epochs))
            print(rows[-1], flush=True)

        for data in options.data or [None]:
            for network in options.networks:
                backbone, _, size = network.partition("@")
                add(data, backbone, int(size), "solved_root", views=0)
            for grid in options.grids:
                add(data, options.networks[0].partition("@")[0], options.decoder_size, "decoder_256", views=VIEWS, grid=grid)
    judged = []
    for default in (row for row in rows if row["network"] == DEFAULT and row["head"] == "solved_root"):
        rivals = [row for row in rows if row["set"] == default["set"] and row["head"] == default["head"]]
        rivals = [row for row in rivals if row["features_seconds"] <= default["features_seconds"]]
        judged += [(np.mean(default[key]) + SLACK) / max(np.mean(row[key]) for row in rivals) for key in map(str, options.ratios)]
    for row in rows:
        maps = "  ".join(f"{ratio}: {np.mean(row[str(ratio)]):6.2f}" for ratio in options.ratios)
        what = f"{row['set']}, {row['network']}, {row['head']}" + (f", grid {row['grid']}" if "grid" in row else "")
        cost = f"features {row['features_seconds']:.0f} s, {row['bytes']} bytes an image, head {row['head_seconds']} s"
        print(f"{what:60}{maps}  {cost}")
    return finish("sizes", {"rows": rows, "seeds": options.seeds}, float(min(judged, default=1.0)), TARGET, options)


if __name__ == "__main__":
    sys.exit(main())
