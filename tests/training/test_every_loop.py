"""What holds of every method and every loop: no hidden label reaches it, a stopped run ends in the same bytes, and it trains
through where nothing is unlabelled."""

from collections import defaultdict
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
import tiny
from frozen.test_convex import AUTO, HOLDOUT
from frozen.test_unfrozen import WHOLE
from safetensors.numpy import load_file

from dicap.data.store import Store
from dicap.errors import SettingsError, Stopped
from dicap.files.artifacts import epoch_file, read_pseudo_labels
from dicap.frozen.features.bank import FeatureBank
from dicap.models import load_model
from dicap.settings.catalogue import OWN_HEAD
from dicap.settings.methods import METHODS
from dicap.training.batches import MainBatches
from dicap.training.loops import drml
from dicap.training.loops.table import loop_of
from training.test_leaks import DIAGNOSTIC, SCORES, differences, hidden_rows, invert_labels, models
from training.test_resume import stop_after

SHORT = {"warmup.epochs": 1, "train.epochs": 1, "pclp.warmup_epochs": 1, "finetune.epochs": 1}


@pytest.fixture(scope="module")
def labelled_set(tmp_path_factory):
    """A set without unlabelled images, and its bank."""
    place = tmp_path_factory.mktemp("labelled")
    folder = tiny.converted(tiny.photographs(place / "raw", {"train": 16, "test": 8}), place / "data")
    return folder, tiny.features(folder, place / "bank")


def opened(folder, bank, place, changes):
    """The stages that there are and their experiments, as the commands open them."""
    return tiny.stages_of(folder, place / "split.parquet", tiny.settings(SHORT | changes), bank)


# -- whole runs: undisturbed, stopped, and where hidden labels are other ones


def on_features(method):
    """With the head that is not its published one, so that with the whole networks every method has either head."""
    head = {"linear": "ml_decoder", "ml_decoder": "linear"}.get(METHODS[method].head, OWN_HEAD)
    changes = {"method": method, "head": head, "pclp.prior": "none"}
    return tiny.FROZEN | changes | ({"linear.features": "standard"} if head == "linear" else {})


WHOLE_NETWORKS = {method: {"method": method, "head": METHODS[method].head} for method in METHODS}
WHOLE_NETWORKS["drml"] |= {"drml.features": "warmup", "drml.iterations": 2}
ON_FEATURES = {f"{method} on features": on_features(method) for method in METHODS if method != "d2l"}  # which looks at tiles
SOLVED = {"held out": tiny.FROZEN | HOLDOUT, "cross-fitted": tiny.FROZEN | AUTO}
READINGS = {  # of DiCaP; they train and are saved in the same loop
    "labeled": {"calibration.policy": "labeled", "loss.reduction": "mean"},
    "confidence, soft": {"calibration.policy": "confidence", "calibration.target": "soft", "thresholds.rule": "none"},
    "other readings": {"warmup.over": "unlabelled", "calibration.target": "soft", "loss.reduction": "mean"},
}
RUNS = WHOLE_NETWORKS | ON_FEATURES | SOLVED | READINGS
RUNS["cross-fitted, then the whole network"] = tiny.FROZEN | WHOLE | AUTO

# A head on features takes the same loop in every method; of whole networks each method has its own.
EACH = [pytest.param(name, marks=pytest.mark.slow) if name in ON_FEATURES else name for name in RUNS]


def stages_of(name):
    return [stage for stage in ("warmup", "train", "finetune") if tiny.settings(RUNS[name]).trains(stage)]


def run_all(folder, bank, place, name, stop_every=10**6):
    """All stages of a run, each ended early and begun again as often as a stop comes; the run's folder."""
    place.mkdir(exist_ok=True)
    source = None
    for stage, experiment in opened(folder, bank, place, RUNS[name] | {"train.epochs": 2}):
        for _ in range(100):
            with stop_after(stop_every), suppress(Stopped):
                source = tiny.run_stage(experiment, stage, source, place) / "model.safetensors"
                break
        else:
            raise AssertionError("the stage never ended")
    return place


@pytest.fixture(scope="module")
def undisturbed(tiny_set, bank, tmp_path_factory):
    """A function from the name of a run to its folder."""
    places = {}

    def undisturbed(name):
        if name not in places:
            places[name] = run_all(tiny_set, bank, tmp_path_factory.mktemp("run"), name)
        return places[name]

    return undisturbed


@pytest.mark.promise("Every method, stopped at every third step, ends in the same bytes", section="Numbers")
@pytest.mark.promise(
    "Hidden and test labels change no byte of any method's models, no weight and no threshold",
    section="Hidden and held-out labels",
)
@pytest.mark.parametrize("name", EACH)
def test_stopped_and_with_other_hidden_labels_it_ends_in_the_same_bytes(
    tiny_experiment, bank, undisturbed, own_set, tmp_path, name
):
    """But for what hidden labels say of it; tests/training/test_resume.py has that of a run that was stopped too."""
    for rows in hidden_rows(tiny_experiment()):
        invert_labels(own_set, rows)
    stop_every = 10**6 if name in READINGS else 1 if name in SOLVED else 3  # a solution is one step
    before, after = undisturbed(name), run_all(own_set, bank, tmp_path / "again", name, stop_every)
    others = set()
    for stage in stages_of(name):
        assert models(after / stage), stage
        others |= differences(before / stage, after / stage)
    assert others <= DIAGNOSTIC
    assert others & SCORES, "the labels are other ones"


@pytest.mark.parametrize("name", ["dicap", "d2l", "drml", "bbam", "pclp"])  # whose batches are made in ways of their own
def test_what_is_recorded_of_an_epoch_is_what_its_batches_were_trained_on(tiny_set, tmp_path, monkeypatch, name):
    """Entry by entry in Parquet, and counted in history.csv; DRML's rounds draw some images only."""
    trained, make = defaultdict(dict), MainBatches.make

    def noted(self, i, views):
        batch = make(self, i, views)
        rows = self.rows(self.steps[i])[1]
        trained[self.epoch] |= {row: (label, weight) for row, label, weight in zip(rows, batch.label, batch.weight, strict=True)}
        return batch

    monkeypatch.setattr(MainBatches, "make", noted)
    monkeypatch.setattr(drml, "RECORD_EVERY", 1)
    stages = opened(tiny_set, None, tmp_path, RUNS[name] | {"train.epochs": 2})
    tiny.run_stages([(stage, its) for stage, its in stages if stage != "finetune"], tmp_path)
    history = pd.read_csv(tmp_path / "train" / "history.csv")
    for epoch, of in trained.items():
        ids, _, label, weight = read_pseudo_labels(epoch_file(tmp_path / "train", "pseudo_labels", epoch))
        row_of = {name: row for row, name in enumerate(Store.open(tiny_set).ids)}
        here = [row_of[name] in of for name in ids]
        expected = [of[row_of[name]] for name, there in zip(ids, here, strict=True) if there]
        assert len(expected) == len(of) and (all(here) or name == "drml")
        np.testing.assert_array_equal(label[here], np.stack([one.numpy() for one, _ in expected]))
        np.testing.assert_array_equal(weight[here], np.stack([one.numpy() for _, one in expected]))
        assert history["share_pos"][epoch] == pytest.approx((label == 1).mean(), abs=1e-5)


@pytest.mark.parametrize("name", ["dicap", "d2l", "drml", "pclp", "bbam"])
def test_pseudo_label_shows_what_the_first_epoch_trains_on(tiny_set, bank, undisturbed, tmp_path, name):
    experiment = dict(opened(tiny_set, bank, tmp_path, RUNS[name]))["train"]
    source = undisturbed(name) / "warmup"
    network = tiny.network_of(experiment, source / "model.safetensors")()
    shares = loop_of("pseudo_label", experiment.settings)(experiment, network, tmp_path / "first")
    first, train = tiny.content(tmp_path / "first"), tiny.content(undisturbed(name) / "train")
    if name == "d2l":  # whose batches are labelled anew, with the same thresholds
        del first["pseudo_labels/epoch-000.parquet"]
    assert first and all(train[path] == content for path, content in first.items())
    assert sum(shares[f"share_{part}"] for part in ("pos", "neg", "uncertain")) == pytest.approx(1)


# -- sets and processes of other kinds


@pytest.mark.promise("Without unlabelled images every loop trains to its end", section="Numbers")
@pytest.mark.parametrize(
    "name",
    ["dicap", "dicap on features", "cross-fitted", "cross-fitted, then the whole network", "drml", "pclp", "bbam", "d2l"],
)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_all_images_labelled_and_none_unlabelled_trains_through(labelled_set, tmp_path, name):
    source = tiny.run_stages(opened(*labelled_set, tmp_path, RUNS[name] | {"ratio": 1.0}), tmp_path)
    images = tiny.open_experiment(labelled_set[0], tmp_path / "split.parquet", RUNS[name] | {"ratio": 1.0})
    scores = images.predict(load_model(source).network, np.arange(24)).numpy()
    assert np.isfinite(scores).all() and scores.std() > 0


@pytest.mark.promise(
    "Options that read hidden labels are refused for a set without hidden labels", section="Hidden and held-out labels"
)
def test_an_option_that_reads_hidden_labels_is_refused_where_there_are_none(labelled_set, tmp_path):
    with pytest.raises(SettingsError, match=r"^params.yaml: calibration.policy: found 'optimal', .* no unlabelled image"):
        opened(*labelled_set, tmp_path, {"calibration.policy": "optimal", "ratio": 1.0})


@pytest.mark.parametrize("name", SOLVED)
def test_a_solved_head_learns_from_the_plain_view_alone(tiny_set, bank, tmp_path, monkeypatch, name):
    view = FeatureBank.view
    monkeypatch.setattr(FeatureBank, "view", lambda bank, name: view(bank, name) + (0 if name == "plain" else np.nan))
    stages = [(stage, its) for stage, its in opened(tiny_set, bank, tmp_path, SOLVED[name]) if its.settings.solves(stage)]
    assert all(np.isfinite(value).all() for value in load_file(tiny.run_stages(stages, tmp_path)).values())


@pytest.mark.parametrize("name", ["dicap", "cross-fitted", "cross-fitted, then the whole network"])
def test_a_chance_is_counted_on_known_entries(raw_photos, tmp_path, name):
    folder = tiny.converted(tiny.in_part(raw_photos, tmp_path / "raw"), tmp_path / "data")
    stages = opened(folder, tiny.features(folder, tmp_path / "bank"), tmp_path, RUNS[name])
    source, experiment = tiny.run_stages(stages, tmp_path), stages[-1][1]
    roles, s = experiment.roles, experiment.settings
    y = experiment.labels.of(roles.est if not s.recommends else roles.labelled)
    assert load_model(source).evidence.entries == (y >= 0).sum() < y.numel()
