"""Sweeps on a real cluster of two nodes: results are experiments of DVC, and kills of worker, node and driver lose nothing."""

import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import tiny
from lab import clusters
from repository.test_pipeline import Clone, committed

pytestmark = [pytest.mark.pipeline, pytest.mark.slow, pytest.mark.timeout(7200)]  # the short form is in tests/lab/test_cell.py
SHORT = tiny.CHANGES | {"warmup.epochs": 1, "warmup.eval_every": 1, "train.epochs": 1, "finetune.epochs": 1}
FOUR = "title: Four\ntable: main\naxes: {method: [mld, topk], seed: [1, 2]}\n"
# Long enough for three kills, each after a saved epoch of a third of a second.
ONE = "title: One\ntable: main\nsettings: {train.epochs: 300, train.eval_every: 300}\naxes: {method: [dicap], seed: [1]}\n"
OUTS = ("artifacts/warmup", "artifacts/train", "artifacts/finetune")


def project(place: Path) -> Clone:
    """The project with two grids, committed."""
    clone = committed(place, SHORT)
    for name, text in (("four", FOUR), ("one", ONE)):
        (clone.folder / f"{name}.yaml").write_text(text)
    clone.run("git", "add", "-A")
    clone.run("git", "commit", "-q", "-m", "grids")
    return clone


@pytest.fixture
def cluster():
    """Slurm's."""
    try:
        found = clusters.Slurm()
    except clusters.Unavailable as reason:
        pytest.skip(str(reason))
    yield found
    found.close()


def sweep(clone: Clone, cluster: clusters.Slurm, grid: str) -> subprocess.Popen:
    """The command on a cluster, begun."""
    environment = clone.env | cluster.environment
    environment |= {key: clone.env[key] for key in ("PYTHONPATH", "DICAP_DEVICE", "OMP_NUM_THREADS")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{cluster.environment['PATH']}"
    command = (sys.executable, "-m", "stages.cli", "sweep", f"{grid}.yaml", "--on", "slurm")
    return cluster.start(*command, cwd=clone.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen) -> str:
    output, _ = process.communicate(timeout=3600)
    assert process.returncode == 0, output
    return output


def experiments(clone: Clone) -> list[str]:
    """Names, one for each time that it is listed."""
    return clone.run("git", "for-each-ref", "--format=%(refname)", "refs/exps/??/*/*").split()


def test_a_grid_on_two_nodes_is_experiments_of_dvc(cluster, tmp_path):
    clone = project(tmp_path)
    output = ended(sweep(clone, cluster, "four"))
    assert "4 of 4 cells finished" in output, output
    assert len(experiments(clone)) == 4
    shown = clone.run("dvc", "exp", "show", "--csv")
    assert all(f"{name.split('/')[-1]}" in shown for name in experiments(clone))
    table = clone.run("dicap-stage", "table", "main")
    assert "MLD" in table and "Top-k" in table, table
    logs = [log.read_text() for log in (clone.folder / ".dicap" / "sweep").glob("*.log")]
    assert len(logs) == 4 and sum("Running stage 'convert'" in log for log in logs) == 1, "it was converted once"
    output = ended(sweep(clone, cluster, "four"))
    assert "4 cells, 4 finished, 0 to run" in output and len(experiments(clone)) == 4


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """A project whose one cell ran on this machine without a disturbance; copies of its beginning, what it made."""
    place = tmp_path_factory.mktemp("sweeps")
    clone = project(place)
    shutil.copytree(clone.folder, place / "beginning", symlinks=True)
    assert "1 of 1 cells finished" in clone.run("dicap-stage", "sweep", "one.yaml")
    return place / "beginning", made(clone)


def made(clone: Clone) -> dict[str, str]:
    """The checksums of the models of the one experiment."""
    (ref,) = experiments(clone)
    lock = clone.run("git", "show", f"{ref}:dvc.lock")
    return {out: re.search(rf"- path: {out}\n\s+hash: md5\n\s+md5: (\S+)", lock)[1] for out in OUTS}


class Training:
    """The one cell's training on a cluster."""

    def __init__(self, clone: Clone, cluster: clusters.Slurm) -> None:
        self.clone, self.cluster = clone, cluster

    def goes_on(self) -> psutil.Process:
        """Wait until it has saved a state after this moment; the cell that it belongs to."""
        begin = time.time()
        tiny.wait_until(lambda: any(path.stat().st_mtime > begin for path in self._states()), seconds=1200)
        (trainer,) = self.processes()
        return next(each for each in trainer.parents() if "stages.lab.sweeps.cell" in each.cmdline())

    def processes(self) -> list[psutil.Process]:
        """Those that train."""
        found = []
        for process in self.cluster.find(" train"):  # as a module or as the installed command
            with suppress(psutil.NoSuchProcess):
                found += [process] if process.cmdline()[-1] == "train" and "sh" not in process.name() else []
        return found

    def gone(self, *processes: psutil.Process) -> None:
        """Wait until they run no more."""
        tiny.wait_until(lambda: not any(map(tiny.alive, processes)), seconds=1200)

    def _states(self) -> list[Path]:
        return [path for path in self.clone.folder.glob(".dicap/state/train-*/state.pt") if path.exists()]


@pytest.mark.promise(
    "If the worker, node or driver of a sweep's cell is killed on Slurm, the cell ends in the same bytes and runs once",
    section="Kills, full disks and damage",
)
def test_kills_of_worker_node_and_driver_lose_nothing(cluster, undisturbed, tmp_path):
    beginning, before = undisturbed
    clone = Clone(tmp_path / "clone")
    shutil.copytree(beginning, clone.folder, symlinks=True)
    training = Training(clone, cluster)
    driver = sweep(clone, cluster, "one")

    cell = training.goes_on()
    trainers = training.processes()
    cell.parent().kill()
    training.gone(cell, *trainers)

    cell = training.goes_on()
    trainers = training.processes()
    daemon, worker = cluster.daemon(cell), cell.parent()
    daemon.kill()
    worker.kill()
    training.gone(cell, *trainers)

    cell = training.goes_on()
    trainers = training.processes()
    assert len(trainers) == 1
    sweeping = psutil.Process(driver.pid).children(recursive=True)  # of nsenter, which is not in the namespace itself
    assert any("sweep" in process.cmdline() for process in sweeping)
    for process in sweeping:
        process.kill()
    driver.communicate(timeout=60)
    output = ended(sweep(clone, cluster, "one"))
    # The cells go on without the sweep, and may be finished when it is asked again.
    assert "1 of 1 cells finished" in output or "1 finished, 0 to run" in output, output
    assert made(clone) == before
    (log,) = (clone.folder / ".dicap" / "sweep").glob("*.log")
    assert log.read_text().count("resuming train after") >= 2
    assert not training.processes() and not cluster.find("stages.lab.sweeps.cell")
    assert "1 cells, 1 finished, 0 to run" in ended(sweep(clone, cluster, "one"))
