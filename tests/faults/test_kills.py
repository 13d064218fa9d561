"""Training of a whole network, of a head on a frozen backbone, by steps and solved, and both: killed anywhere, the same bytes.

A moment is a call of one of this project's functions, counted from where the stage begins, so that a fixed list of seeds names
the same moments on a slow machine. (Kills by the clock: tests/frozen/features/test_stage.py, tests/data/test_convert.py,
tests/repository/test_pipeline.py.)
"""

import random
import signal

import pytest
import tiny
from frozen.test_convex import RECOMMENDED
from frozen.test_unfrozen import WHOLE
from project import Project

pytestmark = pytest.mark.slow
SEEDS = range(12)
HEADS = {
    "whole network": {},
    "by steps": tiny.FROZEN | {"method": "dicap", "head": "ml_decoder"},
    "solved": tiny.FROZEN | RECOMMENDED,
    "solved, then unfrozen": tiny.FROZEN | WHOLE,
}
KILLED = """
import os, signal
import calls
from stages.cli import main
with calls.counted(lambda n: os.kill(os.getpid(), signal.SIGKILL) if n == {moment} else None):
    main(["{stage}"])
"""
FOLDER = tiny.ROOT / "tests" / "faults"
STAGES = {"whole network": ("warmup", "train", "finetune"), "solved, then unfrozen": ("train",)}
CASES = [(head, stage) for head in HEADS for stage in STAGES.get(head, ("warmup", "train"))]


@pytest.fixture(scope="module")
def finished(raw_photos, tmp_path_factory):
    """A function from a kind of head to its finished project, and how many calls each of its stages took."""
    from calls import counted

    places = {}

    def finished(head) -> tuple[Project, dict[str, int]]:
        if head not in places:
            changes = tiny.CHANGES | {"data_root": str(raw_photos)} | HEADS[head]
            place, taken = Project.made(tmp_path_factory.mktemp("head"), changes), {}
            for stage in ("convert", "features", "split"):
                place.done(stage)
            for stage in dict.fromkeys(("warmup", "train", *STAGES.get(head, ()))):
                with counted(lambda n, stage=stage: taken.update({stage: n})):
                    place.done(stage)
            places[head] = place, taken
        return places[head]

    return finished


@pytest.mark.promise(
    "A stage that is killed at a random moment and run again ends in the same bytes, whatever it trains",
    section="Kills, full disks and damage",
)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("head", "stage"), CASES)
def test_killed_at_random_calls_it_ends_in_the_same_bytes(finished, tmp_path, head, stage):
    before, calls = finished(head)
    place, kills = before.copy(tmp_path / "project"), 0
    for seed in SEEDS:
        place.forget(stage)
        moment = random.Random(f"{head} {stage} {seed}").randrange(1, calls[stage] + 1)
        code, errors = tiny.Child(place.folder, KILLED.format(stage=stage, moment=moment), FOLDER).wait()
        assert code in (-signal.SIGKILL, 0), errors  # 0: what was left to do took fewer calls
        kills += code != 0
    assert kills
    place.done(stage)
    assert place.out(stage) == before.out(stage)
    assert not list((place.folder / ".dicap" / "state").glob(f"{stage}-*"))
