"""What holds for every loop: it trains through where nothing is unlabelled, and of several processes one alone writes."""

import shutil

import numpy as np
import pandas as pd
import pytest
import tiny
from safetensors.numpy import load_file

from dicap.errors import SettingsError
from dicap.evaluation.evaluate import evaluate
from dicap.features.bank import FeatureBank
from dicap.methods.dicap import DiCaP
from dicap.models import load_model
from dicap.training.loops.table import loop_of
from dicap.training.parallel.process_group import ProcessGroup
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


@pytest.mark.parametrize("name", ["by steps", "solved", "solved, then the whole network"])
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
        for stage, experiment in opened(tiny_set, bank, place, LOOPS[name] | soft):
            source = tiny.run_stage(experiment, stage, source, place) / "model.safetensors"
        found.append(load_file(source))
        monkeypatch.setattr(DiCaP, "pseudo_labels", opposite)
    assert all(np.allclose(found[1][key], value, atol=2e-3) for key, value in found[0].items())


@pytest.mark.parametrize("loop", [FROZEN | RECOMMENDED, FROZEN | HOLDOUT], ids=["cross-fitted", "held out"])
def test_where_nothing_is_mirrored_no_mirror_image_is_learnt_from(tiny_set, bank, tmp_path, monkeypatch, loop):
    view = FeatureBank.view
    monkeypatch.setattr(FeatureBank, "view", lambda bank, name: view(bank, name) + (np.nan if name == "mirror" else 0))
    source = None
    for stage, experiment in opened(tiny_set, bank, tmp_path, loop | {"augment.flip": 0.0}):
        source = tiny.run_stage(experiment, stage, source, tmp_path) / "model.safetensors"
    assert all(np.isfinite(value).all() for value in load_file(source).values())


@pytest.mark.parametrize("name", ["by steps", "solved", "solved, then the whole network"])
def test_a_chance_is_counted_on_known_entries(raw_photos, tmp_path, name):
    folder = tiny.converted(tiny.in_part(raw_photos, tmp_path / "raw"), tmp_path / "data")
    source, experiment = None, None
    for stage, experiment in opened(folder, tiny.features(folder, tmp_path / "bank"), tmp_path, LOOPS[name]):
        source = tiny.run_stage(experiment, stage, source, tmp_path) / "model.safetensors"
    assert experiment is not None
    roles, s = experiment.roles, experiment.settings
    y = experiment.labels.of(roles.est if s.calibration.source == "holdout" else roles.labelled)
    assert load_model(source).decisions.entries == (y >= 0).sum() < y.numel()


@pytest.fixture(scope="module")
def noise_set(tmp_path_factory):
    """A set whose labels say nothing of its images, of which any can be learnt by heart, and its bank."""
    place = tmp_path_factory.mktemp("noise")
    table = tiny.photographs(place / "raw", {"train": 160, "test": 40}) / "labels.csv"
    frame = pd.read_csv(table, keep_default_na=False)
    frame["labels"] = frame["labels"].to_numpy()[np.random.default_rng(0).permutation(len(frame))]
    frame.to_csv(table, index=False)
    folder = tiny.converted(table.parent, place / "data")
    return folder, tiny.features(folder, place / "bank")


@pytest.mark.parametrize("name", ["held out", "cross-fitted", "cross-fitted, then the whole network", "all labels"])
def test_where_labels_are_noise_no_stage_states_that_it_knows(noise_set, tmp_path, name):
    """Whoever learnt an image by heart must not be asked how sure it is of it."""
    by_heart = {"ratio": 0.3, "split.est_fraction": 0.9, "linear.C": 300.0, "finetune.lr": 0.1, "finetune.epochs": 40}
    loop = {"held out": HOLDOUT, "cross-fitted": RECOMMENDED, "all labels": HOLDOUT | {"method": "bce"}}.get(name, WHOLE)
    stages, source = opened(*noise_set, tmp_path, FROZEN | loop | by_heart), None
    s = stages[0][1].settings
    for stage, experiment in [*stages, ("finetune", stages[1][1])]:
        if not s.trains(stage):
            continue
        source = tiny.run_stage(experiment, stage, source, tmp_path) / "model.safetensors"
        result = evaluate(experiment, source, tmp_path, tmp_path / f"{stage}-scores")
        decisions = load_model(source).decisions
        if decisions.curve is not None:
            assert decisions.curve.rate.min() > 0.1 and decisions.curve.rate.max() < 0.9, stage
        if result["threshold_best"] is not None:  # nothing is better than to say yes to nearly everything
            scores = pd.read_parquet(tmp_path / f"{stage}-scores" / "predictions.parquet")["score"]
            assert (np.stack(scores.tolist()) >= result["threshold_best"]).mean() > 0.6, stage


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
    assert loop_of("pseudo_label", train.settings)(train, tiny.network_of(train, source)(), tmp_path / "first", main) == {}
    tiny.run_stage(train, "train", source, tmp_path / "other")
    assert tiny.content(tmp_path) == before
