"""Figures of training: scores, losses and gradients over the epochs of all stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dicap.metrics.ledger import HARDLY
from dicap.report import style

MOST_TICKS = 16  # maximum number of ticks along the lower edge
STEPS = tuple(digit * 10**power for power in range(6) for digit in (1, 2, 5))  # possible distances of two ticks

_TERMS = {  # term of the ledger: name and look of its line
    "sup": ("supervised", style.look(style.BLUE, "--", "s")),
    "pseudo": ("pseudo-labels", style.look(style.VERMILLION, "-.", "^")),
    "con": ("contrastive", style.look(style.GREEN, ":", "D")),
}
Line = tuple[str, str, dict[str, Any]]  # column, name, look
_STAGE_NAMES = {"warmup": "warm-up", "train": "main", "finetune": "fine-tuning"}


def scores(history: pd.DataFrame) -> Figure:
    """mAP of the raw and the EMA network on the test images, per epoch. `history`: see `Evidence.history`."""
    ema = ("map_ema", "EMA network", style.look(style.BLUE, "-", "o"))
    raw = ("map_raw", "raw network", style.look(style.ORANGE, "--", "s"))
    return _lines(history, [ema, raw], "mAP on test images (%)")


def losses(history: pd.DataFrame) -> Figure:
    """Training losses per epoch on a logarithmic scale; values of 0 or below are left out."""
    total = ("loss", "total", style.look(style.INK, "-", "o"))
    return _lines(history, [total, *((f"loss_{term}", *line) for term, line in _TERMS.items())], "training loss", log=True)


def gradients(history: pd.DataFrame) -> Figure:
    """Each term's share of the gradient per epoch on a logarithmic scale; a dotted line marks the share HARDLY."""
    norms = history[[f"grad_{term}" for term in _TERMS]]
    shares = history.assign(**{str(term): norms[term] / norms.sum(axis=1) for term in norms})
    figure = _lines(shares, [(f"grad_{term}", *line) for term, line in _TERMS.items()], "share of the gradient", log=True)
    (ax,) = figure.axes
    ax.axhline(HARDLY, color=style.GREY, linewidth=1, linestyle=":")
    ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
    return figure


def by_epoch(history: pd.DataFrame, columns: Mapping[str, str], up: str) -> Figure:
    """Columns of the history, {column: name}, by epoch. up: label of the vertical axis."""
    return _lines(history, [(*line, look) for line, look in zip(columns.items(), style.LINES, strict=False)], up)


def _lines(history: pd.DataFrame, columns: Sequence[Line], up: str, *, log: bool = False) -> Figure:
    """Columns of the history by epoch, each with its name and look; a logarithmic scale leaves out values of 0 or below."""
    figure, ax = style.axes()
    for column, label, look in columns:
        shown = history[history[column].notna() & ((history[column] > 0) | (not log))]
        for _, part in shown.groupby("stage", sort=False):  # one line per stage, because a stage may start from other weights
            interval = max(1, len(part) // 12)
            ax.plot(part["position"], part[column], **look, markersize=3, markevery=interval, label=label)
            label = None  # one legend entry per column
    if log:
        ax.set_yscale("log")
    ax.set_ylabel(up)
    _epochs(ax, history)
    style.legend_above(ax)
    return figure


def _epochs(ax: Axes, history: pd.DataFrame) -> None:
    """Name the stages along the lower edge and shade every other stage; epochs count from 0 in each stage, as in history.csv."""
    ax.set_xlabel("epoch of each stage", labelpad=16)
    interval = next(step for step in STEPS if len(history) <= MOST_TICKS * step)
    ticked = history[history["epoch"] % interval == 0]
    ax.set_xticks(ticked["position"], [str(int(epoch)) for epoch in ticked["epoch"]])
    ax.grid(visible=False, axis="x")
    ax.set_xlim(history["position"].min() - 0.6, history["position"].max() + 0.6)
    for number, (stage, part) in enumerate(history.groupby("stage", sort=False)):
        left, right = part["position"].min() - 0.5, part["position"].max() + 0.5
        if number % 2 == 0:
            ax.axvspan(left, right, color=style.GRID, alpha=0.45, linewidth=0, zorder=0)
        look: dict[str, Any] = {"ha": "center", "va": "center", "color": style.MUTED, "fontsize": 8.5}
        ax.text(float(left + right) / 2, -0.14, _STAGE_NAMES[str(stage)], transform=ax.get_xaxis_transform(), **look)
