"""Slurm itself, two nodes on this machine: small jobs. Cells, and kills, in tests/faults/test_sweeps.py."""

import sys
import textwrap

import pytest
import tiny

from lab.engines import clusters

# What a sweep does with an engine, and what comes of it.
SCRIPT = """
import pathlib, sys
from dicap.errors import DataError
from stages.lab.sweeps.engines import open_engine
from stages.lab.sweeps.engines.base import Job, reason_in
name, folder = sys.argv[1], pathlib.Path(sys.argv[2])
engine = open_engine(name, None)
def job(name, script, **options):
    return Job(name, ("sh", "-c", script), folder, folder / f"{name}.log", **options)
for wish in ({"cpus": 64}, {"gpus": 1}):
    try:
        engine.check(job("large", "true", **wish))
    except DataError as error:
        print("refused:", error)
engine.check(job("first", "true"))
engine.submit(job("first", "echo $COLOUR; pwd", environment={"COLOUR": "red"}))
engine.submit(job("fails", "echo Error: no luck; exit 3"))
engine.submit(job("next", "cat first.log", after=("first",)))
engine.submit(job("never", "true", after=("fails",)))
for name, succeeded in engine.watch():
    print(name, succeeded, engine.reason(name) or (reason_in(folder / f"{name}.log") if not succeeded else ""))
"""


@pytest.mark.timeout(600)
def test_jobs_run_wait_for_others_fail_and_are_refused(tmp_path):
    try:
        cluster = clusters.Slurm()
    except clusters.Unavailable as reason:
        pytest.skip(str(reason))
    try:
        listening = cluster.run("ss", "-lntH").stdout.splitlines()
        assert listening and all("127.0.0.1" in line.split()[3] for line in listening), listening
        same = cluster.run(sys.executable, "-c", "import sys; print(sys.version)").stdout.strip()
        assert same == sys.version, "its libraries are not those of the cluster's system"
        environment = {"PYTHONPATH": str(tiny.ROOT)}
        done = cluster.run(sys.executable, "-c", textwrap.dedent(SCRIPT), "slurm", str(tmp_path), env=environment, timeout=300)
    finally:
        cluster.close()
    assert done.returncode == 0, done.stdout
    refused = [line for line in done.stdout.splitlines() if line.startswith("refused:")]
    assert len(refused) == 2, done.stdout
    ends = dict(line.split(" ", 1) for line in done.stdout.splitlines() if not line.startswith(("refused:", "Warning")))
    assert ends["first"].strip() == ends["next"].strip() == "True", done.stdout
    assert ends["fails"] == "False Error: no luck" and ends["never"].startswith("False "), done.stdout
    assert (tmp_path / "next.log").read_text() == f"red\n{tmp_path}\n"
