"""Figures of calibration: correctness curves, estimated and true, reliability diagrams, and weights of pseudo-labels."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dicap.report import style


def correctness(weights: pd.DataFrame) -> Figure:
    """Share of positives per confidence bin at one epoch: estimated on D_est, and the true share if known; counts below.

    weights: rows of one epoch (bin, left, right, n_pos, n_neg, r_pos, optimal_r_pos, ...).
    """
    figure, top = _above_counts(weights, weights["n_pos"] + weights["n_neg"], "confidence of the network")
    _curves(top, weights)
    top.set_ylabel("share of positives")
    style.legend_above(top, columns=3)
    return figure


def overlaid(curves: Mapping[str, tuple[pd.DataFrame, str]]) -> Figure:
    """Several curves in one figure. curves: {name: (frame of one epoch's bins, column)}."""
    figure, ax = style.axes(3.4, 3.6)
    for (name, (frame, column)), look in zip(curves.items(), style.LINES, strict=False):
        ax.plot(_centre(frame), frame[column], **look, label=name)
    _diagonal(ax)
    ax.set_xlim(-0.02, 1.02)
    ax.set_ylim(-0.03, 1.03)
    ax.set_xlabel("confidence of the network")
    ax.set_ylabel("share of positives")
    ax.legend(loc="upper left")  # curves are rarely above the diagonal
    return figure


def early_and_late(weights: pd.DataFrame) -> Figure:
    """Estimated and true curve of the first and of the last epoch, side by side. weights: all epochs."""
    epochs = sorted(weights["epoch"].unique())
    figure = style.canvas(2.9)
    axes = figure.subplots(1, 2, sharey=True)
    for ax, epoch in zip(axes, (epochs[0], epochs[-1]), strict=True):
        _curves(ax, weights[weights["epoch"] == epoch])
        ax.set_title(f"epoch {epoch}", fontsize=9, color=style.INK, loc="left")
        ax.set_xlabel("confidence")
    axes[0].set_ylabel("share of positives")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper left", ncols=3)
    return figure


def reliability(bins: pd.DataFrame, across: str = "score of the network", up: str = "share of positives") -> Figure:
    """Reliability diagram on the test images. bins: left, right, n, chance, share; across, up: labels of the axes."""
    figure, top = _above_counts(bins, bins["n"], across)
    _diagonal(top)
    top.plot(bins["chance"], bins["share"], color=style.BLUE, marker="o", label="observed")
    top.set_ylabel(up)
    style.legend_above(top, columns=2)
    return figure


def weights(frame: pd.DataFrame) -> Figure:
    """Histogram of one epoch's pseudo-label weights, with a logarithmic count axis. frame: label, left, right, n."""
    figure, ax = style.axes(2.9)
    for shift, kind, name, colour in ((-0.22, 1, "positive", style.BLUE), (0.22, 0, "negative", style.VERMILLION)):
        part = frame[frame["label"] == kind]
        width = (part["right"] - part["left"]).to_numpy()
        ax.bar(_centre(part) + shift * width, part["n"], width=0.42 * width, color=colour, linewidth=0, label=f"{name} labels")
    ax.set_yscale("log")
    ax.set_ylim(0.7, max(10.0, 2.0 * float(frame["n"].max())))
    ax.set_xlim(-0.01, 1.01)
    ax.set_xlabel("weight")
    ax.set_ylabel("entries")
    ax.grid(visible=False, axis="x")
    style.legend_above(ax)
    return figure


def _above_counts(bins: pd.DataFrame, entries: pd.Series, across: str) -> tuple[Figure, Axes]:
    """A figure with the number of entries per bin along its lower edge; returns it and the axes above."""
    figure = style.canvas(3.9)
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3.2, 1])
    width = (bins["right"] - bins["left"]).to_numpy()
    bottom.bar(_centre(bins), entries.to_numpy(dtype=float), width=width * 0.86, color=style.BLUE, alpha=0.35, linewidth=0)
    bottom.set_yscale("log")
    bottom.set_ylim(0.7, max(10.0, float(entries.max()) * 2))
    bottom.set_ylabel("entries")
    bottom.set_xlabel(across)
    figure.align_ylabels([top, bottom])
    return figure, top


def _curves(ax: Axes, weights: pd.DataFrame) -> None:
    centre = _centre(weights)
    _diagonal(ax)
    counted = np.flatnonzero(weights["n_pos"] + weights["n_neg"]).tolist()  # rates of empty bins are filled in: no marker
    ax.plot(centre, weights["r_pos"], color=style.BLUE, marker="o", markevery=counted, label="estimated")
    optimal = weights["optimal_r_pos"].to_numpy(dtype=float)
    if np.isfinite(optimal).any():
        # Bins without entries are not drawn; markers show a single bin between two such bins.
        ax.plot(centre, optimal, color=style.VERMILLION, linestyle="--", marker=".", label="optimal")
    ax.set_ylim(-0.03, 1.03)
    ax.set_xlim(-0.02, 1.02)


def _diagonal(ax: Axes) -> None:
    ax.plot([0, 1], [0, 1], color=style.GREY, linewidth=1, linestyle=":", label="confidence itself")


def _centre(frame: pd.DataFrame) -> np.ndarray:
    return ((frame["left"] + frame["right"]) / 2).to_numpy()
