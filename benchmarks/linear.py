"""The linear head of all classes and five folds in one solve, against scikit-learn's LogisticRegression class by class.

    python benchmarks/linear.py [--rows 450] [--features 1280] [--classes 65] [--folds 5]

Features have the quickly falling spectrum of a network's. Both solve the same problems (C = 0.01; a head for every fold and one
on all rows); the weights are compared. Times are of one thread and take turns.

Writes benchmarks/results/linear.json and ends with `linear ratio=R target=5`, R: scikit-learn's seconds over ours. Exits 1 if
R is below 5, if a weight differs by more than 1e-3, or if ours does not reach its own tolerance.
"""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from common import Parser, finish, median_ratio, take_turns
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from dicap.frozen.folds import assign_folds, fold_weights
from dicap.frozen.solver import DEFAULT_TOLERANCE, solve

TARGET = 5.0
LOSS_WEIGHT = 0.01


def data(rows: int, features: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Standardised rows (n, D) float32 and labels (n, C), every class on both sides."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, features)) * np.arange(1, features + 1) ** -0.5
    x = x @ np.linalg.qr(rng.standard_normal((features, features)))[0]
    x = (x - x.mean(0)) / x.std(0)
    z = x @ rng.standard_normal((features, classes)) / np.sqrt(features) - np.linspace(1, 3, classes)
    y = rng.random(z.shape) < 1 / (1 + np.exp(-2 * z))
    y[:10], y[10:20] = 0, 1
    return x.astype(np.float32), y.astype(np.float32)


def main() -> int:
    """Run, compare, write."""
    given = Parser(__doc__, "linear", rows=60, features=40, classes=4, folds=3)
    for name, value in (("rows", 450), ("features", 1280), ("classes", 65), ("folds", 5)):
        given.add_argument(f"--{name}", type=int, default=value)
    options = given.options()
    warnings.simplefilter("error")  # a solve that ends above its tolerance fails the benchmark
    x, y = data(options.rows, options.features, options.classes)
    fold = assign_folds(y, options.folds, 0)
    weight = np.concatenate([fold_weights(fold), np.ones((1, len(y), 1), np.float32)])  # (K + 1, n, 1)

    def ours():
        return solve(x, y, weight=weight, loss_weight=LOSS_WEIGHT)

    def peer() -> np.ndarray:
        w = np.zeros((options.folds + 1, options.classes, options.features))
        for k in range(options.folds + 1):
            rows = weight[k, :, 0] > 0
            for c in range(options.classes):
                w[k, c] = LogisticRegression(C=LOSS_WEIGHT, tol=1e-6, max_iter=10000).fit(x[rows], y[rows, c]).coef_[0]
        return w

    with threadpool_limits(1):
        found, expected = ours(), peer()
        seconds = take_turns({"ours": ours, "scikit-learn": peer}, options.rounds)
    apart = float(np.abs(found.w - expected).max())
    ratio = median_ratio(seconds["scikit-learn"], seconds["ours"])
    print(
        f"{found.b.size} problems of {options.rows} rows: ours {min(seconds['ours']):.2f} s in {found.iterations} iterations, ",
        end="",
    )
    print(f"scikit-learn {min(seconds['scikit-learn']):.2f} s; weights differ by at most {apart:.1e}")
    result = {key: getattr(options, key) for key in ("rows", "features", "classes", "folds")} | {
        "seconds": {name: [round(value, 4) for value in values] for name, values in seconds.items()},
        "iterations": found.iterations,
        "gradient": float(found.gradient.max()),
        "weight_difference": apart,
    }
    same = apart <= 1e-3 and float(found.gradient.max()) <= DEFAULT_TOLERANCE
    return finish("linear", result, ratio, TARGET, options, same=same)


if __name__ == "__main__":
    sys.exit(main())
