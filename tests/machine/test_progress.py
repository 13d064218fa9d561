"""Bars of work that ends early: they end with the work, and write nowhere else than where they began."""

import gc
import io
import sys
from contextlib import closing

import pytest

from dicap.machine.progress import progress, time_left


def test_a_bar_of_work_that_fails_is_closed_before_the_error_is_told(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    try:
        with closing(progress(range(3), desc="work")) as bar:
            for item in bar:
                if item == 1:
                    raise ValueError("no")
    except ValueError:
        written = stream.getvalue()
        assert written.splitlines()[-1].startswith("work:") and "1/3" in written
        gc.collect()
        assert stream.getvalue() == written


def test_in_a_log_short_work_is_one_line(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(progress(range(3), desc="work")) == [0, 1, 2]
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("work: 100%") and "3/3" in line


@pytest.mark.parametrize(
    ("seconds", "left", "words"),
    [
        ([], 4, ""),
        ([2], 4, "less than a minute"),
        ([60, 60, 9000], 4, "about 4 min"),
        ([1800], 5, "about 2.5 h"),
        ([0.0], 0, "less than a minute"),
    ],
)
def test_what_a_stage_has_left(seconds, left, words):
    assert time_left(seconds, left) == words
