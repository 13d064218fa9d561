"""The published npy lists, out and in again."""

import numpy as np
import pandas as pd
import pytest

from data.raw import save, small_set
from data.test_benchmark_sets import coco_folder, voc_folder
from dicap.data.convert import convert
from dicap.data.format import read_index
from dicap.data.labels import read_labels
from dicap.data.sources import read_raw
from dicap.data.sources.benchmarks.formatted import read_formatted, write_formatted
from dicap.data.split import split_roles
from dicap.errors import DataError


@pytest.mark.parametrize(("dataset", "make"), [("voc2012", voc_folder), ("coco2014", coco_folder)])
@pytest.mark.parametrize("full_paths", [False, True])
def test_export_and_import_give_the_same_set(tmp_path, dataset, make, full_paths):
    make(tmp_path / "raw")
    convert(read_raw(dataset, tmp_path / "raw", 16), tmp_path / "set", image_size=16, workers=0)
    write_formatted(tmp_path / "set", tmp_path / "npy", full_paths=full_paths)
    raw = read_formatted(dataset, tmp_path / "npy", tmp_path / "raw")
    convert(raw, tmp_path / "again", image_size=16, workers=0)
    a, b = (read_index(tmp_path / name).drop_columns(["id"]).to_pylist() for name in ("set", "again"))
    assert a == b and (tmp_path / "set/images.npy").read_bytes() == (tmp_path / "again/images.npy").read_bytes()
    assert raw.classes == read_raw(dataset, tmp_path / "raw", 16).classes


def test_files_are_what_the_published_code_writes(tmp_path):
    voc_folder(tmp_path / "raw")
    convert(read_raw("voc2012", tmp_path / "raw", 16), tmp_path / "set", image_size=16, workers=0)
    assert write_formatted(tmp_path / "set", tmp_path / "npy") == {"train": 3, "test": 3}
    images, labels = (np.load(tmp_path / f"npy/formatted_train_{what}.npy") for what in ("images", "labels"))
    assert images.tolist() == ["2008_000001.jpg", "2008_000002.jpg", "2008_000003.jpg"] and images.dtype.kind == "U"
    assert labels.dtype == np.float64 and labels.shape == (3, 20) and set(np.unique(labels)) == {0.0, 1.0}
    expected = tmp_path / "expected.npy"
    np.save(expected, np.array(images.tolist()))  # byte for byte what np.save of the published script gives
    assert expected.read_bytes() == (tmp_path / "npy/formatted_train_images.npy").read_bytes()
    assert sorted(path.name for path in (tmp_path / "npy").glob("[!.]*")) == sorted(
        f"formatted_{phase}_{what}.npy" for phase in ("train", "val") for what in ("images", "labels")
    )


def nus_lists(root, n=(20, 5)):
    rng = np.random.default_rng(0)
    for phase, count in zip(("train", "val"), n, strict=True):
        names = [f"{phase}/{i:04d}.jpg" for i in rng.permutation(count)]
        np.save(root / f"formatted_{phase}_images.npy", np.array(names))
        np.save(root / f"formatted_{phase}_labels.npy", (rng.random((count, 81)) < 0.1).astype(np.float64))
        for i, name in enumerate(names):
            save(root / "Flickr" / name, i)
    return root


def test_the_split_of_imported_lists_is_the_published_rule(tmp_path):
    raw = read_raw("nuswide", nus_lists(tmp_path), 8)
    convert(raw, tmp_path / "set", image_size=8, workers=0)
    images = np.load(tmp_path / "formatted_train_images.npy")
    labels = np.load(tmp_path / "formatted_train_labels.npy")
    # the published code: a fresh RandomState, and the head of its permutation
    labelled = np.random.RandomState(1).permutation(len(images))[: int(0.5 * len(images))]
    index = read_index(tmp_path / "set", ["id", "path", "split"]).to_pandas()
    roles = split_roles(index.assign(labelled=True), 0.5, 1, 0.2)
    chosen = roles["role"].isin(["sup", "est"])
    assert set(index["path"][chosen]) == {f"Flickr/{name}" for name in images[labelled]}
    assert (read_labels(tmp_path / "set", np.arange(20)) == labels).all()
    assert isinstance(roles, pd.DataFrame) and raw.notes == ["the names of the concepts are assumed to be in alphabetical order"]


def test_bare_names_of_awa2_find_their_species(tmp_path):
    for phase, species in (("train", "grizzly+bear"), ("val", "rat")):
        save(tmp_path / "JPEGImages" / species / f"{species}_10001.jpg", 1)
        np.save(tmp_path / f"formatted_{phase}_images.npy", np.array([f"{species}_10001.jpg"]))
        np.save(tmp_path / f"formatted_{phase}_labels.npy", np.ones((1, 85)))
    raw = read_formatted("awa2", tmp_path, tmp_path)
    assert raw.items[0].path == "JPEGImages/grizzly+bear/grizzly+bear_10001.jpg" and raw.classes[0] == "class_000"
    assert convert(raw, tmp_path / "set", image_size=8, workers=0)["rejected"] == []


def test_truly_unlabelled_images_are_left_out_of_an_export(tmp_path):
    folder = small_set(tmp_path, n_unlabeled=3)
    assert write_formatted(folder, tmp_path / "npy") == {"train": 8, "test": 4}


def _save(root, name, array):
    np.save(root / f"formatted_{name}.npy", array, allow_pickle=True)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda r: (r / "formatted_val_labels.npy").unlink(), "formatted_val_labels.npy: no such file; all four"),
        (lambda r: _save(r, "train_labels", np.zeros((19, 81))), "19 rows, formatted_train_images.npy has 20"),
        (lambda r: _save(r, "val_labels", np.zeros((5, 80))), "80 classes, the train labels have 81"),
        (lambda r: _save(r, "train_labels", np.full((20, 81), 0.5)), "values other than 0 and 1"),
        (lambda r: _save(r, "train_labels", np.full((20, 81), np.nan)), "values other than 0 and 1"),
        (lambda r: _save(r, "train_labels", np.zeros(20)), "found 1-d float64, expected an array of images x classes"),
        (lambda r: _save(r, "train_images", np.arange(20)), "found 1-d int64, expected a list of texts"),
        (lambda r: _save(r, "train_images", np.array([["a"], "b"], dtype=object)), "not readable"),  # no pickles
        (lambda r: (r / "formatted_train_images.npy").write_bytes(b"\x93NUMPY"), "not readable"),
        (lambda r: _save(r, "train_images", np.array(["../../x.jpg"] * 20)), "'../../x.jpg' leaves data_root"),
        (lambda r: _save(r, "val_images", np.load(r / "formatted_train_images.npy")[:5]), "is listed in train and in test"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(tmp_path, damage, message):
    nus_lists(tmp_path)
    damage(tmp_path)
    with pytest.raises(DataError, match=message) as error:
        read_formatted("nuswide", tmp_path, tmp_path)
    assert "\n" not in str(error.value)
