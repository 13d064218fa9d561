"""Nearest neighbours of many rows: all pairs against faiss's inverted lists; and a whole fit on as many rows.

    python benchmarks/neighbours.py [FILE.npz ...] [--rows 25000 50000 100000] [--fit 100000]

Rows are made up, with the spectrum of a network's features. Seconds are the processor's, of one thread; recall: the share of
the ten nearest rows that the lists find. A FILE (x, y, x_test, y_test) gives what the lists cost in test mAP, 5 % labelled.
--fit: seconds and the most memory of `DiCaPClassifier` on so many rows of 1,280 features and 20 classes, 2,000 of them labelled.

Writes benchmarks/results/neighbours.json and ends with `neighbours ratio=R target=0.8`, R: the smallest recall.
"""

import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from common import Parser, finish, highest_above
from linear import data
from sets import populations
from threadpoolctl import threadpool_limits

from dicap.frozen import neighbours
from dicap.metrics.ranking import mean_average_precision
from dicap.sklearn import DiCaPClassifier

K, TARGET = 10, 0.8  # at which test mAP is the same within 0.1 of every seed


def search(rows: int) -> dict[str, Any]:
    """Seconds of both searches of the same rows, and the recall of the second."""
    x = data(rows, neighbours.COMPONENTS, 1)[0]
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    found: dict[str, Any] = {"rows": rows}
    begin = time.process_time()
    exact = neighbours.by_all_pairs(unit, K)[0]
    found["all_pairs"] = round(time.process_time() - begin, 1)
    begin = time.process_time()
    lists = neighbours.by_inverted_lists(unit, K)
    assert lists is not None, "faiss-cpu is not installed"
    found["lists"] = round(time.process_time() - begin, 1)
    found["recall"] = round(float(np.mean([len({*a} & {*b}) / K for a, b in zip(lists[0], exact, strict=True)])), 4)
    return found


def whole_fit(rows: int, features: int, labelled: int) -> dict[str, Any]:
    """Seconds and bytes of a fit, the features not counted."""
    x, y = data(rows, features, 20)
    y[labelled:] = -1
    seconds = time.process_time()
    above = highest_above(lambda: DiCaPClassifier(random_state=0).fit(x, y))
    return {"rows": rows, "seconds": round(time.process_time() - seconds), "gigabytes": round((above + x.nbytes) / 1e9, 2)}


def price(path: Path) -> dict[str, Any]:
    """Test mAP by seed with all pairs and with lists."""
    found: dict[str, Any] = {"all_pairs": [], "lists": []}
    for p, seed in populations(path, [0.05], [1, 2, 3, 4, 5]).values():
        y = np.where(np.arange(len(p.x))[:, None] < p.labelled, p.y, -1)
        for name, limit in (("all_pairs", len(p.x)), ("lists", 0)):
            before, neighbours.EXACT = neighbours.EXACT, limit
            try:
                model = DiCaPClassifier(random_state=seed).fit(p.x, y)
            finally:
                neighbours.EXACT = before
            found[name].append(round(mean_average_precision(model.decision_function(p.x_test), p.y_test), 2))
    return found


def main() -> int:
    """Run and write."""
    parser = Parser(__doc__, "neighbours", rows=[600], fit=400)
    parser.add_argument("files", type=Path, nargs="*", help="feature sets, .npz with x, y, x_test, y_test")
    parser.add_argument("--rows", type=int, nargs="+", default=[25_000, 50_000, 100_000])
    parser.add_argument("--fit", type=int, default=100_000)
    options = parser.options()
    with threadpool_limits(1):
        searches = [search(rows) for rows in options.rows]
        fit = whole_fit(options.fit, 30 if options.smoke else 1280, 60 if options.smoke else 2000)
        prices = {path.stem: price(path) for path in options.files}
    for line in (*searches, fit, prices):
        print(line)
    result = {"searches": searches, "fit": fit, "map": prices}
    return finish("neighbours", result, min(each["recall"] for each in searches), TARGET, options)


if __name__ == "__main__":
    sys.exit(main())
