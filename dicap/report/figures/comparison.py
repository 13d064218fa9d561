"""Experiments against one another: their scores, and their way there."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from dicap.report import style


def finals(frame: pd.DataFrame) -> Figure:
    """Final scores by label, best mean on top. frame: label, seed, map (percent)."""
    means = frame.groupby("label")["map"].mean().sort_values()
    rows = {label: row for row, label in enumerate(means.index)}
    figure = style.canvas(max(1.6, 0.9 + 0.27 * len(means)))
    ax = figure.add_subplot()
    y = frame["label"].map(rows)
    ax.scatter(frame["map"], y, s=26, facecolor="none", edgecolor=style.BLUE, linewidth=1.2)
    ax.vlines(means, np.arange(len(means)) - 0.3, np.arange(len(means)) + 0.3, color=style.VERMILLION, linewidth=2.2)
    ax.set_yticks(np.arange(len(means)))
    for text, label in zip(ax.set_yticklabels([style.short(str(label), 34) for label in means.index]), means.index, strict=True):
        assert text is not None and label is not None
        style.plain(text)
    ax.set_ylim(-0.6, len(means) - 0.4)
    ax.set_xlabel("mAP (%)")
    ax.grid(visible=False, axis="y")
    ax.tick_params(axis="y", length=0)
    return figure


def curves(frame: pd.DataFrame) -> Figure:
    """mAP over the main epochs by label, mean over runs; the eight that end best. frame: label, epoch, map_ema."""
    frame = frame[frame["map_ema"].notna()]
    lines = {label: part.groupby("epoch")["map_ema"].mean() for label, part in frame.groupby("label")}
    best = sorted(lines, key=lambda label: (-float(lines[label].iloc[-1]), str(label)))[: len(style.LINES)]
    figure = style.canvas(style.HEIGHT + 0.17 * ((len(best) + 1) // 2))
    ax = figure.add_subplot()
    for label, (colour, dash, marker) in zip(best, style.LINES, strict=False):
        line = lines[label]
        every = max(1, len(line) // 8)
        ax.plot(
            line.index + 1, line, color=colour, linestyle=dash, marker=marker, markevery=every,
            label=style.short(str(label), 34).replace("$", r"\$"),
        )  # fmt: skip
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    ax.set_xlabel("main epoch")
    ax.set_ylabel("mAP on test images (%)")
    style.legend_above(ax, columns=2)
    return figure
