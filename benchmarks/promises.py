"""Are promises kept? Precision and recall to rely on, forecasts of mAP, and the headline of few test images.

    python benchmarks/promises.py [FILE.npz ...] [--draws 300] [--part promises forecasts headline]

A FILE holds features x (n, D) and labels y (n, C) of training rows, and x_test, y_test. Beside them are made-up populations with
common, rare and correlated classes. From each, labelled images are drawn (30 to 1,000; of files 100 to 1,000, on the first
AXES principal axes of the default features), heads are solved on them and on all but each of five folds, and thresholds for a
precision and a recall of 0.9 are chosen at 90 % confidence by the out-of-fold scores (`ours`). `split`: the same thresholds from
half of the images, by a head on the other half, for which the promise is proved; `mapie`: MAPIE's on this split, as it comes,
where it is installed, on the first MAPIE_DRAWS of made-up populations. `naive`: the lowest (highest) threshold at
which the out-of-fold precision (recall) itself is the target. On the images left over: the share of promised classes that
miss the target, by how much, and what share of the other quantity is given up beside the best threshold for these images.

Forecasts: the learning curve from 100 and 200 labelled images against heads on 200 to 800. Headline: mAP of 40 test images,
plain and corrected, against the population's.

What is finished is kept: the same --out goes on where an earlier run stopped. Ends with `promises ratio=R target=0.9`, R: the
smallest share of (class, draw) that keeps the target, of `ours` over the made-up populations, 2 standard errors added.
"""

import json
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from common import Parser, finish
from coverage import population

from dicap.calibration.ranks import log_odds
from dicap.calibration.risk_control import Ranking, rankings, threshold
from dicap.frozen.crossfit import out_of_fold_at_rank
from dicap.frozen.folds import assign_folds, fold_weights
from dicap.frozen.learning_curve import gain, measure
from dicap.frozen.loss_weight import choose_loss_weight
from dicap.frozen.solver import rotate, solve
from dicap.metrics.ranking import average_precision, can_be_tested, map_interval, mean_average_precision
from dicap.metrics.warnings import headline
from dicap.network.scaling import scaling_of

TARGET, CONFIDENCE, AXES, LOSS_WEIGHT = 0.9, 0.9, 128, 0.01
MADE_UP = {"common": (0.2, 0.6), "rare": (0.01, 0.08), "correlated": (0.1, 0.4)}  # shares of positives, lowest and highest
OTHERS = 1500  # images without labels, by whose ranks scores of heads without a fold are brought to the scale of the last
MAPIE_DRAWS, BLOCK = 50, 25  # draws with MAPIE; draws after which the result is written
ROWS, FEATURES, CLASSES = 12_000, 20, 6


def made_up(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows (ROWS, FEATURES) and labels (ROWS, CLASSES): each class a noisy half space; of correlated ones nearly the same."""
    rng = np.random.default_rng([seed, len(kind)])
    x, shared = rng.standard_normal((ROWS, FEATURES)), rng.standard_normal((FEATURES, 1))
    normals = rng.standard_normal((FEATURES, CLASSES)) * (0.3 if kind == "correlated" else 1) + shared * (kind == "correlated")
    z = x @ (normals / np.linalg.norm(normals, axis=0)) + 0.3 * rng.standard_normal((ROWS, CLASSES))
    share = rng.uniform(*MADE_UP[kind], CLASSES)
    return x.astype(np.float32), (z > [np.quantile(z[:, c], 1 - share[c]) for c in range(CLASSES)]).astype(np.float32)


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Rows on AXES principal axes and labels of a file, test rows last."""
    with np.load(path) as values:
        x, y = (np.concatenate([values[name], values[f"{name}_test"]]).astype(np.float32) for name in ("x", "y"))
    rows = rotate(scaling_of(x, "root").apply(x)).coordinates[:, -AXES:]
    return rows / np.sqrt(np.square(rows).mean()), y


def solved(x: np.ndarray, y: np.ndarray, fold: np.ndarray) -> Any:
    """Heads without each fold and, last, one of all rows."""
    weight = np.concatenate([fold_weights(fold), np.ones((1, len(y), 1), np.float32)])
    return solve(x, y, weight=weight, loss_weight=LOSS_WEIGHT, tolerance=1e-2)


def naive(ranking: Ranking, kind: str) -> float | None:
    """The threshold at which the labelled images themselves meet the target."""
    hits = np.arange(1, len(ranking.scores) + 1)
    if kind == "precision":
        met = np.flatnonzero(hits >= TARGET * ranking.ranks)
        return float(ranking.scores[met[-1]]) if len(met) else None
    return float(ranking.scores[int(np.ceil(TARGET * len(hits))) - 1]) if len(hits) else None


def of_mapie(scores: np.ndarray, y: np.ndarray, kind: str) -> float | None:
    """MAPIE's threshold for a class by its defaults, of logits (n,)."""
    from mapie.risk_control import BinaryClassificationController

    p = 1 / (1 + np.exp(-scores[:, None].astype(np.float64)))
    control = BinaryClassificationController(lambda p: np.concatenate([1 - p, p], axis=1), kind, TARGET, CONFIDENCE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where it finds none
        at = control.calibrate(p, y.astype(int)).best_predict_param
    return None if at is None else float(np.log(max(at, 1e-12) / (1 - at)))


def worth(at: float, scores: np.ndarray, truth: np.ndarray) -> tuple[float, float, int]:
    """Precision and recall of yes at a threshold, and how many there are of it."""
    yes = scores >= at
    return float(truth[yes].mean()) if yes.any() else 1.0, float(yes[truth].mean()), int(yes.sum())


def best(scores: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Of the other quantity, what the best threshold for these very images has."""
    hits = np.cumsum(truth[np.argsort(-scores)])
    precision, recall = hits / np.arange(1, len(hits) + 1), hits / hits[-1]
    return {
        "precision": float(recall[precision >= TARGET].max(initial=0)),
        "recall": float(precision[recall >= TARGET].max(initial=0)),
    }


def draw(x: np.ndarray, y: np.ndarray, n: int, seed: int, *, mapie: bool = False) -> list[list[Any]]:
    """Rows [rule, kind, promised, target met, met by the finest margin, given up] of each class that is there on both sides."""
    order = np.random.default_rng([seed, n]).permutation(len(x))
    known, others, rest = order[:n], order[n : n + OTHERS], order[n + OTHERS :]
    fold = assign_folds(y[known], 5, seed)
    heads, halves = solved(x[known], y[known], fold), solved(x[known[: n // 2]], y[known[: n // 2]], np.full(n // 2, -1))
    p = out_of_fold_at_rank(heads.w, heads.b, x[known], fold, x[others])
    own = rankings(log_odds(p), y[known])
    kept = halves.logits(x[known[n // 2 :]])[-1]
    apart = rankings(kept, y[known[n // 2 :]])
    by_all, by_half = heads.logits(x[rest])[-1], halves.logits(x[rest])[-1]
    found = []
    for c in np.flatnonzero((y[known] > 0).any(0) & (y[rest] > 0).any(0)):
        truth = y[rest, c] > 0
        most = best(by_all[:, c], truth)
        for kind in ("precision", "recall"):
            rules = [
                ("ours", by_all, threshold(own[c], (kind, TARGET), CONFIDENCE).at),
                ("split", by_half, threshold(apart[c], (kind, TARGET), CONFIDENCE).at),
                ("naive", by_all, naive(own[c], kind)),
            ]
            if mapie:
                rules.append(("mapie", by_half, of_mapie(kept[:, c], y[known[n // 2 :], c], kind)))
            for rule, scores, at in rules:
                precision, recall, yes = (0.0, 0.0, 0) if at is None else worth(at, scores[:, c], truth)
                value, other = (precision, recall) if kind == "precision" else (recall, precision)
                trials = yes if kind == "precision" else int(truth.sum())
                margin = 2 * np.sqrt(TARGET * (1 - TARGET) / max(trials, 1))  # of the left over images themselves
                found.append([rule, kind, at is not None, value >= TARGET, value >= TARGET - margin, most[kind] - other])
    return found


def block(x: np.ndarray | None, y: np.ndarray | None, kind: str, n: int, seeds: range) -> dict[str, list[float]]:
    """Sums by rule and quantity: of classes as in `draw`, then draws, their shares of missed promises, and these squared."""
    found: dict[str, list[np.ndarray]] = {}
    for seed in seeds:
        mapie = x is None and seed < MAPIE_DRAWS and find_spec("mapie") is not None
        rows = draw(*made_up(kind, seed), n, seed, mapie=mapie) if x is None or y is None else draw(x, y, n, seed)
        for key in sorted({(row[0], row[1]) for row in rows}):
            promised, met, nearly, given_up = np.array([row[2:] for row in rows if (row[0], row[1]) == key], float).T
            missed = promised * (1 - met)
            sums = [len(met), promised.sum(), missed.sum(), (promised * (1 - nearly)).sum(), (promised * given_up).sum()]
            found.setdefault(" ".join(key), []).append(np.array([*sums, 1, missed.mean(), missed.mean() ** 2]))
    return {key: np.sum(values, axis=0).tolist() for key, values in found.items()}


def table(sums: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """The shares of a cell, by rule and quantity; `error`: standard error of `missed` over draws."""
    found = {}
    for key, (classes, promised, missed, clearly, given_up, draws, mean, square) in sums.items():
        values = {"promised": promised / classes, "missed": mean / draws, "draws": draws}
        values["error"] = max(square / draws - (mean / draws) ** 2, 0) ** 0.5 / draws**0.5
        values |= {"missed_of_promised": missed / max(promised, 1), "clearly_missed": clearly / classes}
        found[key] = {
            name: round(float(value), 4) for name, value in (values | {"given_up": given_up / max(promised, 1)}).items()
        }
    return found


def forecasts(x: np.ndarray, y: np.ndarray, draws: int, sizes: tuple[int, ...] = (100, 200, 400, 800)) -> list[dict[str, float]]:
    """Of each draw and start: the forecast gain, its interval, and the gain on the images left over of a head on as many."""
    found = []
    for seed in range(draws):
        order = np.random.default_rng([seed, 1]).permutation(len(x))
        rest, aps, weights = order[sizes[-1] :], {}, {}
        for n in sizes:
            own = order[:n]
            weights[n] = choose_loss_weight(x[own], y[own], seed=seed)
            aps[n] = average_precision(solve(x[own], y[own], loss_weight=weights[n]).logits(x[rest])[0], y[rest])
        for n in sizes[:2]:
            own, tested = order[:n], can_be_tested(y[order[:n]])
            curve = measure(x[own], y[own], loss_weight=weights[n], seed=seed)
            for m in (2 * n, 4 * n):
                one = gain(curve, n, m)
                row = {"from": n, "to": m, "truth": 100 * float((aps[m] - aps[n])[tested].mean())}
                found.append({k: round(v, 2) for k, v in (row | {"value": one.value, "low": one.low, "high": one.high}).items()})
    return found


def headlines(draws: int, images: int = 20_000, tests: int = 40) -> dict[str, dict[str, float]]:
    """Of made-up test sets: bias of mAP and of the value shown, how often none is, and how often mAP is outside its interval."""
    from coverage import POPULATIONS

    found = {}
    for name, (share, distance) in POPULATIONS.items():
        world, rng, rows = population(share, distance, images), np.random.default_rng(0), []
        for _ in range(draws):
            chosen = rng.integers(0, images, tests)
            scores, labels = world.scores[chosen], world.labels[chosen]
            able = can_be_tested(labels)
            corrected, low, high = map_interval(scores[:, able], labels[:, able])
            value, truth = mean_average_precision(scores, labels, testable=True), 100 * world.aps[able].mean()
            shown = headline({"map": value, "map_corrected": corrected, "map_low": low, "map_high": high})[0]
            rows.append([value - truth, np.nan if shown is None else shown - truth, shown is None, low <= truth <= high])
        table = np.array(rows, float)
        keys = ("bias", "bias_shown", "none_shown", "interval_holds")
        found[name] = {key: round(float(np.nanmean(table[:, i])), 3) for i, key in enumerate(keys)}
    return found


def main() -> int:
    """Run what is not there yet, write after each."""
    parser = Parser(__doc__, "promises", draws=3, curves=1)
    parser.add_argument("files", type=Path, nargs="*", help="feature sets, .npz with x, y, x_test, y_test")
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--curves", type=int, default=20, help="draws whose learning curve is forecast")
    parser.add_argument("--part", nargs="+", default=["promises", "forecasts", "headline"])
    options = parser.options()
    kept = json.loads(options.out.read_text()) if options.out.exists() else {}
    found: dict[str, Any] = {name: kept.get(name, {}) for name in ("promises", "forecasts", "headline")}
    sets = {path.stem: read(path) for path in options.files}
    if options.smoke:
        sets["toy"] = tuple(part[:2000] for part in made_up("common", 0))
    drawn = [(kind, None, None) for kind in MADE_UP] + [(name, *some) for name, some in sets.items()]
    cells = [(*one, n) for n in ((50,) if options.smoke else (300, 1000, 100, 30)) for one in drawn if n > 30 or one[1] is None]
    for name, x, y, n in cells if "promises" in options.part else []:
        one = found["promises"].setdefault(f"{name} {n}", {"seeds": 0, "sums": {}})
        while one["seeds"] < options.draws:
            end = min(one["seeds"] + BLOCK, options.draws)
            for key, values in block(x, y, name, n, range(one["seeds"], end)).items():
                one["sums"][key] = (np.array(values) + one["sums"].get(key, 0)).tolist()
            one["seeds"] = end
            write(found, options)
    for name, (x, y) in sets.items() if "forecasts" in options.part else []:
        if name not in found["forecasts"]:
            found["forecasts"][name] = forecasts(
                x, y, options.curves, (20, 40, 80, 160) if options.smoke else (100, 200, 400, 800)
            )
            write(found, options)
    if "headline" in options.part and not found["headline"]:
        found["headline"] = headlines(options.draws)
    return write(found, options)


def write(found: dict[str, Any], options: Any) -> int:
    """The result so far; the exit code."""
    tables = {key: table(one["sums"]) for key, one in found["promises"].items() if one["sums"]}
    kept = [
        1 - part[f"ours {kind}"]["missed"] + 2 * part[f"ours {kind}"]["error"]
        for key, part in tables.items()
        for kind in ("precision", "recall")
        if key.split()[0] in MADE_UP
    ]
    summary = {}
    for name, rows in found["forecasts"].items():
        for pair in sorted({(row["from"], row["to"]) for row in rows}):
            some = [row for row in rows if (row["from"], row["to"]) == pair]
            error = np.array([row["value"] - row["truth"] for row in some])
            summary[f"{name} {pair[0]:g} to {pair[1]:g}"] = {
                "bias": round(float(error.mean()), 2),
                "off": round(float(np.abs(error).mean()), 2),
                "gain": round(float(np.mean([row["truth"] for row in some])), 2),
                "covered": round(float(np.mean([row["low"] <= row["truth"] <= row["high"] for row in some])), 3),
                "width": round(float(np.mean([row["high"] - row["low"] for row in some])), 2),
            }
    result = {"draws": options.draws, "table": tables, "forecast_summary": summary} | found
    return finish("promises", result, min(kept, default=1.0), CONFIDENCE, options)


if __name__ == "__main__":
    sys.exit(main())
