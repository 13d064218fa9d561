"""What evaluate writes, and that its numbers are those of the models and histories it read."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import tiny
import torch
from sklearn.metrics import average_precision_score

from dicap.errors import DataError
from dicap.evaluation.evaluate import _from_histories, evaluate, metrics
from dicap.evaluation.model_card import model_card
from dicap.files.tables import matrix, read_parquet
from dicap.models import load_model, save_model


@pytest.fixture
def out(tmp_path):
    return tmp_path / "evaluate"


@pytest.fixture(scope="module")
def evaluated(tiny_set, trained, model_file, tmp_path_factory):
    """An experiment, the numbers of its fine-tuned model, and the folder with what was written."""
    experiment, out = tiny.open_experiment(tiny_set, trained / "split.parquet"), tmp_path_factory.mktemp("evaluated") / "out"
    return experiment, evaluate(experiment, model_file, out), out


def slow_scores(path, experiment):
    """One image at a time."""
    network = load_model(path).network
    with torch.no_grad():
        rows = experiment.roles.test
        return np.concatenate([torch.sigmoid(network(experiment.store.read(rows[i : i + 1]))[0]) for i in range(len(rows))])


def slow_map(scores, labels):
    return 100 * np.mean([average_precision_score(y, p) if y.any() else 0 for y, p in zip(labels.T, scores.T, strict=True)])


def test_metrics_predictions_and_classes_agree(evaluated, trained, model_file):
    experiment, result, out = evaluated
    assert json.loads((out / "details.json").read_text()) == result
    scores = slow_scores(model_file, experiment)
    labels = tiny.hidden_labels(experiment, experiment.roles.test)

    table = read_parquet(out / "predictions.parquet")
    assert table["id"].to_pylist() == experiment.store.ids[experiment.roles.test].tolist()
    np.testing.assert_allclose(matrix(table["score"]), scores, rtol=1e-4, atol=1e-6)
    assert (matrix(table["label"]) == labels).all()

    assert result["map"] == result["map_raw"] == pytest.approx(slow_map(matrix(table["score"]), labels))
    other = trained / "finetune" / "model_ema.safetensors"
    assert result["map_ema"] == pytest.approx(slow_map(slow_scores(other, experiment), labels))
    assert result["map_low"] <= result["map_high"]
    assert (result["n_test"], result["n_classes"], result["classes_without_positives"]) == (12, 3, 0)
    assert (result["method"], result["ratio"], result["seed"], result["dataset"]) == ("dicap", 0.5, 1, "table")
    assert (result["model"], result["stage"]) == ("raw", "finetune")
    assert result["roles"] == pd.read_parquet(trained / "split.parquet")["role"].value_counts().to_dict()

    frame = pd.read_csv(out / "per_class.csv")
    assert frame["class"].tolist() == ["blue", "green", "red"]
    assert frame["n_pos"].tolist() == labels.sum(0).tolist()
    assert frame["n_train_labelled"].tolist() == experiment.labels.of(experiment.roles.labelled).sum(0).tolist()
    np.testing.assert_allclose(frame["chance"], labels.mean(0), atol=1e-6)
    assert 100 * frame["ap"].mean() == pytest.approx(result["map"], abs=1e-3)
    card = (out / "MODEL_CARD.md").read_text()
    assert card.startswith("# DiCaP on own images") and "## Intended use" in card and f"{result['f1']:.3f}" in card
    assert "scored on only 12 images" in card, "warnings of tests/metrics/test_operating_point.py"


def test_the_earlier_stages_are_quoted_from_their_histories(evaluated, trained):
    _, result, _ = evaluated
    frames = {stage: pd.read_csv(trained / stage / "history.csv") for stage in ("warmup", "train", "finetune")}
    assert result["map_warmup"] == frames["warmup"]["map_raw"].iloc[-1]
    assert result["map_train"] == frames["train"]["map_raw"].iloc[-1]
    assert result["curve_error"] == frames["train"]["curve_error"].iloc[-1]
    best = max(
        (value, stage, int(epoch), which)
        for stage, frame in frames.items()
        for which in ("raw", "ema")
        for epoch, value in zip(frame["epoch"], frame[f"map_{which}"], strict=True)
        if value == value
    )
    assert best == tuple(result[f"best_on_test{part}"] for part in ("", "_stage", "_epoch", "_model"))


def test_the_cost_of_a_main_epoch_is_quoted_without_the_scoring_of_test_images(evaluated, trained):
    _, result, _ = evaluated
    cost = pd.read_csv(trained / "cost" / "train.csv")
    assert result["minutes_per_epoch"] == pytest.approx((cost["minutes"] - cost["minutes_evaluation"]).mean())
    assert result["peak_memory_gb"] is None and result["peak_resident_gb"] == cost["peak_resident_gb"].max() > 0.05


def test_a_class_without_positives_is_left_out_of_the_mean_over_own_images_and_told(
    tiny_experiment, trained, model_file, own_set, out
):
    experiment = tiny_experiment(folder=own_set)
    tiny.set_labels(own_set, experiment.roles.test, lambda labels: [c for c in labels if c != 1])
    experiment.store.meta["notes"] = ["copies: 2"]
    result = evaluate(experiment, model_file, out)
    assert result["notes"] == ["copies: 2"] and "copies: 2." in (out / "MODEL_CARD.md").read_text()
    frame = pd.read_csv(out / "per_class.csv")
    assert result["classes_without_positives"] == 1
    assert frame["ap"][1] == 0 and frame["n_pos"][1] == 0
    assert result["map"] == pytest.approx(100 * (frame["ap"][0] + frame["ap"][2]) / 2, abs=1e-3)
    assert result["classes_left_out"] == 1 and result["map_low"] <= result["map"] <= result["map_high"]
    card = (out / "MODEL_CARD.md").read_text()
    assert "mean over 2 classes (1 without a positive test image left out)" in card and "| not tested |" in card


def test_the_published_rule_counts_such_a_class_0():
    scores, labels = np.array([[0.9, 0.1], [0.2, 0.3]]), np.array([[1, 0], [0, 0]])
    published = metrics(scores, labels)
    own = metrics(scores, labels, testable=True)
    assert (published["map"], published["classes_left_out"], published["classes_without_positives"]) == (50.0, 0, 1)
    assert (own["map"], own["classes_left_out"]) == (100.0, 1)
    nothing = metrics(scores, np.zeros((2, 2)), testable=True)
    assert nothing["map"] == 0 and nothing["classes_without_positives"] == 2


def test_of_a_model_elsewhere_no_other_s_numbers_are_told(evaluated, trained, model_file, tmp_path, out, monkeypatch):
    """Not the histories where one works, nor scores of models that happen to lie beside it."""
    monkeypatch.chdir(trained.parent)
    place = tmp_path / "models"
    place.mkdir()
    for name, source in {"model": model_file, "model_ema": trained / "train" / "model.safetensors"}.items():
        shutil.copy(source, place / f"{name}.safetensors")
    (place / "model_b.safetensors").write_bytes(b"no model")
    result = evaluate(evaluated[0], place, out)
    assert result["map"] == evaluated[1]["map"] and "map_ema" not in result
    assert result["map_warmup"] is None and result["curve_error"] is None and "best_on_test" not in result
    assert result["minutes_per_epoch"] is None and result["peak_memory_gb"] is None and "steps" not in result


def test_the_steps_of_every_stage_are_those_of_the_plans(evaluated):
    experiment, result, _ = evaluated
    n_sup, n_est, n_unlabelled = (len(getattr(experiment.roles, role)) for role in ("sup", "est", "unlabelled"))

    def steps(epochs: int, images: int, batch: int) -> int:
        whole, rest = divmod(images, batch)
        return epochs * (whole + (rest > 1))  # a last single image joins the step before

    expected = {
        "steps_warmup": steps(2, n_sup, 3),
        "steps_train": steps(2, n_unlabelled + n_est, 8 - 2),
        "steps_finetune": steps(3, n_est, 2),
    }
    assert {key: result[key] for key in expected} == expected
    assert result["steps"] == sum(expected.values())


def test_a_stage_that_was_left_out_has_no_steps_and_a_solved_one_no_number(tmp_path):
    for stage, rows in (("warmup", "0,13\n1,13\n"), ("train", ""), ("finetune", "0,\n")):
        (tmp_path / stage).mkdir()
        (tmp_path / stage / "history.csv").write_text(f"epoch,steps\n{rows}")
    found = _from_histories(tmp_path, tiny.settings())
    assert [found[key] for key in ("steps_warmup", "steps_train", "steps_finetune", "steps")] == [26, 0, None, None]


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "mld", "weights": "ema"},  # its warm-up is the result
        {"method": "mld", "warmup.passes_on": "ema"},  # nothing is passed on
        {"method": "cap", "warmup.passes_on": "ema"},
        {"weights": "ema"},
    ],
    ids=lambda changes: " ".join(map(str, changes.values())),
)
def test_the_score_after_a_stage_is_that_of_the_model_it_published(tiny_experiment, tmp_path, changes):
    experiment = tiny_experiment({"head": "linear"} | changes)
    stages = [stage for stage in ("warmup", "train") if experiment.settings.trains(stage)]
    model = tiny.run_stages([(stage, experiment) for stage in stages], tmp_path)
    result = evaluate(experiment, model, tmp_path / "out")
    for stage in stages:
        found = evaluate(experiment, tmp_path / stage / "model.safetensors", tmp_path / f"of {stage}")
        assert abs(found["map_raw"] - found["map_ema"]) > 0.1, "else nothing is told apart"
        assert result[f"map_{stage}"] == pytest.approx(found["map"], abs=1e-3)


def test_a_model_of_other_classes_or_size_is_refused_and_nothing_is_lost(tiny_experiment, trained, model_file, tmp_path, out):
    experiment = tiny_experiment()
    evaluate(experiment, model_file, out)
    before = tiny.content(out)
    saved = load_model(model_file)
    path = tmp_path / "model.safetensors"
    for classes, settings, words in (
        (["blue", "green", "yellow"], saved.settings, "not the 3 of"),
        (saved.classes, tiny.settings({"image_size": 48}), "images of 48 px"),
    ):
        save_model(saved.network, path, settings=settings, classes=classes, stage="train", which="raw")
        with pytest.raises(DataError, match=words) as caught:
            evaluate(experiment, path, out)
        assert "\n" not in str(caught.value) and str(path) in str(caught.value)
    assert tiny.content(out) == before


def test_names_of_classes_are_no_html_in_the_card(evaluated, model_file):
    evil = ["<img src=x onerror=alert(1)>\n# heading", "a|b"]
    model, classes = replace(load_model(model_file), classes=evil), [(name, 1, 1, 50.0) for name in evil]
    card = model_card(model, evaluated[1], evaluated[0].store.meta, evaluated[1]["roles"], classes, {})
    assert "<" not in card and "\n# heading" not in card and card.count("a\\|b") == 3
