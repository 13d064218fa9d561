"""How a linear head sees pooled features: against NumPy, and as part of a saved model."""

import numpy as np
import pytest
import tiny
import torch
from torch import nn

from dicap.evaluation.evaluate import evaluate
from dicap.files.json_files import read_json
from dicap.frozen import scaling_choice
from dicap.frozen.folds import assign_folds
from dicap.frozen.scaling_choice import choose_scaling
from dicap.models import load_model
from dicap.network.linear import LinearHead, Scaling, fit_scaling, set_scaling
from dicap.network.scaling import NEVER, scaling_of
from dicap.report.page import _remarks
from dicap.sklearn import DiCaPClassifier


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


def features(n=40, d=6):
    x = np.random.default_rng(0).normal(0.5, 1, (n, d)).astype(np.float32) * np.geomspace(0.01, 10, d).astype(np.float32)
    x[:, 2] = 3.0  # never changes, though the deviation of many 3.0 or roots of it need not be 0 to the last bit
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


@pytest.mark.parametrize("kind", ["standard", "root"])
@pytest.mark.parametrize("value", [3.0, 0.1, 1e-3, 12345.678])
@pytest.mark.parametrize("far", [1 + 1e-6, 1e6])
def test_a_constant_becomes_0_on_images_that_differ(kind, value, far):
    head = LinearHead(2, 2, kind)
    fit_scaling(head, np.stack([np.full(1001, value), np.linspace(0, 1, 1001)], 1).astype(np.float32))
    assert head.scaling(torch.tensor([[value * far, 0.5]]))[0, 0].abs() < 1e-5


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


@pytest.mark.parametrize("chosen", ["standard", "root"])
def test_a_head_that_chooses_is_the_head_of_what_was_chosen(chosen):
    rows = features()
    x = torch.from_numpy(rows)
    auto, later, given = LinearHead(6, 3, "auto"), LinearHead(6, 3, "auto"), LinearHead(6, 3, chosen)
    set_scaling(auto.scaling, scaling_of(rows, chosen))
    fit_scaling(given, rows)
    later.load_state_dict(auto.state_dict())
    for scaling in (auto.scaling, later.scaling, torch.export.export(auto.scaling, (x,)).module()):
        assert torch.equal(scaling(x), given.scaling(x))


def heavy_tails(seed=0, n=300, d=30):
    """Features of one sign whose roots the labels are linear in; and those roots, less their mean."""
    rng = np.random.default_rng(seed)
    root = np.abs(rng.standard_normal((n, d))) ** 2
    y = (root @ rng.standard_normal((d, 4)) + 2 * rng.standard_normal((n, 4)) > 0).astype(np.float32)
    return root**2, root - root.mean(0), y


def test_roots_are_left_only_where_the_labelled_rows_clearly_gain():
    x, centred, y = heavy_tails()
    own, fold = slice(150), assign_folds(y[:150], 5, 0)
    for rows, kind in ((x, "root"), (centred, "standard")):
        scaling, loss_weight, words = choose_scaling(rows, rows[own], y[own], fold)
        assert scaling.kind == kind and loss_weight > 0
        assert words.startswith({"root": "roots: log loss 0.", "standard": "standardised: log loss 0."}[kind])
        y_known = np.where(np.arange(len(y))[:, None] < 150, y, -1)
        auto = DiCaPClassifier(random_state=0).fit(rows, y_known)
        given = DiCaPClassifier(features=kind, random_state=0).fit(rows, y_known)
        assert auto.features_ == kind and auto.C_ == given.C_ and np.array_equal(auto.coef_, given.coef_)


def test_unlabelled_rows_of_another_kind_do_not_scale_the_labelled_ones():
    x, _, y = heavy_tails()
    own, fold = x[:150], assign_folds(y[:150], 5, 0)
    score = DiCaPClassifier(random_state=0).fit(own, y[:150]).score(x[150:], y[150:])
    sparse, some = np.random.default_rng(0).poisson(0.02, (900, 500)), np.arange(30) % 2 == np.arange(2)[:, None]
    assert "alone" not in choose_scaling(sparse, sparse[:30], some.T.astype(float), np.arange(30) % 5)[2], "words not seen yet"
    plane = np.cos(np.arange(60))[:, None] * np.ones(9)  # of which two rows vary a quarter as much
    assert "alone" not in choose_scaling(plane, plane[[7, 11]], np.eye(2), np.arange(2))[2]
    half = x[150:] + np.tile([0, 1e4], 15)
    kinds = {"alike": x[150:], "half": half, "one far out": np.r_[x[151:], 1e9 * x[:1]], "one row": x[[0] * 1500]}
    for name, others in kinds.items():
        rows = np.r_[own, others]
        scaling, _, words = choose_scaling(rows, own, y[:150], fold)
        assert ("of roots, scaled by the labelled rows alone, 0." in words) == (name != "alike"), name
        assert np.array_equal(scaling.scale, scaling_of(rows if name == "alike" else own, "root").scale), name
        labels = np.r_[y[:150], np.full((len(others), 4), -1)]
        assert DiCaPClassifier(random_state=0).fit(rows, labels).score(x[150:], y[150:]) > score - 0.01, name


@pytest.mark.parametrize("kind", ["standard", "root", "auto"])
def test_a_saved_model_keeps_what_the_training_images_said(frozen_experiment, bank, tmp_path, monkeypatch, kind):
    monkeypatch.setattr(scaling_choice, "CLEAR", -np.inf)  # the other than by default
    experiment = frozen_experiment({"method": "bce", "head": "linear", "linear.solver": "convex", "linear.features": kind})
    model = load_model(tiny.run_stage(experiment, "warmup", None, tmp_path) / "model.safetensors")
    said = read_json(tmp_path / "warmup" / "choice.json")
    assert said.get("features") == ("standard" if kind == "auto" else None)
    if kind == "auto":
        result = evaluate(experiment, tmp_path / "warmup" / "model.safetensors", tmp_path / "evaluate")
        assert result["scaling"] == said["scaling"] in (tmp_path / "evaluate" / "MODEL_CARD.md").read_text()
        assert f"The head sees features as {said['scaling']}." in list(_remarks(result))
    training = np.concatenate([experiment.roles.labelled, experiment.roles.unlabeled])
    assert not set(training) & set(experiment.roles.test)
    x = bank.view("plain")[training, 0].astype(np.float64)
    x = np.sign(x) * np.sqrt(np.abs(x)) if kind == "root" else x
    scaling = model.network.head.scaling
    assert np.allclose(scaling.mean.numpy(), x.mean(0), atol=1e-5, rtol=1e-4)
    assert np.allclose(scaling.scale.numpy(), np.where(x.std(0) > 0, x.std(0), NEVER), atol=1e-6, rtol=1e-3)
