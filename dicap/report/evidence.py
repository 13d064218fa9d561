"""The data of the report: the artifacts of a run, read once into small data frames.

The pseudo-labels of a large data set have hundreds of millions of entries. Only the last epoch is read, and only a histogram is
kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dicap.errors import DataError
from dicap.files import artifacts as files
from dicap.files.json_files import read_json
from dicap.files.tables import matrix, read_csv, read_parquet
from dicap.metrics.ledger import TERMS
from dicap.metrics.operating_point import bin_of, reliability

STAGES = ("warmup", "train", "finetune")
WEIGHT_BINS = 20  # bins of the histograms; the correctness rates keep the run's bins
# Columns of history.csv that the figures read; a method without such a quantity leaves its column out.
HISTORY = [
    *(*files.HISTORY, "curve_error", "precision_pos", "precision_neg", "weight_pos", "weight_pos_sd", "weight_neg"),
    *("share_pos", "share_neg", "share_uncertain"),
    *(f"grad_{term}" for term in TERMS),
]


@dataclass(frozen=True)
class Evidence:
    """A run as data frames. Frames of missing artifacts are empty.

    history: one row per epoch of warmup, train, finetune in this order; columns `stage`, `position` (1, 2, ... over all
    stages) and HISTORY; missing columns are NaN.
    weights: of the last epoch; bin, left, right, n_pos, n_neg, r_pos, r_neg, optimal_r_pos, optimal_n, epoch.
    thresholds: of the last epoch; class, tau_pos, tau_neg, n_pos, n_neg, crossed, epoch.
    weight_histogram: label (1 or 0), bin, left, right, n: histogram of the weights of confident entries at the last epoch.
    roles: number of images per role.
    per_class: columns of `dicap.evaluation.evaluate.by_class` and n_train_labelled; shares are in percent; one row per class, in
    the order of the classes.
    reliability: `dicap.metrics.operating_point.reliability` of the scores of all (test image, class) entries.
    """

    history: pd.DataFrame
    weights: pd.DataFrame
    thresholds: pd.DataFrame
    weight_histogram: pd.DataFrame
    per_class: pd.DataFrame
    reliability: list[dict[str, float]]
    metrics: dict[str, Any]
    roles: dict[str, int]

    @property
    def has_epochs(self) -> bool:
        """Whether a stage was trained for more than one epoch, so that there are curves over epochs."""
        return len(self.history) > self.history["stage"].nunique()

    def of_stage(self, stage: str) -> pd.DataFrame:
        """The history of a stage."""
        return self.history[self.history["stage"] == stage]

    @property
    def has_truth(self) -> bool:
        """Whether the curves were recorded with true rates from hidden labels."""
        return not self.weights.empty and bool(self.weights["optimal_r_pos"].notna().any())


def gather(artifacts: Path) -> Evidence:
    """Read the artifacts folder of a run.

    Raises DataError for a missing or damaged file. The files of evaluate/ are required, all others are optional.
    """
    artifacts = Path(artifacts)
    evaluate = artifacts / "evaluate"
    metrics = read_json(evaluate / "details.json")
    per_class = read_csv(evaluate / "per_class.csv", "class", "n_pos", "n_train_labelled", "ap", "chance")
    shares = per_class.columns.isin(["ap", "chance", "precision", "recall"])
    per_class.loc[:, shares] *= 100  # fractions in the file, percent in the report
    source, weights, history = artifacts / "train", pd.DataFrame(), _history(artifacts)
    thresholds = by_weight = weights
    if epochs := files.epochs(source, "pseudo_labels"):
        weights, thresholds = (_frames(source, kind, last=1) for kind in ("weights", "thresholds"))
        by_weight, _ = histogram_of_record(files.epoch_file(source, "pseudo_labels", epochs[-1]))
        if history.loc[history["stage"] == "train", "share_pos"].isna().all():
            raise DataError(f"{source / 'history.csv'}: lacks the epochs of {source / 'pseudo_labels'}; run `dvc repro -f train`")
    return Evidence(
        history=history,
        weights=weights,
        thresholds=thresholds,
        weight_histogram=by_weight,
        per_class=per_class,
        reliability=_reliability(evaluate / "predictions.parquet"),
        metrics=metrics,
        roles=metrics.get("roles", {}),
    )


def histogram_of_record(path: Path) -> tuple[pd.DataFrame, dict[int, int]]:
    """A histogram of the weights of an epoch's confident entries, and the number of entries by label (1, 0, -1).

    The frame has columns label (1 or 0), bin, left, right, n; bins are half open, the last bin is closed.
    """
    _, _, label, weight = files.read_pseudo_labels(path)
    index, bins = bin_of(weight, WEIGHT_BINS), np.arange(WEIGHT_BINS)  # (n, C), (B,)
    edges = {"bin": bins, "left": bins / WEIGHT_BINS, "right": (bins + 1) / WEIGHT_BINS}
    counts = [pd.DataFrame({"label": k} | edges | {"n": np.bincount(index[label == k], minlength=WEIGHT_BINS)}) for k in (1, 0)]
    return pd.concat(counts, ignore_index=True), {k: int((label == k).sum()) for k in (1, 0, -1)}


def read_curves(folder: Path) -> pd.DataFrame:
    """All epochs of a `weights` folder, with the columns of `Evidence.weights`. Raises DataError if it has no epochs."""
    if not files.epochs(folder.parent, folder.name):
        raise DataError(f"{folder}: holds no epochs; dvc repro train writes them")
    return _frames(folder.parent, folder.name)


def _history(artifacts: Path) -> pd.DataFrame:
    rows = [
        {"stage": stage, **row}
        for stage in STAGES
        if (path := artifacts / stage / "history.csv").exists()
        for row in read_csv(path, "epoch").to_dict("records")
    ]
    history = pd.DataFrame(rows, columns=["stage", *HISTORY]).astype(dict.fromkeys(HISTORY, float))
    history["position"] = np.arange(1, len(history) + 1)
    return history


def _frames(stage: Path, kind: str, last: int = 0) -> pd.DataFrame:
    """All epochs of a small per-epoch table, or the `last` ones (0: all), with an `epoch` column."""
    parts = []
    for epoch in files.epochs(stage, kind)[-last:]:
        frame = read_parquet(files.epoch_file(stage, kind, epoch)).to_pandas()
        # A column of nulls only would have type object in one epoch and float in the next.
        parts.append(frame.astype({name: float for name in frame if str(name).startswith("optimal")}))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _reliability(path: Path) -> list[dict[str, float]]:
    """`reliability` of predictions.parquet; empty without it."""
    if not path.exists():
        return []
    table = read_parquet(path, ["score", "label"])
    score, label = (matrix(table[name]) for name in ("score", "label"))  # (n, C) each
    return reliability(np.where(label < 0, np.nan, score), label, bins=20)  # unknown entries do not count
