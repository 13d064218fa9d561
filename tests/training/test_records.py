"""What is written about an epoch, and what hidden labels say about it, against slow versions."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from dicap.calibration.rates import Rates
from dicap.calibration.thresholds import PseudoLabels, Thresholds
from dicap.files import artifacts
from dicap.files.tables import read_parquet
from dicap.lab.paper_figures import figure_1a, figure_1b, figure_1c
from dicap.methods.base import Refresh, Roles
from dicap.report.evidence import read_curves
from dicap.report.figures.calibration import correctness, early_and_late
from dicap.report.histogram import open_histogram
from dicap.training import diagnostics
from dicap.training.records import record

N, C, K = 9, 3, 4
ROWS = np.array([2, 3, 5, 7, 8, 11, 12, 13, 14])
EST = np.array([3, 12])
UNKNOWN = np.array([5, 14])  # truly unlabelled


@pytest.fixture
def labels():
    labels = np.random.default_rng(0).integers(0, 2, (N, C)).astype(np.uint8)
    labels[np.isin(ROWS, UNKNOWN)] = 0
    return labels


def diagnostics_of(labels, known=None):
    known = ~np.isin(ROWS, UNKNOWN) if known is None else known
    settings = SimpleNamespace(calibration=SimpleNamespace(bins=K))
    none = np.array([], np.int64)
    experiment = SimpleNamespace(folder=None, settings=settings, roles=Roles(none, EST, none, none))
    reader = SimpleNamespace(labels=lambda rows: (torch.from_numpy(labels), torch.from_numpy(known)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diagnostics, "HiddenLabelReader", lambda folder: reader)
        return diagnostics.Diagnostics(experiment, ROWS)


@pytest.fixture
def refresh():
    rng = np.random.default_rng(1)
    counts = torch.tensor([[1, 0, 3, 4], [5, 0, 1, 0]]).double()
    tau = torch.tensor([[0.6, 0.7, 1.0], [0.2, 0.7, 0.0]], dtype=torch.float64)
    of_classes = torch.tensor([[3, 2, 0], [4, 5, 7]])
    thresholds = Thresholds(*tau, *of_classes, torch.tensor([False, True, False]), torch.ones(C, dtype=torch.bool))
    p = torch.from_numpy(rng.random((N, C)).astype(np.float32))
    label = torch.from_numpy(rng.integers(-1, 2, (N, C)).astype(np.int8))
    weight = torch.from_numpy(rng.random((N, C)).astype(np.float32))
    rates, one = Rates(*counts, torch.tensor([0.2, 0.5, 0.7, 0.9]).double()), torch.tensor(1)
    return Refresh(PseudoLabels(p, label, weight), rates, thresholds, one)


def counted():
    """Places in ROWS whose hidden labels may be compared: labelled, and not in D_est."""
    return [i for i, row in enumerate(ROWS) if row not in EST and row not in UNKNOWN]


def slow_optimal(refresh, labels):
    """(C, K) positive and all entries of every class and bin."""
    pos, total = np.zeros((C, K)), np.zeros((C, K))
    for i in counted():
        for c in range(C):
            k = min(int(float(refresh.pseudo.confidence[i, c]) * K), K - 1)
            pos[c, k] += labels[i, c]
            total[c, k] += 1
    return pos, total


def test_what_is_written_of_an_epoch_is_what_it_trained_on_and_what_hidden_labels_say(refresh, labels, tmp_path):
    ids, known = list("abcdefghi"), diagnostics_of(labels)
    record(refresh, tmp_path, 3, ids=np.array(ids, dtype=object), classes=["x", "y", "z"], optimal=known.optimal)
    frame = pd.read_parquet(tmp_path / "weights")
    assert frame["epoch"].unique().tolist() == [3]
    assert frame["bin"].tolist() == [0, 1, 2, 3]
    assert frame["left"].tolist() == [0, 0.25, 0.5, 0.75] and frame["right"].tolist() == [0.25, 0.5, 0.75, 1]
    for name in ("n_pos", "n_neg", "r_pos", "r_neg"):
        np.testing.assert_array_equal(frame[name], getattr(refresh.rates, name).numpy())
    pos, total = (table.sum(0) for table in slow_optimal(refresh, labels))
    assert frame["optimal_n"].tolist() == total.tolist()
    seen = total > 0
    assert frame["optimal_r_pos"].notna().tolist() == seen.tolist()
    np.testing.assert_allclose(frame["optimal_r_pos"][seen], (pos[seen] / total[seen]), atol=1e-6)

    frame = pd.read_parquet(tmp_path / "thresholds")
    assert frame["class"].tolist() == ["x", "y", "z"]
    assert frame["tau_pos"].tolist() == [0.6, 0.7, 1.0] and frame["tau_neg"].tolist() == [0.2, 0.7, 0.0]
    assert frame["n_pos"].tolist() == [3, 2, 0] and frame["crossed"].tolist() == [False, True, False]
    found, *tables = artifacts.read_pseudo_labels(artifacts.epoch_file(tmp_path, "pseudo_labels", 3))
    assert found == ids and all(np.array_equal(*pair) for pair in zip(tables, refresh.pseudo[:3], strict=True))

    curves = read_curves(tmp_path / "weights")
    error = np.average((curves["r_pos"] - curves["optimal_r_pos"]).abs().fillna(0), weights=curves["optimal_n"])
    assert error == pytest.approx(known.summary(refresh)["curve_error"], abs=1e-6), "the history says the same"


def test_of_a_bin_without_hidden_labels_no_true_rate_is_stored_or_drawn(refresh, labels, tmp_path):
    p = refresh.pseudo.confidence
    refresh = refresh._replace(pseudo=refresh.pseudo._replace(confidence=torch.where(p < 0.5, p / 2, 0.5 + (p - 0.5) / 2)))
    known = diagnostics_of(labels)
    record(refresh, tmp_path, 0, ids=np.array(list("abcdefghi"), object), classes=["x", "y", "z"], optimal=known.optimal)
    stored = read_parquet(artifacts.epoch_file(tmp_path, "weights", 0))
    assert stored["optimal_r_pos"].is_valid().to_pylist() == [n > 0 for n in stored["optimal_n"].to_pylist()]
    assert stored["optimal_n"].null_count == 0

    curves, there = read_curves(tmp_path / "weights"), [True, False, True, False]
    assert (curves["optimal_n"] > 0).tolist() == there
    assert ["optimal" in words for _, _, words in open_histogram(tmp_path / "weights")[1]] == there
    for figure in (correctness(curves), early_and_late(curves), figure_1a(curves), figure_1b({0.1: curves}), figure_1c(curves)):
        titles = ("optimal", "unlabelled images", "10 % labelled")
        lines = [line for ax in figure.axes for line in ax.lines if line.get_label() in titles]
        assert lines and all(np.isfinite(line.get_ydata()).tolist() == there and line.get_marker() != "None" for line in lines)


def test_without_hidden_labels_the_optimal_columns_are_null(refresh, labels, tmp_path):
    nothing = diagnostics_of(np.zeros_like(labels), np.zeros(N, bool))
    record(refresh, tmp_path, 0, ids=np.array(list("abcdefghi")), classes=["x", "y", "z"], optimal=nothing.optimal)
    frame = pd.read_parquet(tmp_path / "weights")
    assert frame[["optimal_r_pos", "optimal_n"]].isna().all(axis=None)
    summary = nothing.summary(refresh)
    assert math.isnan(summary["curve_error"]) and "precision_pos" not in summary


def test_the_summary_equals_loops(refresh, labels):
    row = diagnostics_of(labels).summary(refresh)
    label = refresh.pseudo.label.numpy()
    for name, value in (("pos", 1), ("neg", 0), ("uncertain", -1)):
        share = sum(label[i, c] == value for i in range(N) for c in range(C)) / (N * C)
        assert row[f"share_{name}"] == pytest.approx(share)
    for name, value in (("pos", 1), ("neg", 0)):
        weights = [float(refresh.pseudo.weight[i, c]) for i in range(N) for c in range(C) if label[i, c] == value]
        mean = sum(weights) / len(weights)
        assert row[f"weight_{name}"] == pytest.approx(mean, abs=1e-12)
        if value:
            variance = sum((weight - mean) ** 2 for weight in weights) / len(weights)
            assert row["weight_pos_sd"] == pytest.approx(math.sqrt(variance), abs=1e-12) and variance > 0.01
    assert row["n_crossed"] == 1 and row["n_guarded"] == 1
    for name, value in (("pos", 1), ("neg", 0)):
        chosen = [labels[i, c] == value for i in counted() for c in range(C) if label[i, c] == value]
        assert row[f"precision_{name}"] == pytest.approx(sum(chosen) / len(chosen))
    pos, total = slow_optimal(refresh, labels)
    stated = refresh.rates.r_pos.numpy() * total
    assert row["curve_error"] == pytest.approx(np.abs((stated - pos).sum(0)).sum() / total.sum(), abs=1e-6)
    stated, best = slow_log_losses(refresh, labels)
    assert row["log_loss"] == pytest.approx(stated, abs=1e-6)
    assert row["excess_log_loss"] == pytest.approx(stated - best, abs=1e-6)


def slow_log_losses(refresh, labels):
    """Mean log loss of the rates, whose anchors are the bins' left ends, and of the optimal ones at their centres."""
    pos, total = (table.sum(0) for table in slow_optimal(refresh, labels))
    seen = np.flatnonzero(total)
    optimal = np.interp(np.arange(K), seen, pos[seen] / total[seen])
    losses = []
    for i in counted():
        for c in range(C):
            p = float(refresh.pseudo.confidence[i, c])
            ours = np.interp(p, np.arange(K) / K, refresh.rates.r_pos)
            best = np.interp(p, (np.arange(K) + 0.5) / K, optimal)
            rates = [min(max(r, 1e-4), 1 - 1e-4) for r in (ours, best)]
            losses.append([-math.log(r if labels[i, c] else 1 - r) for r in rates])
    return np.mean(losses, axis=0)


def test_precision_of_labels_nobody_got_is_not_a_number(refresh, labels):
    nobody = refresh._replace(pseudo=refresh.pseudo._replace(label=torch.zeros(N, C, dtype=torch.int8)))
    row = diagnostics_of(labels).summary(nobody)
    assert math.isnan(row["precision_pos"]) and not math.isnan(row["precision_neg"])
    assert math.isnan(row["weight_pos"]) and math.isnan(row["weight_pos_sd"]) and not math.isnan(row["weight_neg"])
