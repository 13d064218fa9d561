"""How a linear head sees pooled features: against NumPy, and as part of a saved model."""

import numpy as np
import pytest
import tiny
import torch
from torch import nn

from dicap.models import load_model
from dicap.network.linear import LinearHead, Scaling, fit_scaling
from dicap.scaling import NEVER, scaling_of


def scaled(x, rows, kind):
    """Rows as the head sees them, by NumPy; mean and deviation are those of x."""
    x, rows = x.astype(np.float64), rows.astype(np.float64)
    if kind == "plain":
        return rows
    if kind == "root":
        x, rows = (np.sign(v) * np.sqrt(np.abs(v)) for v in (x, rows))
    deviation, size = x.std(0), np.abs(x.mean(0))
    rows = (rows - x.mean(0)) / np.where(deviation > 1e-6 * size, deviation, np.inf)
    if kind == "root":
        rows = rows * np.sqrt(rows.shape[1]) / np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def features(n=1001, d=6):
    x = np.random.default_rng(0).normal(0.5, 1, (n, d)).astype(np.float32) * np.geomspace(0.01, 10, d).astype(np.float32)
    x[:, 2:4] = 0.1, 12345.678  # constant, though the deviation of many, or of their roots, need not be 0 to the last bit
    return x


@pytest.mark.parametrize("kind", ["plain", "standard", "root"])
def test_rows_are_scaled_by_the_network_and_by_the_arrays_as_by_hand(kind):
    x, others = features(), features(9) + 0.1
    network = nn.ModuleDict({"head": LinearHead(6, 3, kind), "other": nn.Linear(2, 2)})
    fit_scaling(network, x)
    scaling = network["head"].scaling
    assert isinstance(scaling, Scaling)
    for rows in (x, others):
        assert np.allclose(scaling(torch.from_numpy(rows)).numpy(), scaled(x, rows, kind), atol=1e-4)
        assert np.allclose(scaling_of(x, kind).apply(rows), scaled(x, rows, kind), atol=1e-4)


def test_a_row_equal_to_the_mean_stays_finite():
    head = LinearHead(4, 2, "root")
    fit_scaling(head, np.ones((5, 4), np.float32))
    assert head.scaling(torch.ones(1, 4)).isfinite().all()


def test_a_plain_head_has_nothing_to_save_and_pools_first():
    head = LinearHead(6, 3, "plain")
    assert set(head.state_dict()) == {"linear.weight", "linear.bias"}
    head = LinearHead(6, 3, "root")
    fit_scaling(head, features())
    logits, z = head(maps := torch.rand(2, 6, 3, 4))
    pooled = head.scaling(maps.mean((2, 3)))
    assert torch.allclose(logits, head.linear(pooled), atol=1e-6)
    assert torch.allclose(z.sum(2) + head.linear.bias, logits, atol=1e-4)


@pytest.mark.parametrize("kind", ["standard", "root"])
def test_a_saved_model_keeps_what_the_training_images_said(frozen_experiment, bank, tmp_path, kind):
    experiment = frozen_experiment({"method": "bce", "head": "linear", "linear.solver": "convex", "linear.features": kind})
    model = load_model(tiny.run_stage(experiment, "warmup", None, tmp_path) / "model.safetensors")
    training = np.concatenate([experiment.roles.labelled, experiment.roles.unlabelled])
    assert not set(training) & set(experiment.roles.test)
    x = bank.view("plain")[training, 0].astype(np.float64)
    x = np.sign(x) * np.sqrt(np.abs(x)) if kind == "root" else x
    scaling = model.network.head.scaling
    assert np.allclose(scaling.mean.numpy(), x.mean(0), atol=1e-5, rtol=1e-4)
    assert np.allclose(scaling.scale.numpy(), np.where(x.std(0) > 0, x.std(0), NEVER), atol=1e-6, rtol=1e-3)
