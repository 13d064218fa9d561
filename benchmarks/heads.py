"""Which head on frozen features: the linear one, solved or by steps, ML-Decoder of two widths, and whether more steps help.

    python benchmarks/heads.py --data FOLDER [--ratios 0.05 0.1 0.2] [--seeds 1 2] [--only NAME ...]

FOLDER holds photographs with labels.csv, as the data set `table` takes them; conversion and features as in photographs.py, of
configs/table.yaml, and kept in --cache. Each head is trained on the labelled images alone (the stage `warmup`). Its mAP is that
of the *training* images whose labels the ratio hides: settings are chosen by it, and no test label is read here.

    solved            the linear head at its minimum (method bce, linear.solver convex)
    solved_root       the same on signed roots (linear.features root), as `protocol: recommended`
    linear_steps      the linear head by steps with the asymmetric loss (method asl)
    decoder_256       ML-Decoder, 256 wide with 512 in its feed-forward layer (method mld)
    decoder_768       768 and 2,048, as published
    *_twice           twice warmup.epochs: what a longer training would add

Steps are taken with configs/table.yaml's warmup.epochs and optimiser.lr, unless --epochs and --lr name others to try.

Writes heads.json among the results and ends with `heads ratio=R target=1`, R: (mAP of decoder_256 + 0.5) over that of
decoder_768, the smallest over ratios; what was not run is left out. Exits 1 below it, or if twice the steps add 0.5 or more.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from common import Parser, finish
from made_up import ROOT
from photographs import SMOKE, Place, warmup_maps

TARGET, SLACK = 1.0, 0.5
STEPS = {"linear.solver": "steps"}
WIDE = {"network.decoder_dim": 768, "network.decoder_ffn": 2048}
NARROW = {"network.decoder_dim": 256, "network.decoder_ffn": 512}
HEADS: dict[str, dict[str, Any]] = {
    "solved": {"method": "bce", "head": "linear", "linear.features": "plain"},
    "solved_root": {"method": "bce", "head": "linear", "linear.features": "root"},
    "linear_steps": STEPS | {"method": "asl", "head": "linear", "linear.features": "standard"},
    "decoder_256": STEPS | NARROW | {"method": "mld", "head": "ml_decoder"},
    "decoder_256_twice": STEPS | NARROW | {"method": "mld", "head": "ml_decoder"},
    "decoder_768": STEPS | WIDE | {"method": "mld", "head": "ml_decoder"},
    "decoder_768_twice": STEPS | WIDE | {"method": "mld", "head": "ml_decoder"},
}
TWICE = "_twice"


def cell(place: Place, name: str, ratio: float, seed: int, epochs: int, lr: float) -> dict[str, Any]:
    """mAP on the training images without labels, of the network in training and of its average, and seconds."""
    epochs *= 2 if name.endswith(TWICE) else 1
    changes = HEADS[name] | {"warmup.epochs": epochs, "warmup.eval_every": epochs, "optimiser.lr": lr}
    experiment = place.experiment(changes, ratio, seed)
    with tempfile.TemporaryDirectory() as scratch:
        maps, seconds = warmup_maps(place, experiment, experiment.roles.unlabeled, Path(scratch))
    return {"head": name, "ratio": ratio, "seed": seed, "epochs": epochs, "lr": lr, "map": maps, "seconds": seconds}


def table_of(cells: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """{head: {ratio: means over seeds}}."""
    table: dict[str, dict[str, dict[str, float]]] = {}
    for name, ratio in dict.fromkeys((found["head"], found["ratio"]) for found in cells):
        some = [found for found in cells if (found["head"], found["ratio"]) == (name, ratio)]
        row = {f"map_{which}": round(float(np.mean([found["map"][which] for found in some])), 2) for which in some[0]["map"]}
        table.setdefault(name, {})[str(ratio)] = row | {"seconds": round(float(np.mean([f["seconds"] for f in some])), 1)}
    return table


def main() -> int:
    """Train, compare, write."""
    given = Parser(__doc__, "heads", ratios=[0.4], seeds=[1], only=["solved", "decoder_256", "decoder_256_twice", "decoder_768"])
    given.add_argument("--data", type=Path, help="folder of photographs with labels.csv; not needed at toy size")
    given.add_argument("--ratios", type=float, nargs="+", default=[0.05, 0.1, 0.2])
    given.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    given.add_argument("--epochs", type=int, help="instead of configs/table.yaml's warmup.epochs")
    given.add_argument("--lr", type=float, help="instead of configs/table.yaml's optimiser.lr")
    given.add_argument("--only", nargs="+", choices=list(HEADS), default=list(HEADS), metavar="NAME", help="heads to train")
    given.add_argument("--cache", type=Path, default=ROOT / ".dicap" / "photographs", help="where the features are kept")
    options = given.options()
    if options.data is None and not options.smoke:
        given.error("--data: name a folder of photographs with labels.csv")
    common = SMOKE | {"warmup.epochs": 2} if options.smoke else {"features.views": 4}
    with tempfile.TemporaryDirectory() as scratch:
        place = Place(Path(scratch) if options.smoke else options.cache, options.data, common)
        own = place.settings({})
        epochs, lr = options.epochs or own.warmup.epochs, options.lr or own.optimiser.lr
        cells = []
        for seed in options.seeds:
            for ratio in options.ratios:
                for name in options.only:
                    cells.append(cell(place, name, ratio, seed, epochs, lr))
                    print(cells[-1], flush=True)
        counts = {"images": place.store.n, "classes": len(place.store.classes)}
    table = table_of(cells)
    best = {
        name: {r: max(v for k, v in row.items() if k != "seconds") for r, row in rows.items()} for name, rows in table.items()
    }
    gains = {
        name: {ratio: round(value - best[name.removesuffix(TWICE)][ratio], 2) for ratio, value in rows.items()}
        for name, rows in best.items()
        if name.endswith(TWICE) and name.removesuffix(TWICE) in best
    }
    widths = [(best["decoder_256"][r] + SLACK) / max(best["decoder_768"][r], 1e-9) for r in best.get("decoder_768", {})]
    for name, rows in table.items():
        print(f"{name:20}" + "  ".join(f"{r}: {best[name][r]:6.2f} ({row['seconds']:.1f} s)" for r, row in rows.items()))
    result = counts | {
        "seeds": options.seeds,
        "settings": HEADS,
        "table": table,
        "gain_of_twice_the_steps": gains,
        "cells": cells,
    }
    plateau = all(gain < SLACK for rows in gains.values() for gain in rows.values())
    return finish("heads", result, min(widths, default=1.0), TARGET, options, quick=plateau)


if __name__ == "__main__":
    sys.exit(main())
