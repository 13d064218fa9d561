"""`table`: what is accepted, and one line for everything that is not."""

import pandas as pd
import pytest

from data.raw import save, shared
from dicap.data.convert import convert
from dicap.data.sources import read_raw
from dicap.errors import DataError, SettingsError

GOOD = "image,split,labels\na.png,train,dog;cat\nb.png,train,\nsub/c.png,test,cat\nd.png,unlabeled,\n"


def table(folder, text, name="labels.csv"):
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def read(root):
    return read_raw("table", root)


def test_a_table_becomes_items_with_sorted_classes(tmp_path):
    raw = read(table(tmp_path, GOOD))
    assert raw.classes == ["cat", "dog"]
    assert [(item.id, item.split, item.labels) for item in raw.items] == [
        ("a.png", "train", (0, 1)), ("b.png", "train", ()), ("sub/c.png", "test", (0,)), ("d.png", "unlabeled", None)
    ]  # fmt: skip


def test_the_file_itself_may_be_given(tmp_path):
    table(tmp_path, GOOD, "mine.csv")
    assert len(read(tmp_path / "mine.csv").items) == 4


BAD = {
    "missing column": ("image,split\na.png,train\n", "column labels is missing .found image, split"),
    "no column of images": ("split,labels\ntrain,cat\n", "column image is missing .found split, labels"),
    "empty file": ("", "column image is missing .found nothing"),
    "column twice": ("image,split,labels,split\na.png,train,x,test\n", "column split occurs twice"),
    "no rows": ("image,split,labels\n", "no rows"),
    "unknown split": (GOOD.replace("test", "tset"), "line 4: split: found 'tset', allowed are train, val, test, unlabeled"),
    "no image": (GOOD + ",train,cat\n", "line 6: column image: found "),
    "absolute": (GOOD + "/etc/x.png,train,cat\n", "line 6: image: '/etc/x.png' leaves the folder"),
    "leaves later": (GOOD + "sub/../../x.png,train,cat\n", "leaves the folder"),
    "too many cells": (GOOD + "e.png,train,cat,dog\n", "line 6: 4 cells, the header has 3"),
    "no train": (GOOD.replace("train", "unlabeled"), "no image of split train"),
    "no test": (GOOD.replace("test", "train"), "no image of split test"),
    "no label at all": (GOOD.replace("dog;cat", "").replace(",cat", ","), "none of 4 images has a label"),
    "open quote": (GOOD + '"e.png,train,cat\n', "not readable .unexpected end of data"),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_one_line_that_names_the_file(tmp_path, case):
    text, message = BAD[case]
    with pytest.raises(DataError, match=message) as error:
        read(table(tmp_path, text))
    assert "\n" not in str(error.value) and str(error.value).startswith(str(tmp_path / "labels.csv"))


def test_missing_places_are_one_line(tmp_path):
    with pytest.raises(DataError, match="no such folder or file; set data_root"):
        read(tmp_path / "nowhere")
    with pytest.raises(DataError, match="holds no labels that are known here"):
        read(tmp_path)
    table(tmp_path, GOOD)
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "labels.parquet")
    with pytest.raises(DataError, match="both are there"):
        read(tmp_path)
    with pytest.raises(DataError, match="column image is missing"):
        read(tmp_path / "labels.parquet")
    (tmp_path / "labels.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match="not readable"):
        read(tmp_path / "labels.parquet")
    with pytest.raises(SettingsError, match="data_root: found null"):
        read(None)


def test_labels_of_unlabeled_rows_are_ignored_and_noted(tmp_path):
    raw = read(table(tmp_path, GOOD.replace("d.png,unlabeled,", "d.png,unlabeled,zebra")))
    assert raw.classes == ["cat", "dog"] and raw.items[3].labels is None
    assert "1 images of split unlabeled have labels, which were ignored" in raw.notes


def test_missing_and_corrupt_images_are_rejected_at_conversion(tmp_path):
    root = table(tmp_path / "raw", GOOD)
    save(root / "a.png", 0)
    save(root / "sub/c.png", 1)
    (root / "b.png").write_bytes(b"<html>")
    with pytest.raises(DataError, match=r"2 of 4 images rejected \(50.0%\)"):
        convert(read(root), tmp_path / "set", image_size=16, workers=0)
    meta = convert(read(root), tmp_path / "set", image_size=16, max_rejected=0.5, workers=0)
    assert [(entry["path"], entry["reason"][:12]) for entry in meta["rejected"]] == [
        ("b.png", "not an image"),
        ("d.png", "missing"),
    ]


def test_corel5k_reads_as_its_readme_says():
    raw = read(shared("corel5k"))
    splits = [item.split for item in raw.items]
    assert (splits.count("train"), splits.count("test"), len(raw.classes)) == (4500, 499, 65)
    assert sum(item.labels == () for item in raw.items) == 118
