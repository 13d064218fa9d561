"""Does `dicap-stage review` find wrong labels? Planted among labelled photographs, for several draws, beside cleanlab's ranking.

For each draw: `--labelled` photographs of the training split; in `--wrong` of them, of those that bear a label at all, the labels
are spoiled in one of four ways: a label too many (added), one lost (dropped), one taken for another (replaced), or all those of
another photograph (swapped). Scores are those of `leave_one_out`; counted are the spoiled photographs among the first `--shown`.
The labels of a real data set hold errors of their own, which count as misses here.

    python benchmarks/review.py /path/to/photographs --out benchmarks/results/review.json
    python benchmarks/review.py --smoke          seconds, on generated features, to see that it runs

cleanlab (pip install cleanlab) is compared where it is installed.
"""

import argparse
import importlib.util
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import nn

from dicap import artifacts
from dicap.data.convert import convert
from dicap.data.labels import read_labels
from dicap.data.sources import read_raw
from dicap.data.store import Store
from dicap.network import build_network
from dicap.runtime import Runtime
from dicap.settings import Own, load_settings
from dicap.use.review import PENALTY, doubts, features_of, leave_one_out

ROOT = Path(__file__).parents[1]
KINDS = ("added", "dropped", "replaced", "swapped")
RESULT = ROOT / "benchmarks" / "results" / "review.json"
PENALTIES = (1.0, 3.0, PENALTY, 30.0)


def main() -> None:
    """Run and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photographs", type=Path, nargs="?", help="a folder with labels.csv (image, split, labels)")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 21)))
    parser.add_argument("--labelled", type=int, default=450)
    parser.add_argument("--wrong", type=int, default=20)
    parser.add_argument("--shown", type=int, default=40)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--smoke", action="store_true", help="two draws on generated features; no result is overwritten")
    options = parser.parse_args()
    if options.smoke:
        options.seeds = [1, 2]
        features, labels = generated()
    elif options.photographs is None:
        parser.error("name a folder of labelled photographs, or --smoke")
    else:
        features, labels = photographs(options.photographs)
    found = compare(features, labels, options)
    print(json.dumps(found, indent=2))
    if not options.smoke or options.out != RESULT:
        artifacts.write_json(found, options.out)


def photographs(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features (N, D) and labels (N, C) of the training split, by EfficientNet-Lite0 with ImageNet weights at 128 px."""
    settings = load_settings(ROOT / "params.yaml").model_copy(
        update={"backbone": "tf_efficientnet_lite0", "backbone_weights": "lite", "image_size": 128}
    )
    settings = settings.model_copy(update={"network": settings.network.model_copy(update={"normalize": "half", "stride": 32})})
    with tempfile.TemporaryDirectory() as place:
        own = Own(format="table", unlabeled_root=None, test_share=0.0, added=None)
        convert(read_raw("table", folder.resolve(), 128, own), Path(place) / "set", image_size=128, workers=0)
        store = Store.open(Path(place) / "set")
        rows = np.flatnonzero(store.index["split"].to_numpy() == "train")
        network = build_network(settings, len(store.classes), make_head=lambda channels: nn.Identity())
        return features_of(network, store, rows, Runtime.choose()), read_labels(store.folder, rows)


def generated() -> tuple[np.ndarray, np.ndarray]:
    """Features of 600 made-up images, a direction a class, and their labels."""
    rng = np.random.default_rng(0)
    labels = (rng.random((600, 8)) < 0.2).astype(np.uint8)
    return labels @ rng.normal(size=(8, 40)) + rng.normal(size=(600, 40)), labels


def spoiled(labels: np.ndarray, kind: str, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Labels with `count` rows made wrong, and which rows."""
    wrong = labels.copy()
    bearing = np.flatnonzero(labels.any(1))
    rows = rng.choice(bearing, count, replace=False)
    for row in rows:
        extra = rng.choice(np.flatnonzero((labels[row] == 0) & labels.any(0)))
        lost = rng.choice(np.flatnonzero(labels[row]))
        if kind in ("added", "replaced"):
            wrong[row, extra] = 1
        if kind in ("dropped", "replaced"):
            wrong[row, lost] = 0
        if kind == "swapped":
            others = bearing[(labels[bearing] != labels[row]).any(1)]
            wrong[row] = labels[rng.choice(others)]
    return wrong, rows


def rankings() -> dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """Functions from scores and labels to rows, the most suspicious first."""
    found: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
        "review": lambda scores, labels: np.array([doubt.row for doubt in doubts(scores, labels)]),
        "least likely entry": lambda scores, labels: np.argsort(np.where(labels, scores, 1 - scores).min(1), kind="stable"),
    }
    if importlib.util.find_spec("cleanlab"):
        from cleanlab.multilabel_classification import get_label_quality_scores

        def cleanlab(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
            quality = get_label_quality_scores([np.flatnonzero(row).tolist() for row in labels], np.clip(scores, 1e-6, 1 - 1e-6))
            return np.argsort(quality, kind="stable")

        found["cleanlab"] = cleanlab
    return found


def compare(features: np.ndarray, labels: np.ndarray, options: argparse.Namespace) -> dict:
    """Spoiled rows found, by kind, penalty and ranking."""
    counts: dict[str, dict[str, dict[str, list[int]]]] = {kind: {} for kind in KINDS}
    for seed in options.seeds:
        rng = np.random.default_rng(seed)
        rows = rng.choice(len(features), options.labelled, replace=False)
        for kind in KINDS:
            wrong, planted = spoiled(labels[rows], kind, options.wrong, rng)
            for penalty in PENALTIES:
                scores = leave_one_out(features[rows], wrong, penalty)
                for name, rank in rankings().items():
                    hits = int(np.isin(rank(scores, wrong)[: options.shown], planted).sum())
                    counts[kind].setdefault(f"penalty {penalty:g}", {}).setdefault(name, []).append(hits)
    what = f"of {options.wrong} wrong labels among {options.labelled}, found in the first {options.shown}"
    return {
        "what": f"{what}; {len(options.seeds)} draws",
        "mean": {
            kind: {penalty: {name: float(np.mean(hits)) for name, hits in names.items()} for penalty, names in by.items()}
            for kind, by in counts.items()
        },
        "draws_with_half": {
            kind: {name: int((2 * np.array(hits) >= options.wrong).sum()) for name, hits in by[f"penalty {PENALTY:g}"].items()}
            for kind, by in counts.items()
        },
        "draws": {kind: by[f"penalty {PENALTY:g}"] for kind, by in counts.items()},
    }


if __name__ == "__main__":
    main()
