"""Estimators of the correctness rate against the number of images they are fitted on."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from dicap.report import style

_LINES = [
    (style.VERMILLION, "--", "s"), (style.ORANGE, "-.", "D"), (style.GREY, ":", "v"),
    (style.BLUE, "-", "o"), (style.SKY, "-", "P"), (style.GREEN, "-", "^"),
]  # fmt: skip


def study(table: pd.DataFrame) -> Figure:
    """Error and excess log loss by size of D_est, one line per estimator; bands are 95 % intervals of the mean.

    table: estimator, size, error, error_half, excess, excess_half (`estimator_study.summary`).
    """
    figure = style.canvas(4.2, 7.4)
    axes = figure.subplots(1, 2)
    for ax, column, scale, label in zip(
        axes, ("error", "excess"), (1.0, 1000.0), ("mean error of the rate", "excess log loss, thousandths"), strict=True
    ):
        for (name, part), (colour, dash, marker) in zip(table.groupby("estimator", sort=False), _LINES, strict=False):
            middle, half = scale * part[column], scale * part[f"{column}_half"]
            ax.plot(part["size"], middle, color=colour, linestyle=dash, marker=marker, label=str(name))
            ax.fill_between(part["size"], middle - half, middle + half, color=colour, alpha=0.15, linewidth=0)
        ax.set_xscale("log")
        ax.set_xticks(sorted(table["size"].unique()), [str(size) for size in sorted(table["size"].unique())])
        ax.minorticks_off()
        ax.set_xlabel("images in D_est")
        ax.set_ylabel(label)
    axes[1].set_yscale("symlog", linthresh=1.0)
    axes[1].axhline(0, color=style.INK, linewidth=0.8)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure
