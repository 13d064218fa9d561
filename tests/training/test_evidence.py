"""What the stages publish beside the network: thresholds by the method's rule, and scores of labels that it had not learnt."""

from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dicap.calibration.evidence import Evidence, labels_of
from dicap.calibration.thresholds import dual_thresholds
from dicap.evaluation.answers import Answers
from dicap.methods import rules
from dicap.models import load_model
from dicap.training.evidence import at_equal_rank, carried_over, on_est, published_thresholds


def scores(path, experiment, rows):
    network = load_model(path).network
    with torch.inference_mode():
        return experiment.predict(network, rows)


@pytest.mark.parametrize(
    ("stage", "name"), [("warmup", "model"), ("warmup", "model_ema"), ("train", "model"), ("train", "model_ema")]
)
def test_thresholds_are_of_d_sup_and_scores_of_d_est(tiny_experiment, trained, stage, name):
    path = trained / stage / f"{name}.safetensors"
    experiment = tiny_experiment()
    roles, found = experiment.roles, load_model(path).evidence
    expected = dual_thresholds(scores(path, experiment, roles.sup), experiment.labels.of(roles.sup))
    np.testing.assert_allclose(found.tau_pos, 0.5 if stage == "warmup" else expected.tau_pos, atol=1e-5)
    np.testing.assert_allclose(found.tau_neg, 0.5 if stage == "warmup" else expected.tau_neg, atol=1e-5)
    np.testing.assert_allclose(found.p, scores(path, experiment, roles.est), atol=1e-5)
    assert (found.y == experiment.labels.of(roles.est).numpy()).all() and found.entries == len(roles.est) * 3
    np.testing.assert_allclose(found.prior, experiment.labels.of(roles.labelled).numpy().mean(0), atol=1e-6)


def test_a_fine_tuned_model_is_not_measured_on_the_images_it_was_tuned_on(tiny_experiment, trained):
    experiment = tiny_experiment()
    before, path = trained / "train" / "model.safetensors", trained / "finetune" / "model.safetensors"
    rows = experiment.roles.unlabelled
    found, old = load_model(path).evidence, load_model(before).evidence
    unlabelled = [scores(each, experiment, rows).numpy() for each in (before, path)]
    np.testing.assert_allclose(found.p, at_equal_rank(old.p, *unlabelled), atol=1e-5)
    assert (found.y == old.y).all()
    assert "before fine-tuning" in found.note and f"{len(rows)} unlabelled" in found.note


def test_without_unlabelled_images_the_earlier_scores_stay(tiny_experiment, trained):
    experiment = tiny_experiment()
    experiment.roles = experiment.roles.__class__(**(vars(experiment.roles) | {"unlabelled": np.empty(0, np.int64)}))
    network = load_model(trained / "train" / "model.safetensors").network
    evidence = on_est(experiment, network)
    found = carried_over(evidence, experiment, network, stage="finetune", where="before")(experiment, network)
    assert np.array_equal(found.p, evidence.p) and found.note.endswith("before")


def test_a_class_that_is_left_out_is_never_decided():
    p, y = torch.rand(20, 3), torch.randint(2, (20, 3))
    y[:, 1] = 0
    tau_pos, tau_neg = published_thresholds(rules.quota(p, y)[1])
    evidence = Evidence(tau_pos, tau_neg, np.zeros(3), "", p.numpy(), y.numpy())
    for confidence in (0.0, 0.1, 0.9, 1.0):
        assert Answers.of(evidence).decide(np.full((1, 3), confidence))[0][0, 1] == -1


# -- carried over to the scores of another network


@given(st.integers(0, 999), st.integers(1, 60), st.floats(0.3, 3))
@settings(max_examples=30)
def test_a_carried_score_has_the_rank_it_had(seed, images, power):
    rng = np.random.default_rng(seed)
    before, x = rng.random((images, 3)), rng.random((7, 3))
    assert np.allclose(at_equal_rank(x, before, before), x)
    found = at_equal_rank(x, before, before**power)
    for i, c in np.ndindex(x.shape):
        assert (before[:, c] ** power > found[i, c]).sum() == (before[:, c] > x[i, c]).sum()
    saturated = np.where(before < 0.3, 0.0, before)
    assert at_equal_rank(np.array([0.0, 1.0, 0.5]), saturated, before)[:2].tolist() == [0, 1], "such a class stays left out"


def test_the_new_network_is_asked_on_unlabelled_images_alone():
    """Of each image it gives the square of the score before, but has learnt the labels of the first five by heart."""
    before = torch.from_numpy(np.random.default_rng(0).random((60, 3)))
    y = np.ones((5, 3), np.int8)
    after = torch.cat([torch.ones(5, 3), before[5:] ** 2])
    roles = SimpleNamespace(unlabelled=np.arange(5, 60))
    experiment = SimpleNamespace(roles=roles, settings=tiny.settings(), predict=lambda network, rows: network[rows])
    evidence = Evidence.of_scores(np.ones(3), "drawn", before[:5].numpy(), y)
    found = carried_over(evidence, experiment, before, stage="finetune", where="before", most=50)(experiment, after)  # type: ignore[arg-type]
    assert np.abs(found.p - before[:5].numpy() ** 2).max() < 0.05 and found.note.endswith("carried over on 50 unlabelled images")


@given(st.lists(st.integers(-128, 127), min_size=1), st.sampled_from([np.uint8, np.int8, np.int64, np.float32]))
def test_labels_of_any_type_are_kept_and_numbers_below_0_are_unknown(values, dtype):
    values = [abs(value) % 128 for value in values] if dtype is np.uint8 else values
    kept = labels_of(np.array(values, dtype))
    assert kept.dtype == np.int8 and kept.tolist() == [max(value, -1) for value in values]
