"""What is promised of every method: no hidden label reaches it, and a stopped run ends in the same bytes."""

import pytest
import tiny
import torch

from dicap.errors import Stopped
from dicap.models import load_model
from dicap.settings.methods import METHODS
from dicap.training import run
from training.test_leaks import hidden_rows, invert_labels, models, tensors
from training.test_resume import StopAfter


def changes_of(method):
    """The tiny settings with the method's published head."""
    return {"method": method, "head": METHODS[method].head or "ml_decoder"}


def stages_of(method):
    facts = METHODS[method]
    return ["warmup"] + ["train"] * facts.unlabelled + ["finetune"] * facts.finetunes


def run_all(experiment, place, stop_every=None):
    source = None
    for stage in stages_of(experiment.settings.method):
        for _ in range(100):
            with pytest.MonkeyPatch.context() as patch:
                if stop_every:
                    patch.setattr(run, "StopSignal", lambda: StopAfter(stop_every))
                try:
                    source = tiny.run_stage(experiment, stage, source, place) / "model.safetensors"
                    break
                except Stopped:
                    pass
        else:
            raise AssertionError("the stage never ended")
    return place


@pytest.fixture(scope="module")
def undisturbed(tiny_set, tmp_path_factory):
    """A function from a method's name to the folder of its undisturbed run."""
    places = {}

    def undisturbed(method):
        if method not in places:
            place = tmp_path_factory.mktemp(method)
            experiment = tiny.open_experiment(tiny_set, place / "split.parquet", changes_of(method))
            places[method] = run_all(experiment, place)
        return places[method]

    return undisturbed


@pytest.mark.parametrize("method", METHODS)
def test_stopped_at_every_second_step_it_ends_in_the_same_bytes(tiny_experiment, undisturbed, tmp_path, method):
    place = run_all(tiny_experiment(changes_of(method)), tmp_path / "again", stop_every=2)
    for stage in stages_of(method):
        assert tiny.content(place / stage) == tiny.content(undisturbed(method) / stage), stage


@pytest.mark.parametrize("weights", ["raw", "ema"])
@pytest.mark.parametrize("method", METHODS)
def test_one_rule_says_which_network_is_the_result(tiny_experiment, method, weights):
    """Of the last stage that the method has; what the main stage starts from is another setting."""
    passed_on = {"raw": "ema", "ema": "raw"}[weights]
    changes = {"weights": weights, "warmup.passes_on": passed_on}
    experiment = tiny_experiment(changes_of(method) | changes)
    warmup, main = experiment.method.warmup(experiment.roles), experiment.method.main(experiment.roles)
    if METHODS[method].unlabelled:
        assert (warmup.publishes, main.publishes) == (passed_on, weights)
    else:
        assert warmup.publishes == weights


@pytest.mark.parametrize("method", METHODS)
def test_a_model_s_scores_are_those_of_the_experiment(tiny_experiment, undisturbed, method):
    model, experiment = load_model(undisturbed(method) / stages_of(method)[-1]), tiny_experiment(changes_of(method))
    scores = experiment.predict(model.network, experiment.roles.test)
    assert scores.shape == (12, 3) and ((scores >= 0) & (scores <= 1)).all()
    again = model.method.scores(model.network, experiment.store.read(experiment.roles.test))
    torch.testing.assert_close(again.detach(), scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["cap", "mld", "dicap"])
def test_the_model_of_the_last_stage_is_the_raw_network_s(undisturbed, method):
    place = undisturbed(method)
    last = place / stages_of(method)[-1]
    assert load_model(last / "model.safetensors").which == "raw"
    assert load_model(last / "model_ema.safetensors").which == "ema"


@pytest.mark.parametrize("method", METHODS)
def test_hidden_labels_change_no_byte_of_its_models(tiny_experiment, undisturbed, own_set, tmp_path, method):
    for rows in hidden_rows(tiny_experiment()):
        invert_labels(own_set, rows)
    place = run_all(tiny_experiment(changes_of(method), folder=own_set), tmp_path / "hidden")
    for stage in stages_of(method):
        assert models(place / stage) == models(undisturbed(method) / stage), stage
    assert len(models(place)) >= 2


@pytest.mark.parametrize("method", METHODS)
def test_options_of_other_methods_change_nothing(tiny_experiment, undisturbed, tmp_path, method):
    place = run_all(tiny_experiment(changes_of(method) | tiny.options_of_others(method)), tmp_path / "others")
    for stage in stages_of(method):
        assert tensors(place / stage) == tensors(undisturbed(method) / stage), stage
