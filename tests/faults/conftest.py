"""Faults are done to a copy of a finished project; `make faults` does more of them (the marker `slow`)."""

import resource
from contextlib import contextmanager

import pytest
from project import Project


@pytest.fixture(scope="module")
def undisturbed(finished) -> Project:
    """A project in which every stage ran without a disturbance; not to be written to."""
    return Project(finished)


@pytest.fixture
def place(undisturbed, tmp_path) -> Project:
    """A copy of it."""
    return undisturbed.copy(tmp_path / "project")


@contextmanager
def full(n: int):
    """A disk on which no file may grow beyond n bytes: what writes more fails as on a full one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
