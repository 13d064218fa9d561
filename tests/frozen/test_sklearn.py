"""DiCaPClassifier: scikit-learn's own checks, slow versions of the rule, unknown entries."""

import pickle
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import tiny
from sklearn.base import clone
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from dicap.frozen.folds import FOLDS
from dicap.frozen.solver import solve
from dicap.settings import read_yaml
from dicap.sklearn import DiCaPClassifier, LabelledKFold

TWO_CLASSES = "one label a sample is asked for in classes 1 and 2; a column of y holds 1, 0 and, where unknown, -1"
ONE_LABEL = "one label a sample is asked for as a 1d array, and y has a column for each of several labels"
EXPECTED = {
    "check_estimators_dtypes": TWO_CLASSES,
    "check_classifier_data_not_an_array": TWO_CLASSES,
    "check_fit2d_1feature": TWO_CLASSES,
    "check_classifiers_classes": ONE_LABEL,
    "check_classifiers_train": ONE_LABEL,
    "check_decision_proba_consistency": ONE_LABEL,
    "check_classifier_multioutput": "it takes classes_ for the outcomes of a single output; here it has those of each",
}


@parametrize_with_checks([DiCaPClassifier()], expected_failed_checks=lambda estimator: EXPECTED)
def test_what_scikit_learn_asks_of_every_estimator(estimator, check):
    check(estimator)


def world(n=80, labelled=30, features=12, classes=4, seed=0, test=40, noise=0.8):
    """x, y with -1 for what is hidden, and as many test rows: labels that move the features along directions of their own."""
    rng = np.random.default_rng(seed)
    y = (rng.random((n + test, classes)) < 0.3).astype(int)
    x = y @ rng.standard_normal((classes, features)) + noise * rng.standard_normal((n + test, features))
    hidden = y.copy()
    hidden[labelled:] = -1
    return x[:n], hidden[:n], x[n:], y[n:]


def probabilities(x, y, x_test, **parameters):
    return DiCaPClassifier(**{"random_state": 0} | parameters).fit(x, y).predict_proba(x_test)


# -- what scikit-learn's checks ask with labels that are none here ------------------------------------------------------


def test_decisions_probabilities_and_chances_agree():
    x, y, x_test, _ = world()
    model = DiCaPClassifier(random_state=0).fit(x, y)
    decision, p, answer = model.decision_function(x_test), model.predict_proba(x_test), model.predict(x_test)
    assert np.array_equal(answer, decision > 0) and np.array_equal(answer, p > 0.5)
    assert np.allclose(model.chance(x_test), np.where(answer == 1, p, 1 - p)) and model.chance(x_test).min() >= 0.5
    stated = model._scaling.apply(x_test) @ model.coef_.T + model.intercept_
    assert all(np.array_equal(np.argsort(decision[:, c]), np.argsort(stated[:, c])) for c in range(4)), "strictly rising"


@pytest.mark.parametrize("kind", ["root", "standard", "plain"])
def test_a_sample_far_from_all_others_is_no_surer_than_was_measured(kind):
    x, y, x_test, _ = world(noise=3)
    model = DiCaPClassifier(features=kind, random_state=0).fit(x, y)
    p, rate = model.predict_proba(1e6 * x_test), model.curve_[1]
    assert rate[0] - 0.01 < p.min() and p.max() < rate[-1] + 0.01
    with (
        np.errstate(all="ignore"),
        pytest.raises(ValueError, match=r"X: row 0 has features of up to .*, too far from those"),
    ):
        model.predict(1e200 * x_test)


# -- unknown entries ----------------------------------------------------------------------------------------------------


def test_minus_one_nan_a_missing_value_of_pandas_and_a_mask_are_the_same():
    x, y, _, _ = world()
    y[:30, 1:][np.random.default_rng(0).random((30, 3)) < 0.4] = -1
    frame = pd.DataFrame(y.astype(int)).astype("Int64").mask(y < 0)
    masked = np.ma.masked_array(np.maximum(y, 0).astype(int), y < 0)
    ways = (y.astype(int), np.where(y < 0, np.nan, y), frame, masked)
    found = [DiCaPClassifier(random_state=0).fit(x, labels).coef_ for labels in ways]
    assert all(np.array_equal(found[0], other) for other in found[1:])


def test_the_score_asks_for_known_entries_only():
    x, y, x_test, y_test = world()
    model = DiCaPClassifier(random_state=0).fit(x, y)
    hidden = y_test.copy()
    hidden[::3, 1], hidden[:, 3] = -1, -1
    rows = np.arange(len(x_test)) % 3 != 0
    decision = model.decision_function(x_test)
    expected = [average_precision_score(y_test[:, c], decision[:, c]) for c in (0, 2)]
    expected.append(average_precision_score(y_test[rows, 1], decision[rows, 1]))
    assert model.score(x_test, hidden) == pytest.approx(np.mean(expected))


# -- little to learn from ------------------------------------------------------------------------------------------------


def test_labels_of_one_outcome_are_answered_with_it():
    x, y, x_test, _ = world()
    y[:30, 0], y[:30, 1] = 1, 0
    with pytest.warns(RuntimeWarning, match="column 0 has no 0"):
        p = probabilities(x, y, x_test)
    assert np.isfinite(p).all() and p[:, 0].min() > 0.5 > p[:, 1].max()
    y[:30] = 0
    assert probabilities(x, y, x_test).max() < 0.5


def test_without_unlabelled_rows_it_is_the_labelled_only_classifier():
    x, y, x_test, _ = world(labelled=80)
    model = DiCaPClassifier(random_state=0, C=0.3).fit(x, y)
    rows = model._scaling.apply(x)
    alone = solve(rows, y, loss_weight=0.3)
    assert np.allclose(model.coef_, alone.w[0], atol=3e-3)
    assert np.isfinite(model.predict_proba(x_test)).all()


def test_two_labelled_rows_are_enough_and_one_is_not():
    x, y, x_test, _ = world(labelled=2)
    assert np.isfinite(probabilities(x, y, x_test)).all()
    y[1] = -1
    with pytest.raises(ValueError, match=r"Found 1 sample\(s\) with a known label while a minimum of 2 is required"):
        DiCaPClassifier().fit(x, y)
    y[0] = -1
    with pytest.raises(ValueError, match=r"Found 0 sample\(s\)"):
        DiCaPClassifier().fit(x, y)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x, y: (x, np.where(y == 1, 2, y)), "y holds 2; expected 1, 0, and -1 or NaN for unknown"),
        (lambda x, y: (x, np.where(np.arange(4) == 2, -1, y)), "column 2 has no known label"),
        (lambda x, y: (x, np.where(y == 1, 1, -1)), "no entry is 0"),
        (lambda x, y: (x[:2], [["cat"], ["cat", "dog"]]), "MultiLabelBinarizer"),
        (lambda x, y: (x, y[:, 0]), "1d array"),
        (lambda x, y: (x[:-1], y), "inconsistent numbers of samples"),
        (lambda x, y: (np.where(x == x[3, 3], np.nan, x), y), "Input X contains NaN"),
        (lambda x, y: (np.ma.masked_array(x, x == x[3, 3]), y), "X: some values are masked"),
        (lambda x, y: (1e30 * x, y), "whose squares overflow"),
        (lambda x, y: (1e-60 * x, y), "whose squares vanish"),
    ],
)
def test_bad_arrays_are_refused(change, said):
    x, y, _, _ = world()
    with pytest.raises(ValueError, match=re.escape(said)):
        DiCaPClassifier(features="plain").fit(*change(x, y))


# -- among scikit-learn's others -----------------------------------------------------------------------------------------


def test_parameters_are_settings_with_the_recommended_values():
    recommended = read_yaml(tiny.ROOT / "configs" / "recommended.yaml")["linear"]
    assert recommended.pop("solver") == "convex"
    assert DiCaPClassifier().get_params() == recommended | {"C": "auto", "folds": FOLDS, "random_state": None}


def test_in_a_pipeline_that_hands_on_data_frames():
    x, y, x_test, _ = world()
    names, classes = [f"feature {i}" for i in range(12)], ["red", "green", "blue", "round"]
    frame, labels = pd.DataFrame(x, columns=names), pd.DataFrame(y, columns=classes)
    pipeline = make_pipeline(StandardScaler(), DiCaPClassifier(random_state=0)).set_output(transform="pandas").fit(frame, labels)
    model = pipeline[-1]
    assert list(model.feature_names_in_) == names and list(model.class_names_) == classes and model.n_features_in_ == 12
    asked, scaler = pd.DataFrame(x_test, columns=names), StandardScaler().fit(x)
    found = pipeline.predict_proba(asked)
    expected = probabilities(scaler.transform(x), y, scaler.transform(x_test))
    assert isinstance(found, np.ndarray) and np.allclose(found, expected, atol=1e-4)
    assert np.array_equal(pickle.loads(pickle.dumps(pipeline)).predict(asked), pipeline.predict(asked))


@pytest.mark.parametrize("unknown", [-1, np.nan])
def test_a_grid_search_as_one_types_it_with_labelled_rows_first(unknown):
    x, y, x_test, y_test = world(n=120, labelled=60)
    y = np.where(y < 0, unknown, y)
    search = GridSearchCV(DiCaPClassifier(random_state=0), {"neighbours": [0, 5]}, cv=LabelledKFold(3, random_state=0)).fit(x, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all() and search.score(x_test, y_test) > y_test.mean()
    assert clone(search.best_estimator_).get_params() == search.best_estimator_.get_params()


def test_folds_of_labelled_rows_leave_unlabelled_ones_in_every_training_part():
    _, y, _, _ = world(n=50, labelled=20)
    parts = list(LabelledKFold(4, random_state=0).split(None, y))
    assert sorted(np.concatenate([test for _, test in parts])) == list(range(20)) and len(parts) == 4
    assert all(sorted(np.concatenate(part)) == list(range(50)) for part in parts)
    for folds in (21, 2.5, "5"):
        with pytest.raises(ValueError, match=f"n_splits: found {folds}, expected 2 to 20, the samples with a known label"):
            next(LabelledKFold(folds).split(None, y))


def test_no_torch_is_imported():
    code = """
import sys
import numpy as np
from dicap.sklearn import DiCaPClassifier
x, y = np.random.default_rng(0).random((40, 5)), np.arange(40)[:, None] % [2, 3] == 0
DiCaPClassifier().fit(x, np.where(np.arange(40)[:, None] < 20, y, -1)).chance(x)
heavy = {"torch", "torchvision", "timm", "pydantic", "matplotlib"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)
