"""The features of a set in shards: each shard's computed once, read as those of one file, through the stage and killed."""

import json
import random
import shutil
import signal
import time
from contextlib import chdir

import numpy as np
import pytest
import tiny
import torch
from click.testing import CliRunner
from data.raw import save
from ruamel.yaml import YAML

from dicap.data.augment import View
from dicap.data.loader import Request
from dicap.data.store import Store
from dicap.errors import DataError
from dicap.features.bank import FeatureBank, load, scoring_batches

FROZEN = {"warmup.trainable": "head", "train.trainable": "head", "features.views": 2, "features.tiles": "all"}
SHARDS = {"convert.shard_size": 10}
ENVIRONMENT = {"DICAP_ENGINE": "torch", "DICAP_WORKERS": "0", "DVC_ROOT": None}


def write_params(place, changes):
    values = YAML(typ="safe", pure=True).load((tiny.ROOT / "params.yaml").read_text())
    with open(place / "params.yaml", "w") as handle:
        YAML().dump(tiny.nested(values, tiny.CHANGES | {"data_root": str(place / "raw")} | changes), handle)


def run(place, *arguments):
    from stages.cli import main

    with chdir(place):
        result = CliRunner().invoke(main, list(arguments), env=ENVIRONMENT)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def done(place, *arguments):
    """What a command that must succeed answers, as JSON."""
    result = run(place, "--json", *arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def finished(raw_photos, tmp_path_factory):
    """A project whose data set is in shards and has its features; not to be written to."""
    place = tmp_path_factory.mktemp("shards")
    (place / "configs").symlink_to(tiny.ROOT / "configs")
    shutil.copytree(raw_photos, place / "raw")
    write_params(place, FROZEN | SHARDS)
    assert done(place, "convert")["train"] > 10
    done(place, "features")
    return place


@pytest.fixture
def place(finished, tmp_path):
    """A copy of it."""
    shutil.copytree(finished, tmp_path / "place", symlinks=True)
    write_params(tmp_path / "place", FROZEN | SHARDS)
    return tmp_path / "place"


def bank_of(place):
    return FeatureBank.open(place / "artifacts" / "features")


def published(place):
    return tiny.content(place / "artifacts" / "features")


def test_a_bank_in_shards_is_read_as_one_of_one_file(finished, tmp_path):
    """All but the strong views, which are drawn by shard, are those of a set of one file to the last bits."""
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "configs").symlink_to(tiny.ROOT / "configs")
    shutil.copytree(finished / "raw", whole / "raw")
    write_params(whole, FROZEN)
    for stage in ("convert", "features"):
        done(whole, stage)
    one, several, rows = bank_of(whole), bank_of(finished), np.random.default_rng(0).permutation(48)
    assert several.n == one.n == 48 and len(json.loads((finished / "artifacts/features/meta.json").read_text())["shards"]) > 2
    for name in ("plain", "mirror", "plain_tiles", "mirror_tiles"):
        assert several.view(name).shape == one.view(name).shape and several.view(name).dtype == np.float16
        torch.testing.assert_close(several.rows(name, rows), one.rows(name, rows), rtol=2e-3, atol=2e-3)
    for (a, x), (b, y) in zip(*(scoring_batches(bank, rows, 7, flip=(1, "train", 2)) for bank in (one, several)), strict=True):
        assert (a == b).all()
        torch.testing.assert_close(x, y, rtol=2e-3, atol=2e-3)
    requests = [[Request("weak", rows, View("weak")), Request("strong", rows, View("strong", tiles=2))]]
    (batch,) = load(several, requests, seed=1, stage="train", epoch=0)
    (expected,) = load(one, requests, seed=1, stage="train", epoch=0)
    torch.testing.assert_close(batch["weak"], expected["weak"], rtol=2e-3, atol=2e-3)
    for i, row in enumerate(rows.tolist()):
        for part in range(4):
            views = [several.rows(f"strong_{v}_tiles", np.array([row]))[0, part] for v in range(2)]
            assert any(torch.equal(batch["strong"][i, part], view) for view in views)
    with pytest.raises(IndexError, match="row 48 is outside"):
        several.rows("plain", np.array([48]))
    shards = Store.open(finished / "data" / "converted").meta["shards"]
    first, second = np.arange(5), shards[0] + np.arange(5)
    assert not torch.equal(several.rows("strong_0", first), several.rows("strong_0", second))


def test_an_added_image_computes_one_shard(place):
    before, shards = published(place), set()
    for name, data in before.items():
        shards |= {data} if name.startswith("plain-") else set()
    kept = {path.name for path in (place / ".dicap/shards/features").iterdir()}
    save(place / "raw" / "added.png", 7)
    table = (place / "raw" / "labels.csv").read_text().splitlines()
    example = table[5].split(",")
    (place / "raw" / "labels.csv").write_text("\n".join([*table[:5], ",".join(["added.png", *example[1:]]), *table[5:], ""]))
    facts = done(place, "convert")
    assert facts["train"] + facts["test"] + facts["unlabeled"] == 49
    plan = done(place, "features", "--plan")
    assert len(plan["missing"]) == 1, plan
    facts = done(place, "features")
    count = Store.open(place / "data/converted").meta["shards"][plan["missing"][0]]
    assert facts["taken over"] == (49 - count) * sum(8 if "tiles" in name else 2 for name in ("", "tiles")) * 2
    after = published(place)
    assert len({data for name, data in after.items() if name.startswith("plain-")} - shards) == 1
    assert len({path.name for path in (place / ".dicap/shards/features").iterdir()} - kept) == 1
    shutil.rmtree(place / ".dicap")
    done(place, "features")
    assert published(place) == after, "the bytes do not depend on what was computed before"


@pytest.mark.parametrize("stage", ["convert", "features"])
def test_shards_are_made_one_by_one_from_the_command_line(place, finished, stage):
    shutil.rmtree(place / ".dicap" / "shards" / stage)
    out = place / {"convert": "data/converted", "features": "artifacts/features"}[stage]
    before = tiny.content(out)
    if stage == "convert":
        shutil.rmtree(out)
    plan = done(place, stage, "--plan")
    assert plan["missing"] == list(range(plan["shards"]))
    for shard in plan["missing"][:1:-1]:
        done(place, stage, "--shard", str(shard))
    assert done(place, stage, "--plan")["missing"] == [0, 1]
    done(place, stage, "--shard", "0/2")  # of these only the first is to be made
    assert done(place, stage, "--plan")["missing"] == [1]
    done(place, stage, "--shard", "1/2")
    done(place, stage, "--shard", "98/99")  # more jobs than shards
    assert done(place, stage, "--plan")["missing"] == []
    done(place, stage)
    assert tiny.content(out) == before == tiny.content(finished / out.relative_to(place))
    assert not list((place / ".dicap").glob("state/*"))
    result = run(place, stage, "--shard", "99")
    assert result.exit_code == 2 and "--shard: found 99, expected 0 to" in result.stderr
    for wrong in ("2/2", "one", "-1", "1/", "1/2/3"):
        result = run(place, stage, f"--shard={wrong}")
        assert result.exit_code == 2 and f"found '{wrong}', expected a shard, such as 3, or 3/8" in result.stderr
    write_params(place, FROZEN)
    if stage == "convert":
        result = run(place, stage, "--shard", "0")
        assert result.exit_code == 2 and "no more than convert.shard_size images, so it has no shards" in result.stderr


def test_fresh_makes_all_again(place):
    before = published(place)
    assert "taken over" in done(place, "features")
    assert "taken over" not in done(place, "features", "--fresh")
    assert published(place) == before
    marks = {path.stat().st_ino for path in (place / "data/converted").glob("images-*")}
    done(place, "convert", "--fresh")
    assert not marks & {path.stat().st_ino for path in (place / "data/converted").glob("images-*")}


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_a_damaged_shard_of_features_is_one_line_and_mended(place, damage):
    before, path = published(place), place / "artifacts" / "features" / "mirror-00001.npy"
    data = bytearray(path.read_bytes())
    path.unlink()
    if damage != "gone":
        data[-3] ^= 4
        path.write_bytes(data if damage == "flip" else data[:-9])
    line = {"flip": "damaged", "cut": "not readable", "gone": "no such file"}[damage]
    with pytest.raises(DataError, match=rf"mirror-00001.npy: {line}.*remove .* and run `dvc repro features`") as error:
        bank_of(place).view("mirror")
    assert "\n" not in str(error.value)
    shutil.rmtree(place / "artifacts" / "features")
    done(place, "features")
    assert published(place) == before


@pytest.mark.parametrize("changes", [{"shards": [3]}, {"shards": None}, {"checksums": {}}])
def test_a_meta_of_a_bank_that_does_not_fit_is_refused(place, changes):
    path = place / "artifacts" / "features" / "meta.json"
    meta = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in meta.items() if value is not None}))
    with pytest.raises(DataError, match=r"meta.json: (damaged|shards is missing)"):
        bank_of(place)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_killed_or_stopped_at_random_it_ends_in_the_same_bytes(place, number):
    before, rng = published(place), random.Random(int(number))
    shutil.rmtree(place / ".dicap" / "shards" / "features")
    shutil.rmtree(place / "artifacts" / "features")
    kept = place / ".dicap" / "shards" / "features"
    process = tiny.stage(place, "features", "--engine", "torch", "--workers", "0")
    target = rng.randrange(1, 3)
    while process.poll() is None and len(list(kept.glob("*/meta.json"))) < target:
        time.sleep(0.001)
    process.send_signal(number)
    code, errors = process.wait()
    assert code in (-signal.SIGKILL, 75, 0), errors
    facts = done(place, "features")
    assert facts["taken over"] > 0
    assert published(place) == before
    assert not list((place / ".dicap" / "state").glob("features-*"))


def test_every_stage_runs_on_shards(place):
    """The pipeline behind them does not know of shards."""
    for stage in ("split", "warmup", "pseudo-label", "train", "finetune", "evaluate"):
        assert run(place, stage).exit_code == 0, stage
    assert run(place, "doctor", "data/converted").exit_code == 0
