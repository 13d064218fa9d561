"""Progress of long work on stderr: a bar on a terminal, a plain line every few seconds elsewhere."""

import os
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from statistics import median
from typing import TextIO, TypeVar

from tqdm import tqdm

T = TypeVar("T")


def progress(
    items: Iterable[T],
    *,
    desc: str,
    total: int | None = None,
    unit: str = "it",
    initial: int = 0,
    count: Callable[[T], int] = lambda item: 1,
) -> Generator[T]:
    """Iterate over `items` with a progress bar; no bar if DICAP_QUIET is set.

    `count` gives the number of units of an item, for example the images of a batch. A loop that may end early must close this
    generator (`contextlib.closing`), so that the bar's last line comes before an error message.
    """
    terminal = sys.stderr.isatty()
    with tqdm(
        items,
        desc=desc,
        total=total,
        unit=unit,
        initial=initial,
        disable=bool(os.environ.get("DICAP_QUIET")),
        leave=not terminal,
        delay=0 if terminal else 1e-9,  # any delay suppresses the first line, which would say 0 %
        mininterval=0.2 if terminal else 10.0,
        maxinterval=1.0 if terminal else 30.0,
        ascii=None if terminal else " #",
        dynamic_ncols=terminal,
        file=sys.stderr if terminal else _Lines(sys.stderr),
    ) as bar:
        for item in items:
            yield item
            bar.update(count(item))


def time_left(seconds: Sequence[float], left: int) -> str:
    """The estimated time of `left` more epochs in words, from the `seconds` of finished epochs; "" if none has finished.

    The estimate uses the median, so that one stalled epoch does not distort it.
    """
    if not seconds:
        return ""
    minutes = median(seconds) * left / 60
    if minutes < 1:
        return "less than a minute"
    return f"about {minutes:.0f} min" if minutes < 90 else f"about {minutes / 60:.1f} h"


class _Lines:
    """A file that writes a bar's updates as separate lines instead of carriage returns, so that logs stay readable."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        line = text.replace("\r", "").strip()
        self.stream.write(line + "\n" if line else "")  # also writes "", so that tqdm notices a closed stream
        return len(text)

    def flush(self) -> None:
        self.stream.flush()
