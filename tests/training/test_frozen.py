"""Every method with a frozen backbone, by steps on a bank of features: it resumes to the same bytes, its model is whole."""

import numpy as np
import pytest
import tiny
import torch

from dicap.data.loader import scoring_batches
from dicap.models import load_model
from dicap.network import Network
from dicap.settings.catalogue import OWN_HEAD
from dicap.settings.methods import METHODS
from training.test_every_method import run_all, stages_of
from training.test_leaks import hidden_rows, invert_labels, models

# D2L looks at tiles of the images themselves and is refused on features (dicap/settings/checks.py).
CASES = [
    (method, head)
    for method, facts in METHODS.items()
    if method != "d2l"
    for head in ([OWN_HEAD] if facts.head == OWN_HEAD else ["linear", "ml_decoder"])
]


def changes_of(method, head):
    """By steps, with standardised features where the head is linear; what cannot be trained on features is left out."""
    changes = {"method": method, "head": head, "pclp.prior": "none"}
    return changes | ({"linear.features": "standard"} if head == "linear" else {})


def test_every_method_but_one_trains_on_features_and_most_with_either_head():
    assert {method for method, _ in CASES} == set(METHODS) - {"d2l"}
    assert {method for method, head in CASES if head == OWN_HEAD} == {"drml", "pclp", "bbam"}


@pytest.fixture(scope="module")
def undisturbed(tiny_set, bank, tmp_path_factory):
    """A function from a case to the folder of its undisturbed run."""
    places = {}

    def undisturbed(method, head):
        if (method, head) not in places:
            place = tmp_path_factory.mktemp(f"{method}-{head}")
            frozen = {"warmup.trainable": "head", "train.trainable": "head", "features.views": bank.views}
            changes = frozen | changes_of(method, head)
            places[method, head] = run_all(tiny.open_experiment(tiny_set, place / "split.parquet", changes, bank=bank), place)
        return places[method, head]

    return undisturbed


@pytest.mark.parametrize(("method", "head"), CASES)
def test_stopped_at_every_second_step_it_ends_in_the_same_bytes(frozen_experiment, undisturbed, tmp_path, method, head):
    place = run_all(frozen_experiment(changes_of(method, head)), tmp_path / "again", stop_every=2)
    for stage in stages_of(method):
        assert tiny.content(place / stage) == tiny.content(undisturbed(method, head) / stage), stage


@pytest.mark.parametrize(("method", "head"), CASES)
def test_its_published_model_is_whole_and_scores_images_as_it_scored_features(
    frozen_experiment, undisturbed, method, head, tmp_path
):
    experiment = frozen_experiment(changes_of(method, head))
    stage = stages_of(method)[-1]
    model = load_model(undisturbed(method, head) / stage / "model.safetensors")
    rows = np.arange(experiment.store.n)
    with torch.inference_mode():
        batches = scoring_batches(experiment.store, rows, 16)
        on_images = torch.cat([model.method.scores(model.network, images) for _, images in batches])
    assert on_images.shape == (experiment.store.n, 3) and float(on_images.std(0).min()) > 0
    on_features = experiment.predict(experiment.place(model.network), rows)
    apart = (on_images - on_features).abs()  # the bank holds halves
    assert float(apart.mean()) < 5e-4 and float(apart.max()) < 5e-3


@pytest.mark.parametrize(("method", "head"), CASES)
def test_its_backbone_is_the_one_whose_features_it_was_given(frozen_experiment, undisturbed, method, head):
    first = tiny.network_of(frozen_experiment(changes_of(method, head)), None)()
    for stage in stages_of(method):
        network = load_model(undisturbed(method, head) / stage / "model.safetensors").network
        assert isinstance(network, Network)
        before, after = first.state_dict(), network.state_dict()
        names = [name for name in after if name.startswith("backbone.")]
        assert names and all((before[name] == after[name]).all() for name in names), stage
        moved = [name for name in after if not name.startswith("backbone.") and (before[name] != after[name]).any()]
        assert moved or (method, stage) == ("drml", "warmup"), stage  # DRML takes the pretrained features as they are


@pytest.mark.parametrize(("method", "head"), CASES)
def test_hidden_labels_change_no_byte_of_its_models(frozen_experiment, undisturbed, own_set, tmp_path, method, head):
    for rows in hidden_rows(frozen_experiment()):
        invert_labels(own_set, rows)
    place = run_all(frozen_experiment(changes_of(method, head), folder=own_set), tmp_path / "hidden")
    for stage in stages_of(method):
        assert models(place / stage) == models(undisturbed(method, head) / stage), stage
