"""Labels that may not be read reach no gradient, no weight and no threshold: changing them changes no byte."""

import numpy as np
import pandas as pd
import pytest
import tiny
from frozen.test_convex import HOLDOUT
from safetensors.numpy import load_file

from dicap.data.format import read_index
from dicap.training.hidden import HiddenLabelReader
from training.test_resume import SOURCES, run_all

SCORES = {"map_raw", "map_ema"}
# Columns that hidden labels fill, for report and history.
DIAGNOSTIC = SCORES | {"optimal_r_pos", "optimal_n", "precision_pos", "precision_neg"}
DIAGNOSTIC |= {"curve_error", "log_loss", "excess_log_loss"}


def invert_labels(folder, rows):
    """Give every row of `rows` exactly the classes it does not show."""
    tiny.set_labels(folder, rows, lambda labels: [c for c in range(len(tiny.COLOURS)) if c not in labels])


def models(folder):
    return {name: content for name, content in tiny.content(folder).items() if name.endswith(".safetensors")}


def tensors(folder):
    """What was trained, without the evidence beside it: that is meant to tell of labels."""
    return {
        path.name: {k: v.tobytes() for k, v in load_file(path).items() if not k.startswith("evidence.")}
        for path in sorted(folder.glob("*.safetensors"))
    }


def differences(one, other):
    """What differs in the files of two folders: columns of tables, else files, by name."""
    names, found = [sorted(tiny.content(folder)) for folder in (one, other)], set()
    assert names[0] == names[1]
    for path in names[0]:
        if path.endswith((".parquet", ".csv")):
            read = pd.read_parquet if path.endswith(".parquet") else pd.read_csv
            tables = [read(folder / path) for folder in (one, other)]
            assert list(tables[0]) == list(tables[1]), path
            found |= {column for column in tables[0] if not tables[0][column].equals(tables[1][column])}
        elif (one / path).read_bytes() != (other / path).read_bytes():
            found.add(path)
    return found


def hidden_rows(experiment):
    """Simulated-unlabelled rows, then test rows."""
    store, roles = experiment.store, experiment.roles
    known = read_index(store.folder)["split"].to_numpy() == "train"
    return [row for row in roles.unlabelled if known[row]], list(roles.test)


SHORT = dict.fromkeys(("warmup.epochs", "train.epochs", "finetune.epochs"), 1)


def test_an_option_that_may_look_does(tiny_experiment, own_set, tmp_path):
    changes = SHORT | {"calibration.policy": "optimal"}
    before = run_all(tiny_experiment(changes), tmp_path / "before")
    invert_labels(own_set, hidden_rows(tiny_experiment())[0])
    after = run_all(tiny_experiment(changes, folder=own_set), tmp_path / "after")
    assert models(after / "warmup") == models(before / "warmup")
    assert models(after / "train") != models(before / "train")


@pytest.mark.promise("Before fine-tuning, the labels of D_est are read only to count bins", section="Hidden and held-out labels")
@pytest.mark.parametrize("head", ["by steps", "solved"])
@pytest.mark.parametrize(("policy", "same"), [("uniform", True), ("estimated", False)])
def test_labels_of_d_est_reach_training_through_the_weights_alone(
    tiny_experiment, frozen_experiment, own_set, tmp_path, policy, same, head
):
    opened, loop = {"by steps": (tiny_experiment, {}), "solved": (frozen_experiment, HOLDOUT)}[head]
    changes = SHORT | loop | {"calibration.policy": policy, "thresholds.rule": "none"}  # so there are entries to weigh
    before = run_all(opened(changes), tmp_path / "before", SOURCES)
    invert_labels(own_set, list(opened(changes).roles.est))
    after = run_all(opened(changes, folder=own_set), tmp_path / "after", SOURCES)
    assert tensors(after / "warmup") == tensors(before / "warmup")
    assert (tensors(after / "train") == tensors(before / "train")) == same
    counted = [pd.read_parquet(place / "train" / "weights") for place in (before, after)]
    assert not counted[0]["n_pos"].equals(counted[1]["n_pos"])
    assert tensors(after / "finetune") != tensors(before / "finetune")  # which is where they are read


@pytest.mark.promise("Training holds only the labels of D_l", section="Hidden and held-out labels")
def test_training_holds_no_labels_but_those_of_d_l(tiny_experiment):
    experiment = tiny_experiment()
    assert len(experiment.labels.of(experiment.roles.labelled)) == 14
    for rows in (experiment.roles.unlabelled, experiment.roles.test, np.array([10**6])):
        with pytest.raises(AssertionError, match="may not read"):
            experiment.labels.of(rows[:1])


@pytest.mark.parametrize(
    ("policy", "method", "leak"), [("estimated", "dicap", 0), ("optimal", "dicap", 1), ("optimal", "asl", 0)]
)
def test_an_oracle_is_there_only_where_a_named_option_asks_for_it(tiny_experiment, policy, method, leak):
    experiment = tiny_experiment({"calibration.policy": policy, "method": method})
    assert sum(isinstance(value, HiddenLabelReader) for value in vars(experiment).values()) == leak


def test_labels_are_those_of_the_rows_asked_for_in_any_order(tiny_experiment):
    experiment = tiny_experiment()
    rows = experiment.roles.labelled[::-1]
    reader = HiddenLabelReader(experiment.folder)
    whole, known = (tensor.numpy() for tensor in reader.labels(np.arange(experiment.store.n)))
    assert (experiment.labels.of(rows).numpy() == whole[rows]).all()
    assert known.sum() == 40 and not whole[~known].any()


def test_fine_tuning_moves_the_head_alone(tiny_experiment, trained):
    experiment = tiny_experiment()
    before, after = (
        tiny.network_of(experiment, trained / stage / "model.safetensors")().state_dict() for stage in ("train", "finetune")
    )
    for name in before:
        moved = bool((before[name] != after[name]).any())
        assert moved == (name.startswith("head.") and name != "head.queries"), name
