"""Experiments against one another: their scores."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

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
