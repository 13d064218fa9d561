"""Calls of this project's functions while a stage is trained, counted."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

PACKAGE = str(Path(__file__).parents[2] / "dicap")


@contextmanager
def counted(tell: Callable[[int], Any]) -> Iterator[None]:
    """From where a stage begins to where it ends, tell the number of each call in the main thread."""
    from stages.support import training

    original, seen = training.run_stage, 0

    def look(frame: Any, event: str, _: Any) -> None:
        nonlocal seen
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            seen += 1
            tell(seen)

    def run_stage(*arguments: Any, **options: Any) -> None:
        before = sys.getprofile()
        sys.setprofile(look)
        try:
            original(*arguments, **options)
        finally:
            sys.setprofile(before)

    with patch.object(training, "run_stage", run_stage):
        yield
