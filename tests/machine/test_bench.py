"""The prediction of a run's time, by hand; and that measuring measures."""

import pytest
import tiny
import torch
from click.testing import CliRunner

from dicap.machine import bench
from dicap.machine.bench import Size, Speeds, measure, predict
from dicap.machine.runtime import Runtime
from stages.cli import main

SIZE = Size(train=1000, test=100, classes=10)


def settings(**changes):
    dotted = {key.replace("_in_", "."): value for key, value in changes.items()}
    return tiny.settings({"ratio": 0.1, "split.est_fraction": 0.2, "train.batch_size": 10, "train.batch_labelled": 2} | dotted)


def test_a_main_epoch_by_hand():
    s = settings()
    speeds = Speeds(trained=10, scored=50, views=100, entries=1e4, loader_beside=False)
    unsup = 1000 - 80
    strong = unsup * 10 / 8  # 2 labelled images beside 8 unlabelled ones
    refresh = 1000 / 50 + unsup * 10 / 1e4
    minutes = predict(s, SIZE, speeds)
    assert minutes.refresh == pytest.approx(refresh / 60)
    assert minutes.main == pytest.approx((strong / 10 + unsup / 50 + strong / 100 + refresh) / 60)
    assert minutes.evaluation == pytest.approx(2 * 100 / 50 / 60)
    assert minutes.total > s.train.epochs * minutes.main


def test_a_loader_beside_the_network_costs_only_what_it_is_slower():
    s = settings()
    quick = Speeds(trained=10, scored=50, views=1000, entries=1e9, loader_beside=True)
    slow = Speeds(trained=10, scored=50, views=5, entries=1e9, loader_beside=True)
    strong = 920 * 10 / 8
    assert predict(s, SIZE, quick).main - predict(s, SIZE, quick).refresh == pytest.approx((strong / 10 + 920 / 50) / 60)
    assert predict(s, SIZE, slow).main - predict(s, SIZE, slow).refresh == pytest.approx(strong / 5 / 60)
    assert (quick.limit, slow.limit) == ("network", "loader")


def test_measuring_gives_speeds_of_the_machine():
    speeds = measure(tiny.settings(), 3, Runtime(torch.device("cpu"), workers=0), images=4, seconds=0.0)
    assert min(speeds.trained, speeds.scored, speeds.views, speeds.entries) > 0
    assert not speeds.loader_beside


def test_the_command_measures_each_network_once_and_lists_every_data_set(monkeypatch, tmp_path):
    (tmp_path / "configs").symlink_to(tiny.ROOT / "configs")
    (tmp_path / "params.yaml").write_text((tiny.ROOT / "params.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    asked = []

    def fake(s, classes, runtime, **_):
        asked.append((s.backbone, s.image_size))
        return Speeds(100, 400, 1000, 1e7, False)

    monkeypatch.setattr(bench, "measure", fake)
    result = CliRunner().invoke(main, ["doctor", "--bench"])
    assert result.exit_code == 0, result.output
    assert sorted(asked) == [("resnet50", 224), ("test_resnet", 32), ("tf_efficientnet_lite0", 128)]
    assert all(f"\n{name} " in result.output for name in bench.SIZES)
    assert "data/converted" in CliRunner().invoke(main, ["doctor"]).output, "the set of the settings"
