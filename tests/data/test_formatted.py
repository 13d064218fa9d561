"""The published npy lists."""

import numpy as np
import pytest

from data.archives import nuswide
from data.raw import save
from data.test_benchmark_sets import coco_folder, voc_folder
from dicap.data.convert import convert
from dicap.data.format import read_index
from dicap.data.labels import read_labels
from dicap.data.sources import read_raw
from dicap.data.sources.benchmarks.formatted import PHASES, read_formatted
from dicap.errors import DataError


@pytest.mark.parametrize(
    ("dataset", "make", "prefix"),
    [("voc2012", voc_folder, "VOCdevkit/VOC2012/JPEGImages/"), ("coco2014", coco_folder, "images/")],
)
@pytest.mark.parametrize("full_paths", [False, True])
def test_the_lists_of_a_set_give_the_same_set(tmp_path, dataset, make, prefix, full_paths):
    make(tmp_path / "raw")
    convert(read_raw(dataset, tmp_path / "raw"), tmp_path / "set", image_size=16, workers=0)
    index = read_index(tmp_path / "set", ["path", "split"]).to_pandas()
    for split, phase in PHASES.items():
        rows = np.flatnonzero(index["split"] == split)
        names = [name if full_paths else name.removeprefix(prefix) for name in index["path"][rows]]
        _save(tmp_path, f"{phase}_images", np.array(names))
        _save(tmp_path, f"{phase}_labels", read_labels(tmp_path / "set", rows).astype(float))
    raw = read_formatted(dataset, tmp_path, tmp_path / "raw")
    convert(raw, tmp_path / "again", image_size=16, workers=0)
    a, b = (read_index(tmp_path / name).drop_columns(["id"]).to_pylist() for name in ("set", "again"))
    assert a == b and (tmp_path / "set/images.npy").read_bytes() == (tmp_path / "again/images.npy").read_bytes()
    assert raw.classes == read_raw(dataset, tmp_path / "raw").classes


def test_bare_names_of_awa2_find_their_species(tmp_path):
    for phase, species in (("train", "grizzly+bear"), ("val", "rat")):
        save(tmp_path / "JPEGImages" / species / f"{species}_10001.jpg", 1)
        np.save(tmp_path / f"formatted_{phase}_images.npy", np.array([f"{species}_10001.jpg"]))
        np.save(tmp_path / f"formatted_{phase}_labels.npy", np.ones((1, 85)))
    raw = read_formatted("awa2", tmp_path, tmp_path)
    assert raw.items[0].path == "JPEGImages/grizzly+bear/grizzly+bear_10001.jpg" and raw.classes[0] == "class_000"
    assert convert(raw, tmp_path / "set", image_size=8, workers=0)["rejected"] == []


def _save(root, name, array):
    np.save(root / f"formatted_{name}.npy", array, allow_pickle=True)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda r: (r / "formatted_val_labels.npy").unlink(), "formatted_val_labels.npy: no such file; all four"),
        (lambda r: _save(r, "train_labels", np.zeros((19, 81))), "19 rows, formatted_train_images.npy has 20"),
        (lambda r: _save(r, "val_labels", np.zeros((5, 80))), "80 classes, the train labels have 81"),
        (lambda r: _save(r, "train_labels", np.full((20, 81), 0.5)), "values other than 0 and 1"),
        (lambda r: _save(r, "train_images", np.arange(20)), "found 1-d int64, expected a list of texts"),
        (lambda r: _save(r, "train_images", np.array([["a"], "b"], dtype=object)), "not readable"),  # no pickles
        (lambda r: _save(r, "train_images", np.array(["../../x.jpg"] * 20)), "'../../x.jpg' leaves data_root"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(tmp_path, damage, message):
    nuswide(tmp_path, (20, 5))
    damage(tmp_path)
    with pytest.raises(DataError, match=message) as error:
        read_formatted("nuswide", tmp_path, tmp_path)
    assert "\n" not in str(error.value)
