"""Early stopping looks at labels that nothing else reads; the reported split chooses nothing."""

import numpy as np
import pandas as pd
import pytest
import tiny

from dicap.data.split import split_roles
from dicap.errors import Stopped
from dicap.metrics.ranking import mean_average_precision
from dicap.models import load_model
from dicap.training import run
from training.test_leaks import hidden_rows, invert_labels, models
from training.test_resume import StopAfter

CHANGES = {"split.validation": 0.3, "train.epochs": 4, "train.patience": 1, "warmup.epochs": 3, "warmup.patience": 1}


def run_all(experiment, place, stages=("warmup", "train"), **options):
    source = None
    for stage in stages:
        source = tiny.run_stage(experiment, stage, source, place, **options) / "model.safetensors"
    return place


@pytest.fixture
def chosen(tiny_experiment, tmp_path):
    experiment = tiny_experiment(CHANGES)
    return experiment, run_all(experiment, tmp_path / "chosen")


def test_validation_images_are_the_last_of_the_labelled_and_no_others(tiny_set):
    index = pd.DataFrame({"id": [str(i) for i in range(40)], "split": ["train"] * 30 + ["test"] * 10, "labelled": True})
    plain, apart = split_roles(index, 0.5, 1, 0.2)["role"], split_roles(index, 0.5, 1, 0.2, 0.4)["role"]
    assert apart.value_counts().to_dict() == {"unlabeled": 15, "test": 10, "sup": 7, "validation": 6, "est": 2}
    assert (apart[plain == "unlabeled"] == "unlabeled").all() and set(plain[apart == "validation"]) == {"sup", "est"}
    assert "validation" not in set(plain)


def test_a_share_that_gives_no_validation_image_is_refused_with_numbers():
    index = pd.DataFrame({"id": [str(i) for i in range(24)], "split": ["train"] * 20 + ["test"] * 4, "labelled": True})
    with pytest.raises(ValueError, match=r"split.validation: 0.05 of 10 labelled images gives none; set it to 0.1 or more"):
        split_roles(index, 0.5, 1, 0.2, 0.05)


def test_the_best_epoch_by_validation_is_kept_and_training_ends_after_it(chosen):
    experiment, place = chosen
    rows = experiment.roles.validation
    assert len(rows) == 4
    y = tiny.hidden_labels(experiment, rows)
    for stage, epochs in (("warmup", 3), ("train", 4)):
        scores = pd.read_csv(place / stage / "history.csv")["map_val"].to_numpy()
        best = int(np.argmax(scores))
        assert len(scores) == min(best + 2, epochs)  # a patience of one
        model = load_model(place / stage / "model.safetensors")
        found = mean_average_precision(experiment.predict(model.network, rows).numpy(), y)
        assert found == pytest.approx(scores[best], abs=1e-4)


def test_nothing_else_reads_a_validation_label(chosen):
    experiment, _ = chosen
    with pytest.raises(AssertionError, match="may not read"):
        experiment.labels.of(experiment.roles.validation[:1])
    assert not np.isin(experiment.roles.validation, experiment.roles.unsup).any()


@pytest.mark.parametrize("method", ["dicap", "mld"])
def test_hidden_and_test_labels_choose_no_epoch(tiny_experiment, own_set, tmp_path, method):
    changes = CHANGES | {"method": method}
    stages = ("warmup", "train") if method == "dicap" else ("warmup",)
    before = run_all(tiny_experiment(changes), tmp_path / "before", stages)
    for rows in hidden_rows(tiny_experiment(changes)):
        invert_labels(own_set, rows)
    after = run_all(tiny_experiment(changes, folder=own_set), tmp_path / "after", stages)
    assert models(after) == models(before) and len(models(before)) == 2 * len(stages)


def test_validation_labels_choose_the_epoch_and_do_nothing_else(tiny_experiment, own_set, tmp_path):
    changes = CHANGES | {"train.patience": 9, "warmup.patience": 9, "warmup.passes_on": "raw"}
    before = run_all(tiny_experiment(changes), tmp_path / "before", ("warmup",))
    invert_labels(own_set, tiny_experiment(changes).roles.validation)
    after = run_all(tiny_experiment(changes, folder=own_set), tmp_path / "after", ("warmup",))
    one, other = (pd.read_csv(place / "warmup" / "history.csv") for place in (before, after))
    assert (one["map_val"] != other["map_val"]).any()
    assert one["loss"].tolist() == other["loss"].tolist() and one["map_raw"].tolist()[-1] == other["map_raw"].tolist()[-1]


def test_stopped_at_every_second_step_the_choice_is_the_same(tiny_experiment, chosen, monkeypatch, tmp_path):
    experiment, place = chosen
    lines, source = [], None
    for stage in ("warmup", "train"):
        for _ in range(100):
            with monkeypatch.context() as patch:
                patch.setattr(run, "StopSignal", lambda: StopAfter(2))
                try:
                    out = tiny.run_stage(experiment, stage, source, tmp_path / "again", log=lines.extend)
                    break
                except Stopped:
                    pass
        assert tiny.content(out) == tiny.content(place / stage)
        source = out / "model.safetensors"
    kept = [line for line in lines if "is kept" in line]
    assert len(kept) == 2 and "with validation mAP" in kept[0]


def test_without_validation_images_there_is_no_choice(trained):
    assert "map_val" not in pd.read_csv(trained / "train" / "history.csv")
