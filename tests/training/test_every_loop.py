"""What holds for every loop: it trains through where nothing is unlabelled, and of several processes one alone writes."""

import shutil

import numpy as np
import pytest
import tiny
from safetensors.numpy import load_file

from dicap.errors import SettingsError
from dicap.methods.dicap import DiCaP
from dicap.models import load_model
from dicap.training.loops import first_refresh_of
from dicap.training.process_group import ProcessGroup
from training.test_convex import HOLDOUT, RECOMMENDED
from training.test_unfrozen import WHOLE

FROZEN = {"warmup.trainable": "head", "train.trainable": "head", "features.views": 2}
SHORT = {"warmup.epochs": 1, "train.epochs": 1, "pclp.warmup_epochs": 1}
LOOPS = {
    "by steps": {},
    "by steps on features": FROZEN,
    "solved": FROZEN | RECOMMENDED,
    "solved, then the whole network": FROZEN | WHOLE,
    **{method: {"method": method, "head": "own"} for method in ("drml", "pclp", "bbam")},
    "d2l": {"method": "d2l", "head": "linear"},
}
GIVEN_BACK = {"labels given back": FROZEN | HOLDOUT | {"finetune.labels": "all", "finetune.lr": 0.01}}


@pytest.fixture(scope="module")
def labelled_set(tmp_path_factory):
    """A set without unlabelled images, and its bank."""
    place = tmp_path_factory.mktemp("labelled")
    folder = tiny.converted(tiny.photographs(place / "raw", {"train": 16, "test": 8}), place / "data")
    return folder, tiny.features(folder, place / "bank")


def opened(folder, bank, place, changes):
    """The experiments of warm-up and main stage, as the commands open them."""
    bank = bank if "head" in (changes.get("warmup.trainable"), changes.get("train.trainable")) else None
    experiment = tiny.open_experiment(folder, place / "split.parquet", SHORT | changes, bank=bank)
    return [("warmup", experiment.on_bank() if bank is not None else experiment), ("train", experiment)]


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_all_images_labelled_and_none_unlabelled_trains_through(labelled_set, tmp_path, name):
    source = None
    for stage, experiment in opened(*labelled_set, tmp_path, LOOPS[name] | {"ratio": 1.0}):
        source = tiny.run_stage(experiment, stage, source, tmp_path) / "model.safetensors"
    images = tiny.open_experiment(labelled_set[0], tmp_path / "split.parquet", LOOPS[name] | {"ratio": 1.0})
    scores = images.predict(load_model(source).network, np.arange(24)).numpy()
    assert np.isfinite(scores).all() and scores.std() > 0


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"calibration.policy": "optimal"}, "calibration.policy: found 'optimal'"),
        ({"method": "bbam", "head": "own", "bbam.transform": "hidden_labels"}, "bbam.transform: found 'hidden_labels'"),
    ],
)
def test_an_option_that_reads_hidden_labels_is_refused_where_there_are_none(labelled_set, tmp_path, changes, key):
    with pytest.raises(SettingsError, match=f"^params.yaml: {key}, .* no unlabelled image of .* has any"):
        opened(*labelled_set, tmp_path, changes | {"ratio": 1.0})


@pytest.mark.parametrize("name", ["by steps", "solved", "solved, then the whole network", "labels given back"])
def test_a_soft_target_is_the_same_by_either_label(tiny_set, bank, tmp_path, monkeypatch, name):
    """A label of weight w is the opposite one of weight 1 - w: what is learnt must not tell them apart."""
    soft = {"calibration.target": "soft", "thresholds.rule": "none", "optimiser.lr": 0.01, "train.head_lr": 0.01}
    made, found = DiCaP.pseudo_labels, []

    def opposite(*given):
        pseudo = made(*given)
        return pseudo._replace(label=1 - pseudo.label, weight=1 - pseudo.weight)

    for place in (tmp_path / "one", tmp_path / "other"):
        place.mkdir()
        source = None
        for stage, experiment in opened(tiny_set, bank, place, (LOOPS | GIVEN_BACK)[name] | soft):
            source = tiny.run_stage(experiment, stage, source, place) / "model.safetensors"
        if name in GIVEN_BACK:
            source = tiny.run_stage(experiment, "finetune", source, place) / "model.safetensors"
        found.append(load_file(source))
        monkeypatch.setattr(DiCaP, "pseudo_labels", opposite)
    assert all(np.allclose(found[1][key], value, atol=2e-3) for key, value in found[0].items())


class Other(ProcessGroup):
    """A process that is not the main one, as far as it can tell."""

    is_main = False


@pytest.mark.parametrize("name", ["by steps", "solved", "solved, then the whole network"])
def test_of_several_processes_one_alone_writes(tiny_set, bank, tmp_path, name):
    (_, warmup), (_, train) = opened(tiny_set, bank, tmp_path, LOOPS[name])
    main = tiny.run_stage(warmup, "warmup", None, tmp_path / "main")
    shutil.rmtree(tmp_path / "main" / ".dicap", ignore_errors=True)
    before = tiny.content(tmp_path)
    for experiment in (warmup, train):
        experiment.group = Other()
    tiny.run_stage(warmup, "warmup", None, tmp_path / "other")
    source = main / "model.safetensors"
    assert first_refresh_of(train.settings)(train, tiny.network_of(train, source)(), tmp_path / "first", main) == {}
    tiny.run_stage(train, "train", source, tmp_path / "other")
    assert tiny.content(tmp_path) == before
