"""What the network was taught from the unlabelled images: shares, weights, thresholds, precision."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from dicap.report import style

KINDS = {1: ("positive", style.BLUE), 0: ("negative", style.VERMILLION), -1: ("uncertain", style.GREY)}
MOST_COLUMNS = 48  # epochs in a heat map: more would be thinner than a line
MOST_CLASSES = 100  # rows in a figure of classes


def shares(frame: pd.DataFrame) -> Figure:
    """Shares of confident positive, uncertain and confident negative entries per epoch, stacked to 100 %."""
    figure = style.canvas(2.9)
    ax = figure.add_subplot()
    bottom = np.zeros(len(frame))
    for kind in (1, -1, 0):
        name, colour = KINDS[kind]
        ax.bar(
            frame["epoch"], frame[name], bottom=bottom, width=0.9, color=colour,
            alpha={1: 0.9, -1: 0.4, 0: 0.65}[kind], linewidth=0, label=name,
        )  # fmt: skip
        bottom = bottom + frame[name].to_numpy()
    ax.set_ylim(0, 1)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.set_ylabel("share of entries")
    _epoch_axis(ax, frame["epoch"])
    style.legend_above(ax)
    return figure


def weight_histograms(frame: pd.DataFrame) -> Figure:
    """Heat map of the weights over epochs, positives above negatives; each column adds up to one.

    frame: epoch, label, left, right, n. Darkness grows with the square root of the share; the line is the mean weight.
    """
    figure = style.canvas(3.9)
    axes = figure.subplots(2, 1, sharex=True)
    epochs = np.array(sorted(frame["epoch"].unique()))
    if len(epochs) > MOST_COLUMNS:
        epochs = epochs[np.unique(np.linspace(0, len(epochs) - 1, MOST_COLUMNS).round().astype(int))]
    edges = np.concatenate([epochs - _half(epochs), [epochs[-1] + _half(epochs)]])
    for ax, kind in zip(axes, (1, 0), strict=True):
        name, colour = KINDS[kind]
        table = frame[(frame["label"] == kind) & frame["epoch"].isin(epochs)]
        counts = table.pivot(index="left", columns="epoch", values="n").to_numpy(dtype=float)  # (bins, epochs)
        share = counts / np.maximum(counts.sum(axis=0), 1)
        bins = np.append(np.sort(table["left"].unique()), table["right"].max())
        # One hue from clear to full, so that the map reads on white and on black alike.
        shade = LinearSegmentedColormap.from_list(name, [to_rgba(colour, 0.0), to_rgba(colour, 1.0)])
        ax.pcolormesh(edges, bins, np.sqrt(share), cmap=shade, vmin=0, vmax=1, linewidth=0)
        centre = (bins[:-1] + bins[1:]) / 2
        mean = np.where(counts.sum(axis=0) > 0, centre @ share, np.nan)
        ax.plot(epochs, mean, color=style.INK, linewidth=1.2, marker="o", markersize=2.5, label="mean weight")
        ax.set_ylim(0, 1)
        ax.set_ylabel(f"weight, {name}s")
        ax.grid(visible=False)
    style.legend_above(axes[0])
    _epoch_axis(axes[1], pd.Series(epochs))
    figure.align_ylabels(list(axes))
    return figure


def weight_bars(frame: pd.DataFrame) -> Figure:
    """Histogram of the weights of one epoch. frame: label, left, right, n; a logarithmic count axis."""
    figure = style.canvas(2.9)
    ax = figure.add_subplot()
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


def precision_by_epoch(history: pd.DataFrame) -> Figure:
    """Precision of confident pseudo-labels against the hidden labels. history: epoch, precision_pos, precision_neg."""
    figure = style.canvas(2.9)
    ax = figure.add_subplot()
    for column, kind, marker, dash in (("precision_pos", 1, "o", "-"), ("precision_neg", 0, "s", "--")):
        name, colour = KINDS[kind]
        part = history[history[column].notna()]
        ax.plot(part["epoch"], part[column], color=colour, marker=marker, markersize=3, linestyle=dash, label=f"{name} labels")
    lowest = float(np.nanmin(history[["precision_pos", "precision_neg"]].to_numpy(dtype=float)))
    ax.set_ylim(max(0.0, np.floor(lowest * 10 - 0.5) / 10), 1.005)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_ylabel("share that is right")
    _epoch_axis(ax, history["epoch"])
    style.legend_above(ax)
    return figure


def thresholds(frame: pd.DataFrame) -> Figure:
    """The uncertain band of every class, between its two thresholds, the widest band on top. frame: one epoch."""
    frame = frame.assign(width=(frame["tau_pos"] - frame["tau_neg"]).abs()).sort_values(["width", "class"], kind="stable")
    frame = frame.tail(MOST_CLASSES)
    rows = np.arange(len(frame))
    figure = style.canvas(class_height(len(frame)))
    ax = figure.add_subplot()
    ax.hlines(rows, frame["tau_neg"], frame["tau_pos"], color=style.GREY, linewidth=3, alpha=0.45, label="uncertain band")
    ax.scatter(frame["tau_neg"], rows, s=18, color=style.VERMILLION, marker="s", linewidth=0, zorder=3, label="negative below")
    ax.scatter(frame["tau_pos"], rows, s=22, color=style.BLUE, linewidth=0, zorder=3, label="positive above")
    ax.set_xlim(-0.03, 1.03)
    ax.set_xlabel("confidence of the network")
    name_rows(ax, list(frame["class"]))
    figure.legend(loc="outside upper left", ncols=3)
    return figure


def class_height(classes: int) -> float:
    """Height in inches of a figure with one row per class."""
    return 0.85 + max(1.4, 0.17 * classes)


def name_rows(ax: Axes, names: list[str]) -> None:
    """Class names along the y axis, as they are: never read as a formula."""
    ax.set_yticks(np.arange(len(names)), [style.short(name) for name in names])
    for label in ax.get_yticklabels():
        style.plain(label)
    ax.set_ylim(-0.7, len(names) - 0.3)
    ax.tick_params(axis="y", length=0, labelsize=8)
    ax.grid(visible=False, axis="y")


def _epoch_axis(ax: Axes, epochs: pd.Series) -> None:
    ax.set_xlabel("epoch of the main stage")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
    ax.set_xlim(float(epochs.min()) - 0.6, float(epochs.max()) + 0.6)
    ax.grid(visible=False, axis="x")


def _half(epochs: np.ndarray) -> float:
    return 0.5 if len(epochs) < 2 else float(np.diff(epochs).mean()) / 2
