"""Faults are done to a copy of a finished project; `make faults` does more of them (the marker `slow`)."""

import resource
import shutil
import subprocess
from contextlib import contextmanager

import pytest
import tiny
from project import Project


@pytest.fixture(scope="module")
def undisturbed(raw_photos, tmp_path_factory) -> Project:
    """A project in which every stage ran without a disturbance; not to be written to."""
    place = Project.made(tmp_path_factory.mktemp("undisturbed"), tiny.CHANGES | {"data_root": str(raw_photos)})
    for stage in ("convert", "split", "warmup", "pseudo-label", "train", "finetune"):
        place.done(stage)
    return place


@pytest.fixture
def place(undisturbed, tmp_path) -> Project:
    """A copy of it."""
    return undisturbed.copy(tmp_path / "project")


@pytest.fixture
def scarce(tmp_path):
    """A function from a project to a copy of it on a disk that can be made full: (copy, full), `full(n)` leaving n bytes.

    The disk is a small tmpfs. Where mounting is not permitted, no file may grow beyond n bytes instead (RLIMIT_FSIZE).
    """
    mount = tmp_path / "disk"
    mount.mkdir()
    try:
        command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(mount)]
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False

    @contextmanager
    def ballast(n):
        path = mount / "ballast"
        free = shutil.disk_usage(mount).free - n
        path.write_bytes(bytes(free))
        try:
            yield
        finally:
            path.unlink()

    @contextmanager
    def limit(n):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (n, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    try:
        yield lambda place: (place.copy(mount / "project"), ballast if mounted else limit)
    finally:
        if mounted:
            subprocess.run(["umount", str(mount)], check=True)
