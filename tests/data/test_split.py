"""The labelled/unlabelled split against the published rule and the sizes of docs/methods.md 2.3."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from dicap.data.split import labelled_order
from dicap.errors import DataError, SettingsError


def index(n_train, n_test=3, n_unlabelled=0):
    split = ["train"] * n_train + ["test"] * n_test + ["unlabeled"] * n_unlabelled
    frame = pd.DataFrame({"id": [f"i{i}" for i in range(len(split))], "split": split})
    return frame.assign(labelled=frame["split"] != "unlabeled")


def test_the_permutation_is_the_published_one():
    assert labelled_order(5717, 1)[:10].tolist() == [3343, 3639, 1412, 1528, 3906, 3513, 4704, 5287, 763, 4909]


def test_labelled_images_are_the_head_of_the_permutation_wherever_training_rows_stand():
    frame = index(40, 10, 5).sample(frac=1, random_state=0).reset_index(drop=True)
    roles = tiny.roles_of(frame, 0.5, 3, 0.2)
    train = frame["id"][frame["split"] == "train"].tolist()
    order = np.random.RandomState(3).permutation(40)
    role = dict(zip(frame["id"], roles, strict=True))
    assert [role[train[i]] for i in order] == ["sup"] * 16 + ["est"] * 4 + ["unlabeled"] * 20
    assert {role[name] for name in frame["id"][frame["split"] == "test"]} == {"test"}
    assert {role[name] for name in frame["id"][frame["split"] == "unlabeled"]} == {"unlabeled"}


@given(st.integers(10, 300), st.floats(0.05, 1.0), st.integers(0, 99), st.floats(0.05, 0.95))
def test_roles_partition_the_images_or_the_ratio_is_refused(n, ratio, seed, est):
    try:
        found = Counter(tiny.roles_of(index(n), ratio, seed, est))
    except SettingsError:
        n_labelled = int(ratio * n)
        assert int((1 - est) * n_labelled) in (0, n_labelled)
        return
    assert sum(found.values()) == n + 3 and found["test"] == 3 and found["sup"] > 0 and found["est"] > 0


def test_missing_splits_and_unlabelled_training_images_are_data_errors():
    with pytest.raises(DataError, match="no images of split test"):
        tiny.roles_of(index(10, 0), 0.5, 1, 0.2)
    with pytest.raises(DataError, match="no images of split train"):
        tiny.roles_of(index(0, 3), 0.5, 1, 0.2)
    frame = index(10)
    frame.loc[4, "labelled"] = False
    with pytest.raises(DataError, match="training image 'i4' has no labels"):
        tiny.roles_of(frame, 0.5, 1, 0.2)


@pytest.mark.parametrize("ratio", [0.2, 0.5, 1.0])
def test_labels_given_later_count_whatever_the_ratio_and_move_nobody_else(ratio):
    frame = index(40, 5, 10).assign(added=None)
    before = tiny.roles_of(frame, ratio, 3, 0.25)
    hidden, unlabelled = [row for row in range(40) if before[row] == "unlabeled"][:4], [46, 49, 50, 54]
    frame.loc[hidden, "added"] = "train"
    frame.loc[unlabelled, ["split", "labelled", "added"]] = ["train", True, "unlabeled"]
    roles = tiny.roles_of(frame, ratio, 3, 0.25)
    assert {roles[row] for row in hidden + unlabelled} == {"sup", "est"}
    others = [row for row in range(len(frame)) if row not in hidden + unlabelled]
    assert (roles[others] == before[others]).all()


def test_labels_given_later_are_enough_where_the_ratio_alone_is_not():
    frame = index(40, 5, 10).assign(added=None)
    with pytest.raises(SettingsError, match="gives 0 for D_sup"):
        tiny.roles_of(frame, 0.02, 1, 0.5)
    frame.loc[45:48, ["split", "labelled", "added"]] = ["train", True, "unlabeled"]
    roles = tiny.roles_of(frame, 0.02, 1, 0.5)
    assert (roles == "sup").sum() == 2 and (roles == "est").sum() == 2
