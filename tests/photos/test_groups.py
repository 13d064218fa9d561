"""Photographs of one group are on one side of every split and fold: by a column, as copies by name, and of equal bytes."""

import os
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dicap.data.convert import convert
from dicap.data.doctor import examine
from dicap.data.format import read_groups, read_meta
from dicap.data.split import split_index, split_roles
from dicap.frozen.folds import deal_folds
from dicap.sklearn import DiCaPClassifier, LabelledKFold
from photos.awkward import looked_at, pictured, pictures, write


@pytest.mark.parametrize("ratio", [0.3, 0.5, 1.0])
def test_a_group_is_on_one_side_of_test_ratio_and_d_est(tmp_path, ratio):
    """Sixty photographs of twenty patients."""
    rows = [[f"{i:02d}.png", ("cat", "dog")[i // 3 % 2], f"p{i // 3}"] for i in range(60)]
    pictured(tmp_path / "raw", [["image", "labels", "group"], *rows])
    convert(looked_at(tmp_path / "raw", test_share=0.2), tmp_path / "set", image_size=8, workers=0)
    groups = read_groups(tmp_path / "set")
    ids, *more = split_index(tmp_path / "set")
    roles = split_roles(ids, *more, ratio=ratio, seed=1, est_fraction=0.2, by_id=True, groups=groups)
    patient = np.array([int(name[:2]) // 3 for name in ids])
    assert all(len({*roles[patient == p]}) == 1 for p in range(20)) and {*roles} >= {"sup", "est", "test"}
    assert abs((roles == "test").sum() - 12) <= 3
    plain = split_roles(ids, *more, ratio=ratio, seed=1, est_fraction=0.2, by_id=True)
    assert any(len({*plain[patient == p]}) > 1 for p in range(20)), "without groups they are parted"


def test_copies_by_name_and_by_bytes_stay_together(tmp_path):
    rows = [[f"{i}_jpg.rf.{i * 3 + k:032x}.png", "cat" if i % 2 else "dog"] for i in range(30) for k in range(3)]
    rows += [[f"x{i}{end}.png", "cat"] for i in range(10) for end in ("", " (1)")]
    pictured(tmp_path, [["image", "labels"], *rows])
    for i in range(10):
        shutil.copy(tmp_path / f"x{i}.png", tmp_path / f"x{i} (1).png")
    raw = looked_at(tmp_path, test_share=0.2)
    sides = {}
    for item in raw.items:
        sides.setdefault(item.id.partition(".rf.")[0].partition(".png")[0].removesuffix(" (1)"), set()).add(item.split)
    assert all(len(found) == 1 for found in sides.values()) and set.union(*sides.values()) == {"train", "test"}
    assert "copies of the same bytes under other names: 10" in "\n".join(raw.notes)


@pytest.mark.parametrize("copy", [shutil.copy, os.link, os.symlink])
def test_a_copy_of_a_test_photograph_is_not_learnt_from(tmp_path, copy):
    pictures(tmp_path, [f"{i}.png" for i in range(8)])
    copy(tmp_path / "7.png", tmp_path / "copy.png")
    shutil.copy(tmp_path / "6.png", tmp_path / "open.png")
    rows = [[f"{i}.png", "cat" if i % 2 else "dog", "train" if i < 5 else "test"] for i in range(8)]
    write(tmp_path, [["image", "labels", "split"], *rows, ["copy.png", "cat", "train"]])
    raw = looked_at(tmp_path, unlabeled_root=str(tmp_path))
    assert {item.id for item in raw.items} == {f"{i}.png" for i in range(8)}
    convert(raw, tmp_path / "set", image_size=8, workers=0)
    assert examine(tmp_path / "set").duplicates == [] and any(
        "left out beside a labelled or a test image: 2 " in note for note in read_meta(tmp_path / "set")["notes"]
    )


@given(st.lists(st.integers(0, 9), min_size=12, max_size=40), st.integers(0, 99), st.integers(2, 5))
@settings(max_examples=60, deadline=None)
def test_folds_keep_groups_and_know_no_order(groups, seed, folds):
    rng = np.random.default_rng(seed)
    groups, names = np.array(groups), rng.permutation(len(groups))
    y = (rng.random((len(groups), 3)) < 0.4).astype(np.float32)
    if len({*groups.tolist()}) < 2:
        with pytest.raises(ValueError, match="of one group"):
            deal_folds(names, y, folds, seed, groups)
        return
    fold = deal_folds(names, y, folds, seed, groups)
    assert all(len({*fold[groups == g].tolist()}) == 1 for g in groups) and len({*fold.tolist()}) == min(folds, len({*groups}))
    order = rng.permutation(len(groups))
    assert (deal_folds(names[order], y[order], folds, seed, groups[order]) == fold[order]).all()
    alone = deal_folds(names, y, folds, seed)
    assert (deal_folds(names[order], y[order][:, ::-1], folds, seed) == alone[order]).all() or len({*map(tuple, y.T)}) < 3


def test_the_estimator_measures_on_groups_that_it_did_not_see():
    """Of ten copies of each sample the chance is that of forty samples, not of four hundred."""
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 30)), (rng.random((40, 3)) < 0.5).astype(int)  # nothing to be learnt
    many, labels, of = (
        np.repeat(x, 10, 0) + 1e-3 * rng.standard_normal((400, 30)),
        np.repeat(y, 10, 0),
        np.repeat(np.arange(40), 10),
    )
    fresh = rng.standard_normal((200, 30))
    parted, kept = (DiCaPClassifier(random_state=0, neighbours=0).fit(many, labels, groups=g) for g in (None, of))
    assert kept.chance(fresh).mean() < 0.75 < parted.chance(many).mean()
    for train, test in LabelledKFold(4, random_state=0).split(many, labels, of):
        assert not {*of[train]} & {*of[test]}
    for bad, words in ((of[:-1], "groups"), (np.zeros(400), "of one group"), (np.full(400, np.nan), "missing")):
        with pytest.raises(ValueError, match=words):
            DiCaPClassifier().fit(many, labels, groups=bad)
