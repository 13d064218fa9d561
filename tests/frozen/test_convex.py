"""Warm-up and main stage solved as convex problems: the optimum, and nothing leaks."""

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from safetensors.numpy import load_file
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from training.test_resume import run_all

from dicap import sklearn
from dicap.calibration.rates import count_bins, estimate_rates
from dicap.files.artifacts import epoch_file, read_pseudo_labels
from dicap.files.json_files import read_json
from dicap.frozen import crossfit
from dicap.frozen.loops import recommended
from dicap.frozen.loops.solved import Problem, entries
from dicap.frozen.solver import DEFAULT_TOLERANCE
from dicap.methods import build_method
from dicap.models import load_model

HOLDOUT = {"method": "dicap", "head": "linear", "linear.solver": "convex", "linear.features": "root", "linear.C": 0.05}
RECOMMENDED = HOLDOUT | {
    "linear.neighbours": 3,
    "linear.pseudo_weight": 0.5,
    "protocol": "recommended",
}
AUTO = RECOMMENDED | {"linear.pseudo_weight": "auto"}
ALIKE = {"atol": 2e-3}  # a solution is within its tolerance of the optimum, and so are two of the same problem


@pytest.fixture
def solved(monkeypatch):
    """The problem and the heads of the main stage that was run last."""
    seen = {}
    evidence_out_of_fold = recommended.evidence_out_of_fold

    def remember(problem, heads):
        seen["problem"], seen["heads"], seen["counted"] = problem, heads, evidence_out_of_fold(problem, heads)
        return seen["counted"]

    monkeypatch.setattr(recommended, "evidence_out_of_fold", remember)
    return seen


def problem_of(experiment, place):
    """The main stage's problem, on the features as the warm-up's network scales them."""
    network = tiny.network_of(experiment, place / "warmup" / "model.safetensors")()
    return Problem.of(experiment, network, experiment.method.main(experiment.roles))


# -- the optimum ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", "standard", "root"])
def test_the_warm_up_is_what_scikit_learn_finds_on_the_same_rows(frozen_experiment, tmp_path, kind):
    experiment = frozen_experiment({"method": "bce", "head": "linear", "linear.solver": "convex", "linear.features": kind})
    place = run_all(experiment, tmp_path, ("warmup",))
    chosen = read_json(place / "warmup" / "choice.json")["C"]
    assert chosen > 0
    problem = problem_of(experiment, place)
    x, y = problem.rows[problem.labelled].astype(float), tiny.hidden_labels(experiment, experiment.roles.labelled)
    found = load_file(place / "warmup" / "model.safetensors")
    for c in range(y.shape[1]):
        peer = LogisticRegression(C=chosen, tol=1e-10, max_iter=100000).fit(x, y[:, c])
        error = np.linalg.norm(found["head.linear.weight"][c] - peer.coef_[0])
        assert error * np.sqrt((x**2).mean()) <= 1.1 * DEFAULT_TOLERANCE  # as `solve` promises of features of mean square 1
        assert found["head.linear.bias"][c] == pytest.approx(peer.intercept_[0], abs=1e-2)


def test_a_given_penalty_is_taken_and_one_labelled_image_is_enough(frozen_experiment, tmp_path):
    run_all(frozen_experiment(HOLDOUT | {"linear.C": 0.07}), tmp_path / "given")
    assert read_json(tmp_path / "given" / "warmup" / "choice.json") == {"C": 0.07}
    few = HOLDOUT | {"linear.C": "auto", "ratio": 0.08}
    experiment = frozen_experiment(few, split=tmp_path / "few.parquet")
    assert len(experiment.roles.sup) == len(experiment.roles.est) == 1
    run_all(experiment, tmp_path / "few")
    run_all(frozen_experiment(RECOMMENDED | few, split=tmp_path / "few.parquet"), tmp_path / "cross")


@pytest.mark.parametrize("changes", [HOLDOUT, RECOMMENDED])
def test_the_student_is_scikit_learn_s_on_labelled_and_pseudo_labelled_rows(frozen_experiment, monkeypatch, tmp_path, changes):
    monkeypatch.setattr(crossfit, "TOLERANCE", 1e-3)  # or neither is the optimum to the digits below
    experiment = frozen_experiment(changes)
    place = run_all(experiment, tmp_path)
    problem = problem_of(experiment, place)
    _, _, label, weight = read_pseudo_labels(epoch_file(place / "train", "pseudo_labels", 0))
    x = problem.all_rows.astype(float)
    found = load_file(place / "train" / "model.safetensors")
    share = experiment.settings.linear.pseudo_weight
    for c in range(problem.y.shape[1]):
        y = np.concatenate([problem.y[:, c], label[:, c] == 1])
        w = np.concatenate([np.ones(len(problem.y)), share * weight[:, c].astype(float) * (label[:, c] >= 0)])
        peer = LogisticRegression(C=0.05, tol=1e-10, max_iter=100000).fit(x, y, sample_weight=w)
        assert np.allclose(found["head.linear.weight"][c], peer.coef_[0], atol=2e-3)  # weights are written as halves


@pytest.mark.parametrize("weight", [0.5, "auto"])
def test_the_estimator_finds_the_same_on_the_same_folds(frozen_experiment, solved, monkeypatch, tmp_path, weight):
    experiment = frozen_experiment(RECOMMENDED | {"linear.pseudo_weight": weight})
    place = run_all(experiment, tmp_path)
    problem, found = solved["problem"], read_json(place / "train" / "choice.json")
    rows, y = problem.order, np.pad(problem.y, ((0, len(problem.unlabelled)), (0, 0)), constant_values=-1)
    monkeypatch.setattr(sklearn, "deal_folds", lambda *_: problem.fold)
    estimator = sklearn.DiCaPClassifier(C=0.05, features="root", pseudo_weight=weight, neighbours=3)
    model = estimator.fit(experiment.bank.mean(rows), y)
    heads = solved["heads"]
    assert np.allclose(model.coef_, heads.w[-1], **ALIKE) and np.allclose(model.intercept_, heads.b[-1], **ALIKE)
    if weight == 0.5:
        assert found == {"C": 0.05} and model.choice_ is None
        return
    assert model.choice_ is not None and found["share"] == model.choice_.share
    assert found["evidence"] == pytest.approx(model.choice_.evidence, abs=0.05)


def test_a_soft_target_is_the_chance_of_presence():
    soft = {"calibration.target": "soft", "thresholds.rule": "none"}
    method = build_method(tiny.settings(soft), 3, 0.5)
    p, chance = torch.from_numpy(np.random.default_rng(0).random((2, 200, 3)))
    y = (chance < p).int()
    rates = estimate_rates(*count_bins(p, y, 20))
    target, weight = entries(method.pseudo_labels(p, rates, method.thresholds(p, y)), 0)
    assert (weight == 1).all() and np.allclose(target, rates.at(p).numpy(), atol=1e-6)


def test_labels_weights_and_the_curve_are_recorded(frozen_experiment, monkeypatch, tmp_path):
    seen, record = [], recommended.refresh_of
    monkeypatch.setattr(recommended, "refresh_of", lambda problem, labels: seen.append(labels) or record(problem, labels))
    experiment = frozen_experiment(RECOMMENDED)
    out = run_all(experiment, tmp_path) / "train"
    table = pd.read_parquet(out / "weights")
    assert len(table) == 20 and table["r_pos"].between(0, 1).all()
    assert pd.read_csv(out / "history.csv")["excess_log_loss"].notna().all()
    _, p, label, weight = read_pseudo_labels(epoch_file(out, "pseudo_labels", 0))
    (labels,), unlabelled = seen, len(experiment.roles.unlabelled)
    for written, made in ((p, labels.scores), (label, labels.label), (weight, labels.weight)):
        np.testing.assert_allclose(written, made[-unlabelled:], atol=1e-3)


# -- nothing leaks ----------------------------------------------------------------------------------------------------


def test_the_chance_is_counted_on_scores_of_heads_that_never_saw_the_image(frozen_experiment, solved, tmp_path):
    experiment = frozen_experiment(RECOMMENDED)
    place = run_all(experiment, tmp_path)
    problem, w, b = solved["problem"], solved["heads"].w, solved["heads"].b
    p = np.array([expit(w[k] @ problem.rows[row] + b[k]) for row, k in zip(problem.labelled, problem.fold, strict=True)])
    y = tiny.hidden_labels(experiment, problem.labelled)
    published = load_model(place / "train" / "model.safetensors").evidence
    assert np.allclose(published.p, p, atol=1e-4) and (published.y == y).all()
    seen = expit(problem.rows[problem.labelled] @ w[-1].T + b[-1])
    assert ((seen - y) ** 2).mean() < ((p - y) ** 2).mean(), "scores of images that were trained on look better"


@pytest.mark.parametrize("method", ["asl", "top1", "topk", "iat", "cap"])
def test_every_method_whose_labels_a_head_can_be_solved_on(frozen_experiment, tmp_path, method):
    experiment = frozen_experiment({"method": method, "head": "linear", "linear.solver": "convex", "linear.features": "root"})
    stages = ("warmup",) if method == "asl" else ("warmup", "train")
    place = run_all(experiment, tmp_path, stages)
    model = load_model(place / stages[-1] / "model.safetensors")
    assert model.evidence.measured is None and "trains on all labelled images" in model.evidence.note
