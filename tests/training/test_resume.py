"""A run that was stopped or killed anywhere ends in the same bytes as an undisturbed one; workers change nothing."""

import signal
from contextlib import contextmanager, suppress
from itertools import count

import numpy as np
import pytest
import tiny

from dicap.errors import DataError, Stopped
from dicap.training import inputs, run, trainer
from dicap.training.checkpoint.state import StopSignal
from dicap.training.optimisation import Optimisation

SOURCES = {"warmup": None, "train": "warmup", "finetune": "train"}


def run_all(experiment, place, stages=("warmup", "train")):
    """Stages one after the other, each from the model before; their folder."""
    tiny.run_stages([(stage, experiment) for stage in stages], place)
    return place


class Killed(BaseException):
    """What SIGKILL leaves: no handler runs, nothing more is written."""


@contextmanager
def stop_after(looks):
    """A stop signal that arrives at the n-th look of the stage that runs meanwhile."""
    before = iter(range(looks - 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StopSignal, "__bool__", lambda signal: next(before, None) is None)
        yield


@pytest.mark.promise(
    "Training that is killed within a step, again and again, ends in the same bytes", section="Kills, full disks and damage"
)
@pytest.mark.parametrize(("stage", "save_seconds"), [("warmup", 0.0), ("train", 0.0), ("train", 300.0), ("finetune", 300.0)])
def test_killed_at_random_steps(tiny_experiment, trained, monkeypatch, tmp_path, stage, save_seconds):
    """In the middle of a step, again and again; saved after every step, or between epochs alone."""
    source, update, left = SOURCES[stage], Optimisation.update, []
    source = source and trained / source / "model.safetensors"

    def killed(self, *arguments):
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        update(self, *arguments)

    monkeypatch.setattr(trainer, "SAVE_SECONDS", save_seconds)
    monkeypatch.setattr(Optimisation, "update", killed)
    for steps in (1, *np.random.default_rng(3).integers(1, 6, 3)):
        left[:] = [steps]
        with suppress(Killed):
            tiny.run_stage(tiny_experiment(), stage, source, tmp_path)
    left[:] = [10**6]
    out = tiny.run_stage(tiny_experiment(), stage, source, tmp_path)
    assert tiny.content(out) == tiny.content(trained / stage)


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_while_publishing_waits_until_it_is_done(tiny_experiment, trained, monkeypatch, tmp_path, number):
    copy = run._copy

    def signalled(source, target):
        signal.raise_signal(getattr(signal, number))
        copy(source, target)

    monkeypatch.setattr(run, "_copy", signalled)
    out = tiny.run_stage(tiny_experiment(), "warmup", None, tmp_path)
    assert tiny.content(out) == tiny.content(trained / "warmup")
    assert not list((tmp_path / ".dicap" / "state").iterdir())


@pytest.mark.promise("A changed setting never picks up old epochs", section="Kills, full disks and damage")
def test_another_setting_never_picks_up_old_epochs(tiny_experiment, tmp_path):
    with stop_after(3), pytest.raises(Stopped):
        tiny.run_stage(tiny_experiment(), "warmup", None, tmp_path)
    lines = []
    other = tiny_experiment({"optimiser.weight_decay": 0.5})
    tiny.run_stage(other, "warmup", None, tmp_path, log=lines.extend)
    assert lines == []
    tiny.run_stage(tiny_experiment(), "warmup", None, tmp_path, log=lines.extend)
    assert lines == ["resuming warmup after 1 of 2 epochs"]


@pytest.mark.promise("A loss that is not finite stops before any weight is updated with it", section="Numbers")
def test_a_loss_that_is_not_finite_stops_with_its_ids_and_leaves_the_state_before(
    tiny_experiment, trained, monkeypatch, tmp_path
):
    experiment, seen, calls = tiny_experiment(), [], count(1)
    run_epoch, losses = inputs.load, experiment.method.warmup_losses
    monkeypatch.setattr(inputs, "load", lambda store, requests, **k: seen.append(requests) or run_epoch(store, requests, **k))

    def spoilt(*arguments):
        factor = float("nan") if next(calls) == 5 else 1  # in the second step of three of the second epoch
        return {name: factor * term for name, term in losses(*arguments).items()}

    with monkeypatch.context() as patch:
        patch.setattr(experiment.method, "warmup_losses", spoilt)
        with pytest.raises(DataError) as caught:
            tiny.run_stage(experiment, "warmup", None, tmp_path)
    message = str(caught.value)
    assert "\n" not in message and "not finite in step 2 of epoch 2" in message and "optimiser.lr" in message
    (listing,) = (tmp_path / ".dicap" / "state").glob("*/not_finite.txt")
    assert str(listing) in message
    rows = np.unique(np.concatenate([request.rows for request in seen[-1][1]]))
    assert listing.read_text().splitlines() == experiment.store.ids[rows].tolist()
    lines = []
    out = tiny.run_stage(experiment, "warmup", None, tmp_path, log=lines.extend)
    assert lines == ["resuming warmup after 1 of 2 epochs"]
    assert tiny.content(out) == tiny.content(trained / "warmup")
