"""Where a head is solved, what a doubt calls unread changes nothing, and all else does; values are walked from the schema."""

from collections.abc import Iterator
from typing import get_args

import pytest
import tiny
import torch
from pydantic import ValidationError
from safetensors.numpy import load_file

from dicap.machine.runtime import Runtime
from dicap.settings import Settings, flatten
from dicap.settings.checks import contradictions, warnings
from dicap.training.experiment import Experiment
from training.test_convex import HOLDOUT, RECOMMENDED

FROZEN = {"warmup.trainable": "head", "train.trainable": "head", "features.views": 2}
SHORT = {"warmup.epochs": 1, "warmup.eval_every": 1, "train.epochs": 1, "finetune.epochs": 1}
LOOPS = {
    "cross-fitted": FROZEN | RECOMMENDED,
    "cap": FROZEN | HOLDOUT | {"method": "cap"},
    "bce": FROZEN | HOLDOUT | {"method": "bce"},
    "soft targets": FROZEN | RECOMMENDED | {"calibration.target": "soft", "thresholds.rule": "none"},
}


def others(key: str, s: Settings) -> Iterator[Settings]:
    """The settings with other values of one key, as far as they are allowed; several numbers, since one may round to the same."""
    section, name = key.split(".")
    field, now = type(getattr(s, section)).model_fields[name], getattr(getattr(s, section), name)
    choices = [value for kind in (field.annotation, *get_args(field.annotation)) for value in get_args(kind)]
    choices = [value for value in choices if isinstance(value, str)] + [not now] * isinstance(now, bool)
    if not isinstance(now, (bool, str)):
        choices += [now * 3, now + 1, now / 2, now / 10, 0.9, 0.05, 0]
    elif isinstance(now, str):
        choices += [3, 1, 0.25]
    for value in choices:
        for typed in dict.fromkeys((value, int(value)) if isinstance(value, float) and value >= 1 else (value,)):
            try:
                changed = Settings.model_validate(tiny.nested(s.model_dump(), {key: typed}))
            except ValidationError:
                continue
            if typed != now and not contradictions(changed, dict.fromkeys(dict(flatten(s.model_dump())), "params.yaml")):
                yield changed


class Runs:
    """Warm-up, main stage and fine-tuning of a set on a bank of features, by settings."""

    def __init__(self, folder, bank, place):
        self.folder, self.bank, self.place, self.count = folder, bank, place, 0

    def __call__(self, s: Settings) -> dict[str, bytes]:
        self.count += 1
        place = self.place / str(self.count)
        split = tiny.draw_split(self.folder, place.with_suffix(".parquet"), s)
        bank = self.bank if s.needs_features else None
        experiment = Experiment.open(s, Runtime(torch.device("cpu"), workers=0), self.folder, split, bank=bank)
        source, found = None, {}
        for stage in ("warmup", "train", "finetune"):
            if s.trains(stage):
                on = experiment.on_bank() if bank is not None and s.trainable(stage) == "head" else experiment
                source = tiny.run_stage(on, stage, source, place) / "model.safetensors"
                found |= {
                    f"{stage}/{path.name}/{k}": v.tobytes()
                    for path in (place / stage).glob("*.safetensors")
                    for k, v in load_file(path).items()
                }
        return found


def told(s: Settings) -> set[str]:
    """The keys that a doubt names."""
    lines = warnings(s, dict.fromkeys(dict(flatten(s.model_dump())), "params.yaml"))
    return {found.split(" ")[0] for line in lines for found in line.split(": ")[1].split(", ")}


@pytest.mark.parametrize("name", LOOPS)
def test_what_is_told_to_be_unread_changes_nothing(tiny_set, bank, tmp_path, name):
    """All other values of all the keys that are doubted, a few runs: the n-th other value of every key at once."""
    s = tiny.settings(SHORT | LOOPS[name])
    runs, doubted = Runs(tiny_set, bank, tmp_path), sorted(told(s) - {"backbone_weights"})
    expected = runs(s)
    assert {"contrastive.enabled", "calibration.teacher", "train.head_lr", "topk.k"} <= set(doubted)
    for n in range(2):
        changes = {}
        for key in doubted:
            section, field = key.split(".")
            values = [getattr(getattr(other, section), field) for other in others(key, s)]
            changes |= {key: values[n]} if len(values) > n else {}
        found = runs(Settings.model_validate(tiny.nested(s.model_dump(), changes)))
        assert found.keys() == expected.keys() and found == expected, name


WALKED = (
    "warmup",
    "train",
    "finetune",
    "optimiser",
    "loss",
    "contrastive",
    "calibration",
    "thresholds",
    "linear",
    "augment",
    "cap",
)
ELSEWHERE = {
    "calibration.bins": "counts of a record",
    "cap.unseen": "of a class without labelled positives, of which there is none here",
}


@pytest.mark.parametrize("name", ["cross-fitted", "bce"])
def test_what_is_not_told_to_be_unread_changes_a_result(tiny_set, bank, tmp_path, name):
    s = tiny.settings(SHORT | LOOPS[name])
    runs = Runs(tiny_set, bank, tmp_path)
    expected = runs(s)
    keys = [f"{section}.{field}" for section in WALKED for field in type(getattr(s, section)).model_fields]
    silent = []
    for key in keys:
        values = list(others(key, s))
        if values and key not in {*told(s), *ELSEWHERE} and all(runs(value) == expected for value in values):
            silent.append(key)
    assert not silent, "accepted, read by nothing, and no doubt is told"
