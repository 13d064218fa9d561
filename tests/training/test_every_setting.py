"""What a doubt calls unread changes nothing, and all else does; settings and their values are walked from the schema."""

from collections.abc import Iterator
from itertools import islice
from typing import get_args

import pytest
import tiny
from frozen.test_convex import HOLDOUT, RECOMMENDED
from pydantic import ValidationError
from safetensors.numpy import load_file

from dicap.data.store import Store
from dicap.frozen.features.recipe import Recipe, pretrained_network
from dicap.provenance import settings_of
from dicap.settings import Section, Settings, flatten
from dicap.settings.checks import contradictions, unread
from dicap.settings.methods import METHODS

SHORT = {"warmup.epochs": 1, "warmup.eval_every": 1, "train.epochs": 1, "finetune.epochs": 1}
SHORT |= {"pclp.warmup_epochs": 1}
LOOPS = {
    "cross-fitted": tiny.FROZEN | RECOMMENDED,
    "cap": tiny.FROZEN | HOLDOUT | {"method": "cap"},
    "bce": tiny.FROZEN | HOLDOUT | {"method": "bce"},
    "soft targets": tiny.FROZEN | HOLDOUT | {"calibration.target": "soft", "thresholds.rule": "none"},
    "solved and fine-tuned": tiny.FROZEN | HOLDOUT,
    "solved, then unfrozen": RECOMMENDED
    | {"warmup.trainable": "head", "features.views": 0, "train.head_lr": 1e-3, "train.backbone_lr": 1e-3},
    "plain": {"warmup.wcl": False, "contrastive.enabled": False, "finetune.enabled": False, "calibration.policy": "uniform"},
    "bank": tiny.FROZEN,
    "over D_unsup": {"warmup.over": "unlabelled"},
    "bank, linear": tiny.FROZEN | {"head": "linear"},
    "matched": tiny.FROZEN | {"method": "iat", "iat.rule": "matched"},
    "warmed": {"method": "drml", "drml.features": "warmup", "drml.iterations": 1},
    "own rates": {"method": "bbam", "bbam.lr": 1e-3, "bbam.batch_size": 8},
    "own batches": tiny.FROZEN
    | {"method": "pclp", "pclp.prior": "none", "pclp.epochs": 1, "pclp.batch_size": 8, "pclp.batch_labelled": 2},
    **{f"{name}, whole": {"method": name} for name in METHODS},
}
# Read before a stage trains, or what a method brings itself.
BEFORE = ("own.", "convert.", "data_root", "weights_file", "protocol", "features.view", "backbone", "head")
BEFORE += ("image_size", "network.normalize", "network.stride", "network.tokens")


def loop(name: str) -> Settings:
    """The settings of a loop, with its method's head where none is named."""
    head = METHODS[LOOPS[name].get("method", "dicap")].head
    return tiny.settings(SHORT | {"head": head} | LOOPS[name])


def others(key: str, s: Settings) -> Iterator[Settings]:
    """The settings with other values of one key, as far as they are allowed; several numbers, since one may round to the same."""
    *sections, name = key.split(".")
    parent = getattr(s, sections[0]) if sections else s
    field, now = type(parent).model_fields[name], getattr(parent, name)
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
            if typed != now and not [*contradictions(changed, dict.fromkeys(dict(flatten(s.model_dump())), "params.yaml"))]:
                yield changed


class Runs:
    """Warm-up, main stage and fine-tuning of a set on a bank of features, by settings."""

    def __init__(self, folder, bank, place):
        self.folder, self.bank, self.place, self.count = folder, bank, place, 0

    def __call__(self, s: Settings) -> dict[str, bytes]:
        self.count += 1
        place = self.place / str(self.count)
        tiny.run_stages(tiny.stages_of(self.folder, place.with_suffix(".parquet"), s, self.bank), place)
        models = {str(path.relative_to(place)): load_file(path) for path in place.glob("*/*.safetensors")}
        return {f"{model}/{k}": v.tobytes() for model, tensors in models.items() for k, v in tensors.items()}


@pytest.fixture
def looked_at(monkeypatch):
    """The dotted keys of the settings that anything looks at."""
    names, looked, plain = {type(part): f"{name}." for name, part in tiny.settings()}, set(), Section.__getattribute__

    def look(self, name):
        if name in type(self).model_fields:
            looked.add(names.get(type(self), "") + name)
        return plain(self, name)

    monkeypatch.setattr(Section, "__getattribute__", look)
    return looked


# Of whole networks here those whose loops are not above.
OFTEN = [name for name in LOOPS if not name.endswith(", whole") or name.startswith(("dicap", "cap", "d2l", "mld"))]
SLOWLY = [pytest.param(name, marks=pytest.mark.slow) for name in LOOPS if name not in OFTEN]


@pytest.mark.promise(
    "If you type a setting that nothing reads, a message names it and its value changes nothing", section="Numbers"
)
@pytest.mark.parametrize("name", [*OFTEN, *SLOWLY])
def test_what_is_told_to_be_unread_changes_nothing(tiny_set, bank, tmp_path, looked_at, name):
    """Another value of every key that is doubted, of all at once."""
    s = loop(name)
    runs, doubted = Runs(tiny_set, bank, tmp_path), sorted(unread(s))
    looked_at.clear()
    expected, looked = runs(s), set(looked_at)
    silent = {key for key, _ in flatten(s.model_dump()) if not key.startswith(BEFORE)} - looked - set(doubted)
    assert not silent, "no stage looks at it, and no doubt is told"
    changed = s
    for key in doubted:
        *_, changed = [changed, *islice(others(key, changed), 2)]  # of numbers the second: one may round to the same
    assert changed != s and runs(changed) == expected, name


def test_the_stage_of_features_depends_on_all_that_is_looked_at_for_them(tiny_set, looked_at):
    s = loop("bank")
    looked_at.clear()
    Recipe.of(s, Store.open(tiny_set), pretrained_network(s))
    looked = {key for key in looked_at if key not in dict(s) or not isinstance(getattr(s, key), Section)}
    assert looked <= {key for name, value in settings_of("features", s).items() for key, _ in flatten({name: value})}


WALKED = ["warmup", "train", "finetune", "optimiser", "loss", "contrastive", "calibration", "thresholds", "linear", "augment"]
WALKED += ["cap"]
SLOW = [
    pytest.param("bce", WALKED, marks=pytest.mark.slow),
    pytest.param("dicap, whole", ["thresholds", "warmup.over"], marks=pytest.mark.slow),
]
ELSEWHERE = {
    "calibration.bins": "counts of a record",
    "augment.flip": "by the stage of features",
    "augment.cutout": "by the stage of features",
}


@pytest.mark.parametrize(("name", "walked"), [("cross-fitted", WALKED), *SLOW])
def test_what_is_not_told_to_be_unread_changes_a_result(tiny_set, bank, tmp_path, name, walked):
    s = loop(name)
    runs = Runs(tiny_set, bank, tmp_path)
    expected = runs(s)
    keys = [key for key, _ in flatten(s.model_dump()) if key in walked or key.partition(".")[0] in walked]
    silent = []
    for key in keys:
        values = list(others(key, s))
        if values and key not in {*unread(s), *ELSEWHERE} and all(runs(value) == expected for value in values):
            silent.append(key)
    assert not silent, "accepted, read by nothing, and no doubt is told"
