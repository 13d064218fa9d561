"""`dicap-stage features`: from a project folder, killed at random, passed through where nothing is needed."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tiny
from project import Project

from dicap.data.store import Store
from dicap.frozen.features.bank import FeatureBank

FROZEN = {"warmup.trainable": "head", "train.trainable": "head"}
VIEWS, CHANNELS = 32, 96  # enough work that a stop hits it; of test_resnet
LONG = os.environ.get("FAULTS") == "long"


def made(folder, tiny_set, views=3):
    """A project whose data set is converted."""
    (folder / "data").mkdir()
    (folder / "data" / "converted").symlink_to(tiny_set)
    return Project.made(folder, tiny.CHANGES | FROZEN | {"features.views": views})


@pytest.fixture
def place(tmp_path, tiny_set, monkeypatch):
    """One in which nothing else has run, with the working directory in it."""
    monkeypatch.chdir(tmp_path)
    return made(tmp_path, tiny_set)


@pytest.fixture(scope="module")
def whole(tiny_set, tmp_path_factory):
    """What an undisturbed run makes of many views."""
    return bank(made(tmp_path_factory.mktemp("whole"), tiny_set, VIEWS - 2))


def bank(place):
    """Every file of the bank that the stage makes."""
    place.done("features", "--workers", "0")
    return tiny.content(place.folder / "artifacts" / "features")


def test_the_stage_makes_a_bank_that_ratio_seed_and_method_do_not_change(place):
    first = bank(place)
    opened = FeatureBank.open(place.folder / "artifacts" / "features")
    assert [*opened.recipe.files] == ["plain", "mirror", "strong_0", "strong_1", "strong_2"]
    assert [opened.view(name).shape[0] for name in opened.recipe.files] == [48] * 5
    assert len({path.stat().st_mode for path in place.folder.glob("artifacts/features/*")}) == 1, "others may read all of them"
    place.set({"ratio": 0.2, "seed": 9, "method": "cap", "head": "linear"})
    assert bank(place) == first
    viewed = np.isfinite(opened.view("strong_1")).all((1, 2))
    assert (viewed != Store.open(place.folder / "data" / "converted").is_test).all()


def test_where_nothing_is_needed_no_torch_is_loaded(place):
    """One frozen stage is enough to need them."""
    place.set({"train.trainable": "all"})
    assert "plain.npy" in bank(place)
    place.set({"warmup.trainable": "all"})
    code = "import sys; from stages.cli import main; main(['features'], standalone_mode=False); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=tiny.environment(), capture_output=True, text=True, check=True)
    assert "none: no stage trains the head alone" in done.stdout
    assert list(tiny.content(place.folder / "artifacts" / "features")) == ["meta.json"]


def start(place, share):
    """The stage in a process of its own, from the moment at which it has written a share of what was missing (or ended)."""
    before = written(place)
    process = tiny.stage(place.folder, "features", "--workers", "0")
    target = before + 1 + share * (48 * VIEWS * CHANNELS * 2 - before)
    while process.poll() is None and written(place) < target:
        time.sleep(0.002)
    return process


def written(place):
    """Bytes of features in the stores."""
    return sum(path.stat().st_size for path in place.folder.glob(".dicap/store/features/*/*/[!.]*"))


@pytest.mark.promise(
    "The features of a frozen backbone, killed or stopped at a random moment, end in the same bytes",
    section="Kills, full disks and damage",
)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_or_stopped_at_random_it_ends_in_the_same_bytes(place, whole, number):
    place.set({"features.views": VIEWS - 2})
    rng = random.Random(int(number))
    stops, done, late = 5 if LONG else 1, 0, 0
    while done < stops:
        shutil.rmtree(place.folder / "artifacts" / "features", ignore_errors=True)
        process = start(place, rng.uniform(0, 0.4))
        process.send_signal(number)
        code, errors = process.wait()
        if code == 0 and late < 5:  # a busy machine: the signal came when all was computed
            late += 1
            shutil.rmtree(place.folder / ".dicap" / "store")
            continue
        done += 1
        assert code == (-signal.SIGKILL if number == signal.SIGKILL else 75), errors
        assert not (place.folder / "artifacts" / "features").exists()
        if number == signal.SIGTERM:
            assert "saved; run again to continue" in errors
    assert bank(place) == whole
