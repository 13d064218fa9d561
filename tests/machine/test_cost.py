"""Where an epoch's minutes go: every second in one part, kept over a stop, and no part of any model's bytes."""

import pandas as pd
import pytest
import torch

from dicap.files.artifacts import COST
from dicap.machine import cost
from dicap.machine.cost import Meter

CPU = torch.device("cpu")


@pytest.fixture
def tick(monkeypatch):
    """Moves a clock on, which does not move by itself."""
    now = [0.0]
    monkeypatch.setattr(cost.time, "perf_counter", lambda: now[0])
    return lambda seconds: now.append(now.pop() + seconds)


def batches(tick, waits):
    for wait in waits:
        tick(wait)
        yield {"strong": torch.zeros(4, 1), "weak": torch.zeros(2, 1)}


def test_every_second_of_an_epoch_is_charged_to_one_part(tick):
    meter = Meter(CPU)
    with meter.timing("refresh"):
        tick(3)
    for _ in meter.steps(batches(tick, [1, 2])):
        tick(10)
    with meter.timing("evaluation"):
        tick(5)
    tick(7)  # saving the state
    row = meter.row(4)
    assert tuple(row) == COST
    assert row["epoch"] == 4 and row["peak_memory_gb"] is None
    minutes = {name.removeprefix("minutes_"): 60 * value for name, value in row.items() if name.startswith("minutes")}
    assert minutes == pytest.approx({"minutes": 38, "data": 3, "step": 20, "refresh": 3, "evaluation": 5})
    assert row["images_per_s"] == pytest.approx(12 / 23)


def test_an_epoch_continues_with_what_it_had_spent(tick):
    meter = Meter(CPU)
    for _ in meter.steps(batches(tick, [1])):
        tick(2)
    spent = meter.spent()
    again = Meter(CPU)
    again.start(spent)
    for _ in again.steps(batches(tick, [4])):
        tick(8)
    row = again.row(0)
    assert [60 * row[name] for name in ("minutes", "minutes_data", "minutes_step")] == pytest.approx([15, 5, 10])


def test_a_stage_writes_a_line_an_epoch_and_its_own_folder_knows_no_times(trained):
    for stage, epochs in (("warmup", 2), ("train", 2), ("finetune", 3)):
        frame = pd.read_csv(trained / "cost" / f"{stage}.csv")
        assert tuple(frame) == COST and frame["epoch"].tolist() == list(range(epochs))
        parts = frame[[name for name in COST if name.startswith("minutes_")]].sum(axis=1)
        assert (parts > 0).all() and (parts <= frame["minutes"] * (1 + 1e-4) + 1e-9).all()
        assert (frame["minutes_refresh"] > 0).all() == (stage == "train")
        assert not (trained / stage / "cost.csv").exists()
