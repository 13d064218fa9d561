"""The panels of the paper's figures under their numbers there, from the curves and scores of finished runs."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from dicap.report import style
from dicap.report.figures.calibration import early_and_late, overlaid


def figure_1a(weights: pd.DataFrame) -> Figure:
    """Why labelled images cannot say how right confidences are: the network knows them.

    Args:
        weights: all epochs of a run with `calibration.policy: labeled`, whose rates are counted on labelled images.
    """
    first = _at(weights, weights["epoch"].min())
    return overlaid({"labelled images": (first, "r_pos"), "unlabelled images": (first, "optimal_r_pos")})


def figure_1b(runs: Mapping[float, pd.DataFrame]) -> Figure:
    """How little the optimal curve depends on the labelled ratio. runs: all epochs, by ratio."""
    last = {ratio: _at(weights, weights["epoch"].max()) for ratio, weights in sorted(runs.items())}
    return overlaid({f"{100 * ratio:.4g} % labelled": (weights, "optimal_r_pos") for ratio, weights in last.items()})


def figure_1c(weights: pd.DataFrame) -> Figure:
    """How well a few labelled images that were held out estimate the curve. weights: all epochs."""
    first = _at(weights, weights["epoch"].min())
    return overlaid({"estimated": (first, "r_pos"), "optimal": (first, "optimal_r_pos")})


def figure_1d(scores: pd.DataFrame) -> Figure:
    """What weighting gives: mean mAP over seeds by ratio. scores: row (uniform, estimated), ratio, map (percent)."""
    figure, ax = style.axes(3.4, 3.6)
    means = scores.groupby(["row", "ratio"])["map"].mean()
    for row, look in zip(("uniform", "estimated"), style.LINES, strict=False):
        line = means.loc[row]
        ax.plot(100 * line.index, line, **look, label=f"{row} weights")
    ax.set_xticks(sorted(100 * scores["ratio"].unique()))
    ax.set_xlabel("labelled images (%)")
    ax.set_ylabel("mAP on test images (%)")
    ax.legend(loc="lower right")
    return figure


figure_3 = early_and_late


def _at(weights: pd.DataFrame, epoch: int) -> pd.DataFrame:
    return weights[weights["epoch"] == epoch]
