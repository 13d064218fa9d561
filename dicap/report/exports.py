"""The numbers behind the figures as small CSV files: for spreadsheets, and for dvc plots, which cannot read Parquet."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from dicap.report import evidence
from dicap.report.evidence import Evidence


def write_csv(found: Evidence, folder: Path) -> None:
    """Write what the run produced into `folder`.

    learning.csv: one row per epoch, of all stages; curve.csv: the last epoch's rates, curves.csv: those of every epoch;
    curve_error.csv, shares.csv: one row per epoch; weights.csv: histograms; thresholds.csv: the last
    epoch's; reliability.csv. A file whose table is empty is not written.
    """
    curves = _curves(found.weights)
    thresholds = found.thresholds
    tables = {
        "learning": found.history.reindex(columns=["position", "stage", *found.history.columns.drop(["position", "stage"])]),
        "curve": curves[curves["epoch"] == curves["epoch"].max()] if len(curves) else curves,
        "curves": curves,
        "curve_error": evidence.curve_errors(found.weights),
        "shares": found.shares,
        "weights": found.weight_histogram,
        "thresholds": thresholds[thresholds["epoch"] == thresholds["epoch"].max()] if len(thresholds) else thresholds,
        "reliability": found.reliability,
    }
    for name, table in tables.items():
        if len(table):
            table.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g", lineterminator="\n")


def _curves(weights: pd.DataFrame) -> pd.DataFrame:
    if weights.empty:
        return weights
    columns = ["epoch", "left", "right", "confidence", "r_pos", "optimal_r_pos", "n_pos", "n_neg", "optimal_n"]
    return weights.assign(confidence=(weights["left"] + weights["right"]) / 2).reindex(columns=columns)
