"""One hand for every figure: colours, sizes, and how a Figure becomes SVG text.

The colours are Okabe and Ito's eight, distinguishable with every kind of colour vision; each figure repeats what a
colour says by a marker, a dash or a label. Drawings are `Figure` objects: pyplot, with its global list of figures, is
never imported.
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
    """How a line looks, as `plot` takes it: by colour, dash and marker at once it is told apart in print and on a screen."""
    return {"color": colour, "linestyle": dash, "marker": marker}


# More lines than these cannot be told apart.
LINES = (
    look(BLUE, "-", "o"), look(VERMILLION, "--", "s"), look(GREEN, "-.", "^"), look(ORANGE, ":", "D"),
    look(PURPLE, "-", "v"), look(SKY, "--", "P"), look(INK, "-.", "X"), look(GREY, ":", "*"),
)  # fmt: skip

WIDTH, HEIGHT = 5.0, 3.3  # inches: two side by side on a desktop, one across a phone, text of 9 points in both

_RC: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be searched, and takes the reader's font
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
    """Draw and save inside this block: the settings above hold within it and nothing of them stays behind."""
    with matplotlib.rc_context(_RC), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # of names: the reader's fonts have them
        yield


def canvas(height: float = HEIGHT, width: float = WIDTH) -> Figure:
    """An empty figure of the house's width, `height` inches high."""
    return Figure(figsize=(width, height), layout="constrained")


def axes(height: float = HEIGHT, width: float = WIDTH) -> tuple[Figure, Axes]:
    """A figure, see `canvas`, with one pair of axes."""
    figure = canvas(height, width)
    return figure, figure.add_subplot()


def legend_above(ax: Axes, columns: int = 4, **options) -> None:
    """Put the legend over the axes, left aligned, so that it never covers data."""
    ax.legend(loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=columns, **options)


def to_svg(figure: Figure) -> str:
    """The figure as a standalone SVG document on white, the same bytes for the same drawing.

    The document type, the metadata and matplotlib's address in it are dropped: the file names nothing outside itself.
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
