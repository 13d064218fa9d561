"""Faults are done to a copy of a finished project; `FAULTS=long` (make faults) does more of them and prints what was tried."""

import resource
import shutil
import subprocess
from collections import Counter
from contextlib import contextmanager

import pytest
import tiny
from place import LONG, Place


@pytest.fixture(scope="module")
def undisturbed(raw_photos, tmp_path_factory) -> Place:
    """A project in which every stage ran without a disturbance; not to be written to."""
    place = Place.made(tmp_path_factory.mktemp("undisturbed"), tiny.CHANGES | {"data_root": str(raw_photos)})
    for stage in ("convert", "split", "warmup", "pseudo-label", "train", "finetune"):
        place.done(stage)
    return place


@pytest.fixture
def place(undisturbed, tmp_path) -> Place:
    """A copy of it."""
    return undisturbed.copy(tmp_path / "project")


@pytest.fixture
def scarce(tmp_path, record_property):
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
    record_property("means", "a full tmpfs" if mounted else "RLIMIT_FSIZE")

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


def pytest_terminal_summary(terminalreporter):
    """What was tried and what was lost, by kind of fault."""
    if not LONG:
        return
    tried, lost, means = Counter(), Counter(), set()
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            properties = dict(getattr(report, "user_properties", []))
            if "fault" in properties and (report.when == "call" or outcome == "error"):
                tried[properties["fault"]] += properties.get("tried", 1)
                lost[properties["fault"]] += outcome != "passed"
                means |= {properties["means"]} if "means" in properties else set()
    terminalreporter.section("what was tried")
    for kind in sorted(tried):
        how = f"  ({', '.join(sorted(means))})" if kind == "disk full" else ""
        terminalreporter.write_line(f"{kind:<28} {tried[kind]:>4} tried, {lost[kind]} lost{how}")
    terminalreporter.write_line(f"{'in all':<28} {sum(tried.values()):>4} tried, {sum(lost.values())} lost")
