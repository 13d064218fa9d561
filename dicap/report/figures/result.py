"""The average precision of each class and the number of labels it was learnt from."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from dicap.report import style
from dicap.report.figures.pseudo_labels import MOST_CLASSES, class_height, name_rows


def per_class(frame: pd.DataFrame) -> Figure:
    """Average precision of every class, best on top, with chance marked, and its numbers of positives.

    frame: class, n_pos (test positives), n_train_labelled (labelled training positives), ap, chance (both in percent).
    More than 100 classes: the 50 best and the 50 worst.
    """
    frame = frame.sort_values(["ap", "class"], kind="stable", na_position="first")
    if len(frame) > MOST_CLASSES:
        frame = pd.concat([frame.head(MOST_CLASSES // 2), frame.tail(MOST_CLASSES // 2)])
    rows = np.arange(len(frame))
    figure = style.canvas(class_height(len(frame)))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[2.2, 1])
    left.barh(rows, frame["ap"], height=0.72, color=style.BLUE, alpha=0.85, linewidth=0, label="average precision")
    left.vlines(frame["chance"], rows - 0.36, rows + 0.36, color=style.ORANGE, linewidth=2, label="chance")
    left.set_xlim(0, 100)
    left.set_xlabel("average precision (%)")
    left.grid(visible=False, axis="y")
    name_rows(left, list(frame["class"]))
    style.legend_above(left, columns=2)
    right.scatter(np.maximum(frame["n_train_labelled"], 0.5), rows, s=20, color=style.GREEN, linewidth=0, label="labelled")
    right.scatter(
        np.maximum(frame["n_pos"], 0.5), rows, s=18, marker="D", facecolor="none", edgecolor=style.MUTED,
        linewidth=1, label="test",
    )  # fmt: skip
    right.set_xscale("log")
    right.xaxis.set_major_locator(LogLocator(numticks=4))
    right.xaxis.set_minor_locator(LogLocator(numticks=1))
    right.set_xlabel("positives (images)")
    right.grid(visible=False, axis="y")
    right.tick_params(axis="y", length=0)
    style.legend_above(right, columns=2, handletextpad=0.1)
    return figure
