"""A full disk while writing, damaged checkpoints while reading: a clear line, the earlier generation, the same final bytes."""

import os
import resource
import time
from contextlib import contextmanager, nullcontext

import pytest
import tiny
from training.test_resume import stop_after

from dicap.errors import Stopped
from dicap.training.checkpoint.state import RunState

# -- a full disk ------------------------------------------------------------------------------------------------------


@contextmanager
def full(n: int):
    """A disk on which no file may grow beyond n bytes: what writes more fails as on a full one."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


# What is being written when the disk is full, the stage that writes it, and the bytes that are left.
FULL = {
    "a checkpoint": ("train", 200_000, "cannot save the checkpoint"),
    "a Parquet file": ("pseudo-label", 512, "make room"),
    "the array": ("convert", 64_000, "make room"),
}


@pytest.mark.promise(
    "A full disk is one line and damages no existing checkpoint, Parquet file or array", section="Kills, full disks and damage"
)
@pytest.mark.parametrize("what", FULL)
def test_a_full_disk_is_one_line_and_loses_nothing(project, what):
    stage, left, words = FULL[what]
    before = project.out(stage)
    with full(left):
        line = project.refused(stage)[1]
    assert "\n" not in line and words in line, line
    assert "File too large" in line
    assert project.out(stage) == before  # what was there is there
    project.forget(stage)
    project.done(stage)
    assert project.out(stage) == before
    assert not [path for path in (project.folder / "artifacts").rglob(".*") if path.name != ".gitignore"]


@pytest.mark.promise(
    "Training that a full disk stopped continues from the last checkpoint", section="Kills, full disks and damage"
)
def test_a_full_disk_between_two_checkpoints_continues_from_the_first(project):
    before, left = project.out("train"), []
    save = RunState.save

    def second_save_fails(self, payload):
        with full(100_000) if left else nullcontext():
            left.append(1)
            return save(self, payload)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunState, "save", second_save_fails)
        assert "the previous checkpoint is intact" in project.refused("train")[1]
    assert not list((project.folder / ".dicap" / "state").rglob("*.tmp"))
    assert "resuming train after 1 of " in project.run("train")[2]
    assert project.out("train") == before


# -- damaged checkpoints ------------------------------------------------------------------------------------------------


@pytest.mark.promise("A damaged checkpoint loses one epoch, never the run", section="Kills, full disks and damage")
@pytest.mark.parametrize("generations", [1, 2], ids=["the newest", "both"])
def test_a_damaged_checkpoint_is_passed_over(project, generations):
    """tests/training/test_state.py has every kind of damage."""
    before = project.out("train")
    with stop_after(9):  # in the second epoch: two generations are there
        assert project.run("train")[0] == 75
    (folder,) = (project.folder / ".dicap" / "state").glob("train-*")
    for name in ("state.pt", "previous.pt")[:generations]:
        tiny.flip(folder / name, (folder / name).stat().st_size // 2)
    told = project.run("train")[2].splitlines()
    assert sum("skipped" in line for line in told) == generations
    assert any(line.startswith("resuming train after 1 of ") for line in told) == (generations == 1)
    assert project.out("train") == before


# -- clocks -------------------------------------------------------------------------------------------------------------


@pytest.mark.promise("A clock set back changes nothing", section="Kills, full disks and damage")
def test_a_clock_set_back_changes_nothing(project, monkeypatch):
    before = project.out("train")
    with stop_after(4):
        assert project.run("train")[0] == 75
    now, tomorrow = time.time(), time.time() + 86400
    for path in project.folder.rglob("*"):
        os.utime(path, (tomorrow, tomorrow))
    monkeypatch.setattr(time, "time", lambda: now - 10 * 365 * 86400)
    assert "resuming train after" in project.run("train")[2]
    assert project.out("train") == before


# -- workers and resume ---------------------------------------------------------------------------------------------------


@pytest.mark.promise("Same seed, same machine, same bytes, for 0, 1 and 2 loader processes and any stop", section="Numbers")
@pytest.mark.parametrize("workers", [1, 2])
def test_workers_stop_and_resume_give_the_same_bytes(tiny_set, trained, tmp_path, workers):
    experiment, source = tiny.open_experiment(tiny_set, tmp_path / "split.parquet", workers=workers), None
    for stage in ("warmup", "train", "finetune"):
        with stop_after(4), pytest.raises(Stopped):
            tiny.run_stage(experiment, stage, source, tmp_path)
        tiny.run_stage(experiment, stage, source, tmp_path)
        assert tiny.content(tmp_path / stage) == tiny.content(trained / stage), stage
        source = tmp_path / stage / "model.safetensors"
