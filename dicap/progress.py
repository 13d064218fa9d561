"""Progress of long work on stderr: a bar on a terminal, a plain line every few seconds elsewhere."""

import os
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


def progress(items: Iterable[T], *, desc: str, total: int | None = None, unit: str = "it", initial: int = 0) -> Iterator[T]:
    """Iterate over `items` while showing how far the work is; silently where DICAP_QUIET is set."""
    if os.environ.get("RANK", "0") != "0":  # of several processes one shows it
        yield from items
        return
    terminal = sys.stderr.isatty()
    yield from tqdm(
        items,
        desc=desc,
        total=total,
        unit=unit,
        initial=initial,
        disable=bool(os.environ.get("DICAP_QUIET")),
        leave=not terminal,
        mininterval=0.2 if terminal else 10.0,
        maxinterval=1.0 if terminal else 30.0,
        ascii=None if terminal else " #",
        dynamic_ncols=terminal,
        file=_Lines() if not terminal else sys.stderr,
    )


class _Lines:
    """A file that turns a bar's carriage returns into whole lines, so that logs stay readable."""

    def write(self, text: str) -> int:
        line = text.replace("\r", "").strip()
        if line:
            sys.stderr.write(line + "\n")
        return len(text)

    def flush(self) -> None:
        sys.stderr.flush()
