"""What the network was taught from the unlabelled images: shares and weights, and how true that was."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from dicap.report import style

KINDS = {1: ("positive", style.BLUE), 0: ("negative", style.VERMILLION), -1: ("uncertain", style.GREY)}


def shares(history: pd.DataFrame) -> Figure:
    """Shares of confident positive, uncertain and confident negative entries per epoch of the main stage, stacked to 100 %."""
    figure, ax = style.axes(2.9)
    bottom = np.zeros(len(history))
    for kind, column in ((1, "share_pos"), (-1, "share_uncertain"), (0, "share_neg")):
        name, colour = KINDS[kind]
        ax.bar(
            history["epoch"], history[column], bottom=bottom, width=0.9, color=colour,
            alpha={1: 0.9, -1: 0.4, 0: 0.65}[kind], linewidth=0, label=name,
        )  # fmt: skip
        bottom = bottom + history[column].to_numpy()
    ax.set_ylim(0, 1)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_ylabel("share of entries")
    _epoch_axis(ax, history["epoch"])
    style.legend_above(ax)
    return figure


def weight_bars(frame: pd.DataFrame) -> Figure:
    """Histogram of the weights of one epoch. frame: label, left, right, n; a logarithmic count axis."""
    figure, ax = style.axes(2.9)
    for shift, kind in ((-0.22, 1), (0.22, 0)):
        name, colour = KINDS[kind]
        part = frame[frame["label"] == kind]
        width = (part["right"] - part["left"]).to_numpy()
        centre = ((part["left"] + part["right"]) / 2).to_numpy()
        ax.bar(
            centre + shift * width, part["n"], width=0.42 * width, color=colour, linewidth=0,
            alpha=0.9, label=f"{name} labels",
        )  # fmt: skip
    ax.set_yscale("log")
    ax.set_ylim(0.7, max(10.0, 2.0 * float(frame["n"].max())))
    ax.set_xlim(-0.01, 1.01)
    ax.set_xlabel("weight")
    ax.set_ylabel("entries")
    ax.grid(visible=False, axis="x")
    style.legend_above(ax)
    return figure


def by_epoch(history: pd.DataFrame, columns: Mapping[str, str], up: str) -> Figure:
    """Columns of the main stage's history, {column: label}, by epoch. up: what they are."""
    figure, ax = style.axes(2.9)
    for (column, label), look in zip(columns.items(), style.LINES, strict=False):
        ax.plot(history["epoch"], history[column], **look, markersize=3, label=label)
    ax.set_ylabel(up)
    _epoch_axis(ax, history["epoch"])
    style.legend_above(ax)
    return figure


def _epoch_axis(ax: Axes, epochs: pd.Series) -> None:
    ax.set_xlabel("epoch of the main stage")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
    ax.set_xlim(float(epochs.min()) - 0.6, float(epochs.max()) + 0.6)
    ax.grid(visible=False, axis="x")
