"""The common style of all figures: colours, sizes, and the conversion of a Figure into SVG text.

The colours are the eight of Okabe and Ito, which are distinguishable with every kind of colour vision. Every figure also tells
lines apart by markers, dashes or labels. Figures are `Figure` objects; pyplot, with its global state, is never imported.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dicap.files.written import replacing_own

INK, MUTED, GRID = "#1f2933", "#65717d", "#e2e6ea"
BLUE, ORANGE, GREEN, VERMILLION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
SKY, PURPLE, GREY = "#56b4e9", "#cc79a7", "#8a949e"


def look(colour: str, dash: str, marker: str) -> dict[str, Any]:
    """Keyword arguments of `plot` for a line with its own colour, dash and marker, distinguishable in print too."""
    return {"color": colour, "linestyle": dash, "marker": marker}


# More lines than these cannot be told apart.
LINES = (
    look(BLUE, "-", "o"), look(VERMILLION, "--", "s"), look(GREEN, "-.", "^"), look(ORANGE, ":", "D"),
    look(PURPLE, "-", "v"), look(SKY, "--", "P"), look(INK, "-.", "X"), look(GREY, ":", "*"),
)  # fmt: skip

WIDTH, HEIGHT = 5.0, 3.3  # inches: two figures fit side by side on a desktop, one on a phone, with 9-point text

_RC: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays searchable and uses the reader's font
    "svg.hashsalt": "dicap",  # the ids of clip paths would otherwise be random
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",  # bundled with matplotlib, so the layout is the same on every machine
    "font.size": 9.0,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.2,
    "legend.borderaxespad": 0.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "axes.grid": True,
    "grid.color": GRID,
    "axes.axisbelow": True,
    "lines.linewidth": 1.7,
    "lines.markersize": 4.0,
}

_STACK = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"


@contextmanager
def house_style() -> Iterator[None]:
    """A block with the settings above; draw and save figures inside it. Afterwards matplotlib's own settings are restored."""
    with matplotlib.rc_context(_RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # in class names; the reader's fonts have them
        yield


def canvas(height: float = HEIGHT, width: float = WIDTH) -> Figure:
    """An empty figure; sizes in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def axes(height: float = HEIGHT, width: float = WIDTH) -> tuple[Figure, Axes]:
    """A figure (see `canvas`) with one set of axes."""
    figure = canvas(height, width)
    return figure, figure.add_subplot()


def legend_above(ax: Axes, columns: int = 4, **options) -> None:
    """Put the legend above the axes, left-aligned, so that it never covers data."""
    ax.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=columns, **options)


def to_svg(figure: Figure) -> str:
    """The figure as a standalone SVG document on white; equal drawings give equal bytes.

    Document type and metadata are removed, so that the file contains no external address.
    """
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg ") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = text.replace("'DejaVu Sans'", _STACK)
    head, rest = text.split(">", 1)
    return f'{head}>\n <rect width="100%" height="100%" style="fill: #ffffff"/>{rest}'


def save(figure: Figure, path: Path) -> None:
    """Write the figure as `.svg` or `.pdf`, by the path's ending, atomically and without a date."""
    assert path.suffix in (".svg", ".pdf"), path
    with replacing_own(path) as temporary:
        if path.suffix == ".svg":
            temporary.write_text(to_svg(figure), encoding="utf-8")
        else:
            figure.savefig(temporary, format="pdf", metadata={"CreationDate": None})
