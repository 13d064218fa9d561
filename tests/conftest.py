"""Fixtures: a tiny data set, experiments on it, the models its stages make, and project folders in which commands run."""

import gc
import os
import shutil
import tempfile
from functools import partial
from pathlib import Path

import pytest

# Before anything imports torch: waiting threads that spin make a step many times slower on shared cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import tiny
from hypothesis import settings
from project import Project

from dicap.methods import pclp
from dicap.network.adversary import Discriminator

# Libraries leave a million objects that stay; looking among them for garbage again and again takes a tenth of the tests' time.
gc.set_threshold(10_000, 50)

# On a busy machine an example may take any time; what is slow is seen by --durations, not by chance.
FAULTS = os.environ.get("FAULTS") == "long"  # make faults
settings.register_profile("busy", deadline=None, max_examples=100 if FAULTS else 25)
settings.load_profile("busy")

# The files that take longest, longest first. `make test` gives one file after another to whichever process is free (loadfile): a
# long one that begins last would be waited for by a process with nothing to do.
LONG = (
    "repository/test_pipeline.py",
    "training/test_every_loop.py",
    "stages/test_fit.py",
    "training/test_every_setting.py",
)


MEMORY, ENOUGH = Path("/dev/shm"), 8 * 2**30  # bytes; a whole run of the tests leaves about one GiB of files


def pytest_configure(config: pytest.Config) -> None:
    """Temporary files lie in memory where there is plenty: on a disk, a third of the tests' time goes into waiting for it.

    They are gone after the run; `--basetemp FOLDER` keeps them.
    """
    if hasattr(config, "workerinput") or config.option.basetemp or not MEMORY.is_dir():
        return
    if shutil.disk_usage(MEMORY).free >= ENOUGH:
        folder = tempfile.mkdtemp(prefix="dicap-tests-", dir=MEMORY)
        config.option.basetemp = os.path.join(folder, "pytest")
        os.environ["GIT_DISCOVERY_ACROSS_FILESYSTEM"] = "1"  # outside a repository Git says the same as on a disk
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what is slow to `make faults`; long files first; the order within a file stays."""
    slow = [] if FAULTS else [item for item in items if item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if item not in slow]
    rank = {tiny.ROOT / "tests" / name: i for i, name in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.path, len(LONG)))


def pytest_sessionfinish() -> None:
    """At the end pytest and Python look for garbage among all objects of the libraries, several times: seconds a process."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def narrow_networks():
    """Those of DRML and PCLP, with few units in each hidden layer."""
    with pytest.MonkeyPatch.context() as patch:
        for head, widths in tiny.NARROW.items():
            for name, width in widths.items():
                patch.setitem(head.__init__.__kwdefaults__, name, width)
        patch.setattr(pclp, "Discriminator", partial(Discriminator, hidden=16))
        yield


@pytest.fixture(scope="session")
def raw_photos(tmp_path_factory) -> Path:
    """48 generated images with their table; three classes that are learnable from colour."""
    return tiny.photographs(tmp_path_factory.mktemp("raw"))


@pytest.fixture(scope="session")
def tiny_set(raw_photos, tmp_path_factory) -> Path:
    """The same as a converted set; not to be written to."""
    return tiny.converted(raw_photos, tmp_path_factory.mktemp("data") / "table")


@pytest.fixture
def own_set(tiny_set, tmp_path) -> Path:
    """A copy of the tiny set that a test may change."""
    return Path(shutil.copytree(tiny_set, tmp_path / "own_set"))


@pytest.fixture
def tiny_experiment(tiny_set, tmp_path):
    """A function from changed settings (dotted keys) to an open experiment on the tiny set."""

    def make(changes=None, *, folder=tiny_set, split=None, workers=0):
        return tiny.open_experiment(folder, split or tmp_path / "split.parquet", changes, workers)

    return make


@pytest.fixture(scope="session")
def bank(tiny_set, tmp_path_factory):
    """The features of the tiny set, by a frozen backbone of random weights."""
    return tiny.features(tiny_set, tmp_path_factory.mktemp("bank") / "features")


@pytest.fixture
def frozen_experiment(tiny_set, bank, tmp_path):
    """A function from changed settings to an experiment that trains the head alone, on features."""

    def make(changes=None, *, folder=tiny_set, split=None):
        return tiny.open_experiment(folder, split or tmp_path / "split.parquet", tiny.FROZEN | (changes or {}), bank=bank)

    return make


@pytest.fixture(scope="session")
def trained(tiny_set, tmp_path_factory) -> Path:
    """A folder with warmup, train and finetune as an undisturbed run of the default tiny settings makes them."""
    place = tmp_path_factory.mktemp("trained")
    experiment = tiny.open_experiment(tiny_set, place / "split.parquet")
    tiny.run_stages([(stage, experiment) for stage in ("warmup", "train", "finetune")], place)
    return place


@pytest.fixture(scope="session")
def model_file(trained) -> Path:
    """The last model of it."""
    return trained / "finetune" / "model.safetensors"


@pytest.fixture
def bare_project(tmp_path, monkeypatch):
    """A project in which nothing has run, with the working directory in it."""
    project = Project.made(tmp_path / "project")
    monkeypatch.chdir(project.folder)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    return project


@pytest.fixture(scope="session")
def finished(raw_photos, tmp_path_factory) -> Path:
    """A project folder in which every stage has run; not to be written to."""
    project = Project.made(tmp_path_factory.mktemp("project"), tiny.CHANGES | {"data_root": str(raw_photos)})
    for stage in ("convert", "split", "warmup", "pseudo-label", "train", "finetune", "evaluate"):
        project.done(stage)
    return project.folder


@pytest.fixture
def project(finished, tmp_path, monkeypatch):
    """A copy of the finished project, with the working directory in it."""
    project = Project(finished).copy(tmp_path / "project")
    monkeypatch.chdir(project.folder)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    return project
