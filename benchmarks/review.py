"""Does `dicap-stage review` find wrong labels? Planted among labelled photographs, for several draws, beside other rankings.

For each draw: `--labelled` photographs of the training split; in `--wrong` of them, of those that bear a label at all, the labels
are spoiled in one of four ways: a label too many (added), one lost (dropped), one taken for another (replaced), or all those of
another photograph (swapped). Counted are the spoiled photographs among the first `--shown`. The labels of a real data set hold
errors of their own, which count as misses here.

    python benchmarks/review.py FOLDER --out benchmarks/results/review.json
    python benchmarks/review.py --smoke          seconds, on generated features, to see that it runs

FOLDER is a project in which `dvc repro features` has run on one's own photographs: its converted set and its features are read.

Scores: `review`, those of `out_of_fold` with the neighbours of each photograph among all; `alone`, the same without neighbours;
`ridge`, of ridge regression without neighbours, each photograph left out in turn.
Ranks: `review`, that of `doubts`; `sum`, the worst entry of both kinds in full; `worst`, the single worst entry; `least`, the
least likely entry, which is also the order of the smallest normalised margin; `total`, the likelihood of all entries; and
cleanlab's two ways to put the entries' self-confidence together (pip install cleanlab), where it is installed.
`LOSS_WEIGHT`, `SHARE` and `ABSENT` of dicap/photos/review.py were chosen on these draws.
"""

import argparse
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dicap.data.format import read_index
from dicap.data.labels import read_labels
from dicap.data.store import Store
from dicap.files.json_files import write_json
from dicap.frozen.features.bank import FeatureBank
from dicap.frozen.inputs import BankFeatures
from dicap.photos import review
from dicap.photos.review import among_neighbours, doubts, entry_surprise, out_of_fold, scaled

ROOT = Path(__file__).parents[1]
KINDS = ("added", "dropped", "replaced", "swapped")
RESULT = ROOT / "benchmarks" / "results" / "review.json"
RIDGE = 10.0  # mean squared lengths of a feature vector: the best of 1, 3, 10 and 30 on draws 1 to 20


def main() -> None:
    """Run and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", type=Path, nargs="?", help="a folder with data/converted and artifacts/features")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 41)))
    parser.add_argument("--labelled", type=int, default=450)
    parser.add_argument("--wrong", type=int, default=20)
    parser.add_argument("--shown", type=int, default=40)
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--smoke", action="store_true", help="two draws on generated features; no result is overwritten")
    options = parser.parse_args()
    if options.smoke:
        options.seeds, options.labelled = [1, 2], 120
        features, labels = generated()
    elif options.project is None:
        parser.error("name a project folder with features of labelled photographs, or --smoke")
    else:
        features, labels = photographs(options.project)
    found = compare(features, labels, options)
    print(json.dumps(found, indent=2))
    if not options.smoke or options.out != RESULT:
        write_json(found, options.out)


def photographs(project: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features (N, D) and labels (N, C) of the training split."""
    store, bank = Store.open(project / "data" / "converted"), FeatureBank.open(project / "artifacts" / "features")
    rows = np.flatnonzero(read_index(store.folder)["split"].to_numpy() == "train")
    return BankFeatures(bank, seed=1, flip=0.5).mean(rows), read_labels(store.folder, rows)


def generated() -> tuple[np.ndarray, np.ndarray]:
    """Features of 300 made-up images, a direction a class, and their labels."""
    rng = np.random.default_rng(0)
    labels = (rng.random((300, 5)) < 0.2).astype(np.uint8)
    return labels @ rng.normal(size=(5, 40)) + rng.normal(size=(300, 40)), labels


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


def scorers(features: np.ndarray) -> dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """Functions from rows and labels to scores (n, C) that know no label of their own row."""
    everything, alone = among_neighbours(features), scaled(features)
    return {
        "review": lambda rows, labels: out_of_fold(everything[rows], labels),
        "alone": lambda rows, labels: out_of_fold(alone[rows], labels),
        "ridge": lambda rows, labels: ridge(features[rows], labels),
    }


def ridge(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Scores (n, C) of each image by ridge regression on all the others, on signed roots of length 1.

    The residual of an image left out is its residual in the fit to all, divided by 1 - h, with h the weight of its own label in
    its fitted value (Allen, Technometrics 1974): one fit stands for n.
    """
    z = np.sign(features) * np.sqrt(np.abs(features.astype(np.float64)))
    z /= np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-12)
    z -= z.mean(0)  # (n, D)
    n, y = len(z), labels.astype(np.float64)
    smooth = np.linalg.solve(z @ z.T + RIDGE * (z**2).sum() / n * np.eye(n), z @ z.T)  # (n, n)
    fitted, own = y.mean(0) + smooth.T @ (y - y.mean(0)), (np.diag(smooth) + 1 / n)[:, None]
    return np.clip((fitted - own * y) / (1 - own), 0, 1)


def rankings() -> dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """Functions from scores and labels to the suspicion of each row, (n,)."""

    def worst(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The worst entry among the classes a row bears, and among the others."""
        entries, y = entry_surprise(scores, labels), labels.astype(bool)
        return np.where(y.any(1), np.where(y, entries, -np.inf).max(1), 0.0), np.where(y, 0.0, entries).max(1)

    def likelihood(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.clip(np.where(labels, scores, 1 - scores), review.LOWEST, 1)  # (n, C)

    found: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
        "review": lambda scores, labels: np.array([d.surprise for d in sorted(doubts(scores, labels), key=lambda d: d.row)]),
        "sum": lambda scores, labels: np.add(*worst(scores, labels)),
        "worst": lambda scores, labels: np.maximum(*worst(scores, labels)),
        "least": lambda scores, labels: -likelihood(scores, labels).min(1),
        "total": lambda scores, labels: -np.log(likelihood(scores, labels)).sum(1),
    }
    if importlib.util.find_spec("cleanlab"):
        from cleanlab.multilabel_classification import get_label_quality_scores

        def cleanlab(how: dict) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
            def quality(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
                given = [np.flatnonzero(row).tolist() for row in labels]
                return -get_label_quality_scores(given, np.clip(scores, 1e-6, 1 - 1e-6), aggregator_kwargs=how)

            return quality

        found["cleanlab, moving average"] = cleanlab({"method": "exponential_moving_average", "alpha": 0.8})
        found["cleanlab, softmin"] = cleanlab({"method": "softmin"})
    return found


def compare(features: np.ndarray, labels: np.ndarray, options: argparse.Namespace) -> dict:
    """Spoiled rows found, by kind, scores and ranking."""
    counts: dict[str, dict[str, dict[str, list[int]]]] = {kind: {} for kind in KINDS}
    ways = scorers(features)
    for seed in options.seeds:
        rng = np.random.default_rng(seed)
        rows = rng.choice(len(features), options.labelled, replace=False)
        for kind in KINDS:
            wrong, planted = spoiled(labels[rows], kind, options.wrong, rng)
            for name, score in ways.items():
                scores = score(rows, wrong)
                for rank, suspicion in rankings().items():
                    first = np.argsort(-suspicion(scores, wrong), kind="stable")[: options.shown]
                    counts[kind].setdefault(name, {}).setdefault(rank, []).append(int(np.isin(first, planted).sum()))
    what = f"of {options.wrong} wrong labels among {options.labelled}, found in the first {options.shown}"

    def each(what: Callable[[np.ndarray], float]) -> dict:
        return {
            kind: {name: {rank: what(np.array(hits)) for rank, hits in ranks.items()} for name, ranks in by.items()}
            for kind, by in counts.items()
        }

    return {
        "what": f"{what}; draws {options.seeds[0]} to {options.seeds[-1]}",
        "mean": each(lambda hits: float(hits.mean())),
        "draws_with_half": each(lambda hits: int((2 * hits >= options.wrong).sum())),
        "draws": {kind: by["review"]["review"] for kind, by in counts.items()},
    }


if __name__ == "__main__":
    main()
