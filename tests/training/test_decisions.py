"""What the stages publish beside the network: thresholds by the method's rule, the curve of D_est, and nothing for the others."""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch

from dicap.calibration.curve import carry_over, curve_by_rank
from dicap.calibration.thresholds import dual_thresholds
from dicap.methods import rules
from dicap.models import load_model
from dicap.training.decisions import CurveSource, decisions_of


def scores(path, experiment, rows):
    network = load_model(path).network
    with torch.inference_mode():
        return experiment.predict(network, rows)


@pytest.mark.parametrize(
    ("stage", "name"), [("warmup", "model"), ("warmup", "model_ema"), ("train", "model"), ("train", "model_ema")]
)
def test_thresholds_are_of_d_sup_and_the_curve_of_d_est(tiny_experiment, trained, stage, name):
    path = trained / stage / f"{name}.safetensors"
    experiment = tiny_experiment()
    roles, found = experiment.roles, load_model(path).decisions
    expected = dual_thresholds(scores(path, experiment, roles.sup), experiment.labels.of(roles.sup))
    np.testing.assert_allclose(found.tau_pos, 0.5 if stage == "warmup" else expected.tau_pos, atol=1e-5)
    np.testing.assert_allclose(found.tau_neg, 0.5 if stage == "warmup" else expected.tau_neg, atol=1e-5)
    curve = curve_by_rank(scores(path, experiment, roles.est), experiment.labels.of(roles.est))
    np.testing.assert_allclose(found.curve.rate, curve.rate, atol=1e-5)
    assert found.entries == len(roles.est) * 3
    np.testing.assert_allclose(found.prior, experiment.labels.of(roles.labelled).numpy().mean(0), atol=1e-6)


def test_a_fine_tuned_model_is_not_measured_on_the_images_it_was_tuned_on(tiny_experiment, trained):
    experiment = tiny_experiment()
    before, path = trained / "train" / "model.safetensors", trained / "finetune" / "model.safetensors"
    est, rows = experiment.roles.est, experiment.roles.unlabeled
    measured = curve_by_rank(scores(before, experiment, est), experiment.labels.of(est))
    expected = carry_over(measured, scores(before, experiment, rows), scores(path, experiment, rows))
    found = load_model(path).decisions
    np.testing.assert_allclose(found.curve.rate, expected.rate, atol=1e-4)
    assert "before fine-tuning" in found.note and f"{len(rows)} unlabelled" in found.note


def test_without_unlabelled_images_the_earlier_curve_stays(tiny_experiment, trained):
    experiment = tiny_experiment()
    experiment.roles = replace(experiment.roles, unlabeled=np.empty(0, np.int64))
    network = load_model(trained / "train" / "model.safetensors").network
    before = CurveSource.before_finetuning(experiment, network)
    found = decisions_of(experiment, network, "finetune", before)
    assert torch.equal(found.curve.rate, before.curve.rate) and found.note.endswith("before fine-tuning")


def test_a_class_that_is_left_out_is_never_decided(tiny_experiment, trained):
    experiment = tiny_experiment()
    p, y = torch.rand(20, 3), torch.randint(2, (20, 3))
    y[:, 1] = 0
    source = CurveSource.out_of_fold(p, y, rules.quota(p, y)[1], p)
    found = decisions_of(experiment, load_model(trained / "train" / "model.safetensors").network, "train", source)
    answer, _ = found.decide(np.full((1, 3), 0.9))
    assert answer[0, 1] == -1


def test_methods_that_keep_no_images_say_so(tiny_experiment, tmp_path):
    experiment = tiny_experiment({"method": "mld"})
    out = tiny.run_stage(experiment, "warmup", None, tmp_path)
    found = load_model(out / "model.safetensors").decisions
    assert found.curve is None and "MLD trains on all labelled images" in found.note
    assert (found.tau_pos == 0.5).all() and (found.tau_neg == 0.5).all()
