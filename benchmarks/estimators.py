"""How well each estimator of the correctness rate does on D_est of different sizes, judged by hidden labels.

From the stored scores of a run (`--artifacts`, `--dataset`): many D_est are drawn from the images the network was not trained on,
each estimator is fitted on every draw, and its rates are compared on the images left over with the *optimal* curve, the one
counted there with the hidden labels. The result is in docs/results.md.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from common import Parser, finish
from torch import Tensor

from dicap.calibration.curve import log_loss
from dicap.calibration.rates import count_bins, estimate_rates
from dicap.data.format import read_index
from dicap.data.labels import read_labels
from dicap.files import artifacts as files
from dicap.frozen.estimators import fit_curve
from dicap.frozen.logistic import class_shares

PAPER, LEARNT = "bins, left anchor, empty = 0 (the paper)", "class_score"
TARGET = 1.2  # error of the paper's bins over that of the learnt curves, on the smallest D_est
Estimate = Callable[[Tensor, Tensor, Tensor, np.ndarray, Tensor], Tensor]  # p_est, y_est, p_unlabelled, share, p -> rates of p


def binned(anchor: str, empty_bin: str) -> Estimate:
    """The paper's 20 bins."""

    def estimate(p_est: Tensor, y_est: Tensor, unlabelled: Tensor, share: np.ndarray, p: Tensor) -> Tensor:
        return estimate_rates(*count_bins(p_est, y_est, 20), anchor=anchor, empty_bin=empty_bin).at(p)

    return estimate


ESTIMATES: dict[str, Estimate] = {
    PAPER: binned("left", "zero"),
    "bins, centre anchor, empty filled": binned("centre", "interpolate"),
    LEARNT: lambda p_est, y_est, unlabelled, share, p: fit_curve(p_est, y_est, unlabelled, share).at(p),
}


def study(p: Tensor, y: Tensor, y_labelled: Tensor, sizes: Sequence[int], draws: int) -> Iterator[dict[str, object]]:
    """A row for each size of D_est, draw and estimator: size, estimator, error, excess.

    error: mean over the entries left over of |estimated - optimal rate|. excess: mean log loss of the estimated rates minus that
    of the optimal curve; below zero where an estimator that knows more than the confidence beats it.

    Args:
        p, y: (N, C) scores and hidden labels of images the network was not trained on.
        y_labelled: (n, C) labels of the labelled images, for the classes' shares of positives.
    """
    share, rng = class_shares(y_labelled.numpy()), np.random.default_rng(0)
    for size in sizes:
        for _ in range(draws):
            order = torch.from_numpy(rng.permutation(len(p)))
            est, rest = order[:size], order[size:]
            p_rest, y_rest = p[rest], y[rest]
            optimal = estimate_rates(*count_bins(p_rest, y_rest, 20), anchor="centre").at(p_rest)
            least = log_loss(optimal, y_rest)
            for name, estimate in ESTIMATES.items():
                r = estimate(p[est], y[est], p, share, p_rest)
                error = float((r - optimal).abs().mean())
                yield {"size": size, "estimator": name, "error": error, "excess": log_loss(r, y_rest) - least}


def read_scores(artifacts: Path, dataset: Path) -> tuple[Tensor, Tensor, Tensor]:
    """(p, y, y_labelled) of a run: the scores before the main stage, their hidden labels, the labelled images' labels."""
    stages = (artifacts / "pseudo_label", artifacts / "train")  # a solved head has them in the second alone
    folder = next(stage for stage in stages if files.epochs(stage, "pseudo_labels"))
    path = files.epoch_file(folder, "pseudo_labels", files.epochs(folder, "pseudo_labels")[0])
    ids, confidence, _, _ = files.read_pseudo_labels(path)
    index = read_index(dataset, ["id", "split"]).to_pandas().set_index("id")
    roles = files.read_roles(artifacts / "split" / "split.parquet", index.index)
    known = (index.loc[ids, "split"] == "train").to_numpy()  # rows of split `unlabeled` have no labels

    def labels(ids: Sequence[str]) -> Tensor:
        return torch.from_numpy(read_labels(dataset, index.index.get_indexer(list(ids)), partial=True).astype(np.int8))

    labelled = index.index[np.isin(roles, ["sup", "est"])].tolist()
    return torch.from_numpy(confidence[known].astype(np.float64)), labels(np.array(ids)[known].tolist()), labels(labelled)


def made_up(images: int = 400, classes: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Scores whose true rate is p^1.5."""
    rng = np.random.default_rng(1)
    p = rng.beta(0.5, 2.0, (images, classes))
    y = torch.from_numpy((rng.random(p.shape) < p**1.5).astype(np.int8))
    return torch.from_numpy(p), y, y[:50]


def main() -> int:
    parser = Parser(__doc__, "estimators", draws=4, sizes=[10, 40])
    parser.add_argument("--artifacts", type=Path, default=Path("artifacts"), help="of a run that made pseudo-labels")
    parser.add_argument("--dataset", type=Path, help="the converted set of that run; made-up scores without")
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 45, 90, 180], help="images in D_est")
    parser.add_argument("--draws", type=int, default=60, help="D_est drawn of each size")
    options = parser.options()
    scores = read_scores(options.artifacts, options.dataset) if options.dataset else made_up()
    groups = pd.DataFrame(study(*scores, options.sizes, options.draws)).groupby(["estimator", "size"], sort=False)
    table = groups.mean()
    half = 1.96 * groups.std(ddof=1) / np.sqrt(options.draws)  # of the 95 % interval of the mean
    print("| estimator | size | error | excess x 1e-3 |\n| --- | ---: | ---: | ---: |")
    for at, row in table.iterrows():
        excess = f"{1000 * row['excess']:.1f} ± {1000 * half.loc[at, 'excess']:.1f}"
        print(f"| {at[0]} | {at[1]} | {row['error']:.4f} ± {half.loc[at, 'error']:.4f} | {excess} |")
    ratio = table.loc[(PAPER, options.sizes[0]), "error"] / table.loc[(LEARNT, options.sizes[0]), "error"]
    rows = table.join(half.add_suffix("_half")).reset_index().to_dict("records")
    return finish("estimators", {"rows": rows}, float(ratio), TARGET, options)


if __name__ == "__main__":
    sys.exit(main())
