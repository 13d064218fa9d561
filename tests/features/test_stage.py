"""`dicap-stage features`: from a project folder, killed at random, passed through where nothing is needed."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import chdir

import pytest
import tiny
from click.testing import CliRunner
from ruamel.yaml import YAML

from dicap.features.bank import FeatureBank

FROZEN = {"warmup.trainable": "head", "train.trainable": "head", "features.views": 3}
VIEWS, CHANNELS = 62, 96  # enough work that a stop hits it; of test_resnet
LONG = os.environ.get("FAULTS") == "long"
ENVIRONMENT = {"DICAP_WORKERS": "0", "DVC_ROOT": None}


def write_params(folder, changes):
    values = YAML(typ="safe", pure=True).load((tiny.ROOT / "params.yaml").read_text())
    with open(folder / "params.yaml", "w") as handle:
        YAML().dump(tiny.nested(values, tiny.CHANGES | changes), handle)


@pytest.fixture
def place(tmp_path, tiny_set):
    """A project whose data set is converted."""
    (tmp_path / "configs").symlink_to(tiny.ROOT / "configs")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "converted").symlink_to(tiny_set)
    write_params(tmp_path, FROZEN)
    return tmp_path


def run(place, *arguments, **environment):
    from stages.cli import main

    with chdir(place):
        result = CliRunner().invoke(main, ["features", *arguments], env=ENVIRONMENT | environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def bank(place):
    return tiny.content(place / "artifacts" / "features")


def test_the_stage_makes_a_bank(place):
    result = run(place)
    assert result.exit_code == 0, result.output
    made = FeatureBank.open(place / "artifacts" / "features")
    assert made.names == ["plain", "mirror", "strong_0", "strong_1", "strong_2"]
    assert [made.view(name).shape[0] for name in made.names] == [48] * 5
    assert not list((place / ".dicap" / "state").glob("features-*")), "a finished stage leaves no state"
    first = bank(place)
    assert run(place).exit_code == 0
    assert bank(place) == first


def test_ratio_seed_and_method_change_nothing(place):
    run(place)
    first = bank(place)
    write_params(place, FROZEN | {"ratio": 0.2, "seed": 9, "method": "cap", "head": "linear"})
    run(place)
    assert bank(place) == first


def test_nothing_is_computed_where_nothing_is_needed(place, monkeypatch):
    import dicap.network

    write_params(place, {})
    monkeypatch.setattr(dicap.network, "create_backbone", lambda *_: pytest.fail("a backbone was built"))
    result = run(place)
    assert result.exit_code == 0 and "none: no stage trains the head alone" in result.output
    assert list(bank(place)) == ["meta.json"]


def test_where_nothing_is_needed_no_torch_is_loaded(place):
    write_params(place, {})
    code = "import sys; from stages.cli import main; main(['features'], standalone_mode=False); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=place, env=tiny.environment(), capture_output=True, check=True)


def test_one_frozen_stage_is_enough_to_need_them(place):
    write_params(place, {"warmup.trainable": "head"})
    run(place)
    assert "plain.npy" in bank(place)


def test_a_set_of_another_size_is_refused(place):
    write_params(place, FROZEN | {"image_size": 48})
    result = run(place)
    assert result.exit_code == 2 and "image_size: found 48" in result.stderr


def start(place, share):
    """The stage in a process of its own, from the moment at which it has written a share of what was missing (or ended)."""
    before = written(place)
    process = tiny.stage(place, "features", "--workers", "0")
    target = before + 1 + share * (48 * VIEWS * CHANNELS * 2 - before)
    while process.poll() is None and written(place) < target:
        time.sleep(0.002)
    return process


def written(place):
    """Bytes of features in the stores."""
    return sum(path.stat().st_size for path in place.glob(".dicap/store/features/*/data"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_or_stopped_at_random_it_ends_in_the_same_bytes(place, number):
    write_params(place, FROZEN | {"features.views": VIEWS - 2})
    run(place)
    whole, rng = bank(place), random.Random(int(number))
    shutil.rmtree(place / ".dicap" / "store")
    stops, done, late = 5 if LONG else 1, 0, 0
    while done < stops:
        shutil.rmtree(place / "artifacts" / "features", ignore_errors=True)
        process = start(place, rng.uniform(0, 0.4))
        process.send_signal(number)
        code, errors = process.wait()
        if code == 0 and late < 5:  # a busy machine: the signal came when all was computed
            late += 1
            shutil.rmtree(place / ".dicap" / "store")
            continue
        done += 1
        assert code == (-signal.SIGKILL if number == signal.SIGKILL else 75), errors
        assert not (place / "artifacts" / "features").exists()
        if number == signal.SIGTERM:
            assert "saved; run again to go on" in errors
    assert run(place).exit_code == 0
    assert bank(place) == whole
