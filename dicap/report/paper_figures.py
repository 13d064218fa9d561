"""The paper's figures from the Parquet artifacts of finished runs: correctness of confidences, and how well it is estimated."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dicap.report import style
from dicap.report.evidence import curve_errors

# Distinguished by colour, dash and marker at once, in print and on a screen.
_LOOKS = [
    (style.BLUE, "-", "o"),
    (style.VERMILLION, "--", "s"),
    (style.GREEN, "-.", "^"),
    (style.PURPLE, ":", "D"),
    (style.ORANGE, (0, (5, 1, 1, 1, 1, 1)), "v"),
    (style.SKY, (0, (8, 2)), "P"),
    (style.INK, (0, (1, 1)), "X"),
]


def optimal_by_epoch(curves: pd.DataFrame, most: int = 4) -> Figure:
    """The optimal curve at up to `most` epochs of one run: correctness is no fixed function of confidence."""
    epochs = np.array(sorted(curves["epoch"].unique()))
    chosen = epochs[np.unique(np.linspace(0, len(epochs) - 1, min(most, len(epochs))).round().astype(int))]
    figure = style.canvas(3.4, 3.6)
    ax = figure.add_subplot()
    _draw(ax, {f"epoch {epoch}": curves[curves["epoch"] == epoch] for epoch in chosen}, "optimal_r_pos")
    return figure


def optimal_by_ratio(runs: Mapping[float, pd.DataFrame]) -> Figure:
    """The optimal curve at the last epoch of runs with different labelled ratios: how stable it is."""
    figure = style.canvas(3.4, 3.6)
    ax = figure.add_subplot()
    lines = {f"{100 * ratio:.4g} % labelled": last_epoch(curves) for ratio, curves in sorted(runs.items())}
    _draw(ax, lines, "optimal_r_pos")
    return figure


def estimated_and_optimal(curves: pd.DataFrame, epoch: int) -> Figure:
    """Both curves at one epoch, with the weighted mean absolute error of the estimate above the legend."""
    figure = style.canvas(3.4, 3.6)
    ax = figure.add_subplot()
    now = curves[curves["epoch"] == epoch]
    centre = _centre(now)
    colour, dash, marker = _LOOKS[0]
    ax.plot(centre, now["r_pos"], color=colour, linestyle=dash, marker=marker, label="estimated")
    colour, dash, marker = _LOOKS[1]
    ax.plot(centre, now["optimal_r_pos"], color=colour, linestyle=dash, marker=marker, label="optimal")
    errors = curve_errors(now)
    _frame(ax, f"epoch {epoch}" + (f", error {errors['curve_error'].iloc[0]:.3f}" if len(errors) else ""))
    return figure


def paper_figures(curves: pd.DataFrame, ratios: Mapping[float, pd.DataFrame]) -> dict[str, Figure]:
    """Every figure that the data allows, by file name; call inside `house_style()`.

    curves: one run. ratios: runs by labelled ratio (one is enough, but shows nothing about stability).
    """
    epochs = sorted(int(epoch) for epoch in curves["epoch"].unique())
    drawn = {}
    if curves["optimal_r_pos"].notna().any():
        drawn["figure1a_optimal_by_epoch"] = optimal_by_epoch(curves)
        if len(ratios) > 1:
            drawn["figure1b_optimal_by_ratio"] = optimal_by_ratio(ratios)
    drawn["figure1c_estimated_early"] = estimated_and_optimal(curves, epochs[0])
    drawn["figure1d_estimated_late"] = estimated_and_optimal(curves, epochs[-1])
    return drawn


def last_epoch(curves: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last epoch."""
    return curves[curves["epoch"] == curves["epoch"].max()]


def _draw(ax: Axes, lines: Mapping[str, pd.DataFrame], column: str) -> None:
    for number, (label, frame) in enumerate(lines.items()):
        colour, dash, marker = _LOOKS[number % len(_LOOKS)]
        ax.plot(_centre(frame), frame[column], color=colour, linestyle=dash, marker=marker, label=label)
    _frame(ax)


def _frame(ax: Axes, title: str | None = None) -> None:
    ax.plot([0, 1], [0, 1], color=style.GREY, linewidth=0.9, linestyle=":", zorder=1)
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.03, 1.03)
    ax.set_xlabel("confidence of the network")
    ax.set_ylabel("share of positives")
    ax.legend(loc="upper left", title=title, alignment="left")  # above the diagonal, where curves seldom are


def _centre(frame: pd.DataFrame) -> np.ndarray:
    return ((frame["left"] + frame["right"]) / 2).to_numpy()
