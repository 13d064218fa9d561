"""How many photographs of a folder show each class."""

import pandas as pd
from matplotlib.figure import Figure

from dicap.report import style

MOST = 40  # classes that are drawn: the most frequent ones


def bars(table: pd.DataFrame) -> Figure:
    """A bar for each class with its 95 % interval; where the folder looks otherwise, the count by shares that changed beside it.

    table: class, count, low, high, shifted, by_shift, shift_low, shift_high, the largest count first.
    """
    table = table.head(MOST)
    figure, ax = style.axes(1.0 + 0.22 * len(table))
    place = range(len(table))
    ax.barh(place, table["count"], height=0.7, color=style.SKY)
    ax.hlines(place, table["low"], table["high"], color=style.INK, linewidth=1.3)
    shifted = table.reset_index(drop=True).loc[lambda rows: rows["shifted"].to_numpy() & rows["by_shift"].notna().to_numpy()]
    if len(shifted):
        ax.hlines(shifted.index, shifted["shift_low"], shifted["shift_high"], color=style.VERMILLION, linewidth=1.3)
        ax.plot(shifted["by_shift"], shifted.index, "D", color=style.VERMILLION, label="if the shares of classes changed")
        style.legend_above(ax)
    ax.set_yticks(place, table["class"])
    ax.invert_yaxis()
    ax.grid(visible=False, axis="y")
    ax.set_xlim(left=0)
    ax.set_xlabel("photographs that show it, with 95 % interval")
    return figure
