"""How well each estimator of the correctness rate does on D_est of different sizes, judged by hidden labels.

From the stored scores of a run: many D_est are drawn from the images the network was not trained on, each estimator is
fitted on every draw, and its weights are compared on the images left over with the *optimal* curve, the one counted there
with the hidden labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dicap.calibration.estimators import class_shares, fit_curve, log_loss
from dicap.calibration.rates import count_bins, estimate_rates
from dicap.data.format import read_index
from dicap.data.labels import read_labels
from dicap.errors import DataError
from dicap.files import artifacts as files

PAPER = "bins, left anchor, empty = 0 (the paper)"
Estimate = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]  # p_est, y_est, p_unlabelled, share, p -> rates of p


def estimates(bins: int = 20) -> dict[str, Estimate]:
    """The compared estimators by title, the paper's own first."""

    def binned(anchor: str, empty_bin: str, isotonic: bool = False) -> Estimate:
        def estimate(p_est: Tensor, y_est: Tensor, unlabelled: Tensor, share: Tensor, p: Tensor) -> Tensor:
            counts = count_bins(p_est, y_est, bins)
            return estimate_rates(*counts, anchor=anchor, empty_bin=empty_bin, isotonic=isotonic).curve.at(p)

        return estimate

    def learnt(name: str) -> Estimate:
        return lambda p_est, y_est, unlabelled, share, p: fit_curve(name, p_est, y_est, unlabelled, share, bins=bins).at(p)

    return {
        PAPER: binned("left", "zero"),
        "bins, centre anchor, empty filled": binned("centre", "interpolate"),
        "bins, centre anchor, isotonic": binned("centre", "interpolate", isotonic=True),
        "beta": learnt("beta"),
        "shrunk_bins": learnt("shrunk_bins"),
        "class_rank": learnt("class_rank"),
    }


def study(
    p: Tensor, y: Tensor, y_labelled: Tensor, sizes: Sequence[int], draws: int, rng: np.random.Generator, *, bins: int = 20
) -> Iterator[dict[str, object]]:
    """Yield one row for each size of D_est, draw and estimator: size, draw, estimator, error, excess.

    Args:
        p, y: (N, C) scores and hidden labels of images the network was not trained on.
        y_labelled: (n, C) labels of the labelled images, for the classes' shares of positives.
        sizes: numbers of images in D_est; each below N.
        draws: how many D_est of each size.

    error: mean over the entries left over of |estimated - optimal rate|. excess: mean log loss of the estimated rates
    minus that of the optimal curve; below zero where an estimator that knows more than the confidence beats it.
    """
    assert max(sizes) < len(p), (sizes, len(p))
    share = class_shares(y_labelled)
    for size in sizes:
        for draw in range(draws):
            order = torch.from_numpy(rng.permutation(len(p)))
            est, rest = order[:size], order[size:]
            p_rest, y_rest = p[rest], y[rest]
            optimal = estimate_rates(*count_bins(p_rest, y_rest, bins), anchor="centre").curve.at(p_rest)
            least = log_loss(optimal, y_rest)
            for name, estimate in estimates(bins).items():
                r = estimate(p[est], y[est], p, share, p_rest)
                error = float((r - optimal).abs().mean())
                yield {"size": size, "draw": draw, "estimator": name, "error": error, "excess": log_loss(r, y_rest) - least}


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean and 95 % interval over draws of error and excess, one row per estimator and size, estimators in their order.

    The interval is that of the mean: 1.96 standard errors either side.
    """
    groups = rows.groupby(["estimator", "size"], sort=False)
    table = groups[["error", "excess"]].mean()
    for column in ("error", "excess"):
        table[f"{column}_half"] = 1.96 * groups[column].std(ddof=1).fillna(0) / np.sqrt(groups[column].count())
    return table.reset_index()


def to_markdown(table: pd.DataFrame) -> str:
    """The summary as a GitHub table: one row per estimator, one column per size; error, and excess in thousandths."""
    sizes = sorted(table["size"].unique())
    lines = ["| estimator | " + " | ".join(f"D_est {size}: error, excess x 1e-3" for size in sizes) + " |"]
    lines.append("| --- |" + " ---: |" * len(sizes))
    cells = table.set_index(["estimator", "size"])
    for name in dict.fromkeys(table["estimator"]):
        parts = []
        for size in sizes:
            row = cells.loc[(name, size)]
            excess, half = 1000 * row["excess"], 1000 * row["excess_half"]
            parts.append(f"{row['error']:.4f} ± {row['error_half']:.4f}, {excess:.1f} ± {half:.1f}")
        lines.append(f"| {name} | " + " | ".join(parts) + " |")
    return "\n".join(lines) + "\n"


def read_scores(artifacts: Path, dataset: Path) -> tuple[Tensor, Tensor, Tensor]:
    """(p, y, y_labelled) of a run: the scores before the main stage, their hidden labels, the labelled images' labels.

    Raises DataError where a file is missing or the data set has no hidden labels.
    """
    folder = artifacts / "pseudo_label"
    epochs = files.epochs(folder, "pseudo_labels")
    if not epochs:
        raise DataError(f"{folder}: no stored scores of unlabelled images; the run's method makes no pseudo-labels")
    path = files.epoch_file(folder, "pseudo_labels", epochs[0])
    ids, confidence, _, _ = files.read_pseudo_labels(path)
    index = read_index(dataset, ["id", "split"]).to_pandas().set_index("id")
    roles = files.read_split(artifacts / "split" / "split.parquet")
    known = (index.loc[ids, "split"] == "train").to_numpy()  # rows of split `unlabeled` have no labels
    if not known.any():
        raise DataError(f"{dataset}: no unlabelled image has a hidden label, so estimators cannot be judged on it")

    def labels(ids: Sequence[str]) -> Tensor:
        return torch.from_numpy(read_labels(dataset, index.index.get_indexer(list(ids)), partial=True).astype(np.int8))

    labelled = roles.loc[roles["role"].isin(["sup", "est"]), "id"].tolist()
    p = torch.from_numpy(confidence[known].astype(np.float64))
    return p, labels([name for name, there in zip(ids, known, strict=True) if there]), labels(labelled)
