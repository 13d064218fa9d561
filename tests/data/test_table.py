"""`table`: what is accepted, and one line for everything that is not."""

import numpy as np
import pandas as pd
import pytest

from data.raw import save, shared
from dicap.data.convert import convert
from dicap.data.labels import read_labels
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


def test_none_of_the_classes_and_unlabelled_stay_apart_to_the_end(tmp_path):
    root = table(tmp_path / "raw", GOOD)
    for i, name in enumerate(("a.png", "b.png", "sub/c.png", "d.png")):
        save(root / name, i)
    meta = convert(read(root), tmp_path / "set", image_size=16, workers=0)
    assert meta["hidden_labels"] is False and meta["counts"] == {"train": 2, "test": 1, "unlabeled": 1}
    assert read_labels(tmp_path / "set", np.array([0, 1, 2])).tolist() == [[1, 1], [0, 0], [1, 0]]
    with pytest.raises(DataError, match="row 3 has no labels"):
        read_labels(tmp_path / "set", np.array([3]))


@pytest.mark.parametrize(
    "text",
    [
        GOOD.replace("\n", "\r\n"),
        b"\xef\xbb\xbf" + GOOD.encode(),
        b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode(),
        GOOD.replace("dog;cat", " dog ; cat;;dog"),
        GOOD.replace("image,split,labels", " image , split ,labels") + "\n\n",
        'labels,extra,split,image\n"dog;cat",1,train,a.png\n,2,train,b.png\ncat,,test,"sub/c.png"\n,,unlabeled,d.png',
    ],
    ids=["crlf", "bom", "bom and crlf", "spaces", "padding", "other columns"],
)
def test_spellings_of_the_same_table(tmp_path, text):
    expected = read(table(tmp_path / "a", GOOD))
    found = read(table(tmp_path / "b", text))
    assert (found.items, found.classes) == (expected.items, expected.classes)


def test_parquet_with_texts_or_lists(tmp_path):
    expected = read(table(tmp_path / "a", GOOD))
    for labels in (["dog;cat", "", "cat", None], [["cat", "dog"], [], ["cat"], None]):
        frame = pd.DataFrame(
            {
                "image": ["a.png", "b.png", "sub/c.png", "d.png"],
                "split": ["train", "train", "test", "unlabeled"],
                "labels": labels,
            }
        )
        (tmp_path / "p").mkdir(exist_ok=True)
        frame.to_parquet(tmp_path / "p" / "labels.parquet")
        assert read(tmp_path / "p").items == expected.items


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
    "two unknown splits": (GOOD.replace("train", "x"), r"line 2: split: found 'x'.*\(and 1 more\)"),
    "duplicate": (GOOD + "a.png,test,cat\n", "line 6: image: 'a.png' stands on line 2 already"),
    "no image": (GOOD + ",train,cat\n", "line 6: column image is empty"),
    "leaves": (GOOD + "../x.png,train,cat\n", "line 6: image: '../x.png' leaves the folder"),
    "absolute": (GOOD + "/etc/x.png,train,cat\n", "line 6: image: '/etc/x.png' leaves the folder"),
    "leaves later": (GOOD + "sub/../../x.png,train,cat\n", "leaves the folder"),
    "too many cells": (GOOD + "e.png,train,cat,dog\n", "line 6: 4 cells, the header has 3"),
    "no train": (GOOD.replace("train", "unlabeled"), "no row of split train"),
    "no test": (GOOD.replace("test", "train"), "no row of split test"),
    "no label at all": (GOOD.replace("dog;cat", "").replace(",cat", ","), "no row of split train or test names a label"),
    "cyrillic": (GOOD.encode() + "кот.png,train,cat\n".encode("cp1251"), "is not UTF-8, and no other encoding is certain"),
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


def test_classes_that_only_one_split_has_are_noted(tmp_path):
    raw = read(table(tmp_path, GOOD.replace("sub/c.png,test,cat", "sub/c.png,test,horse")))
    assert len(raw.notes) == 3
    assert "1 classes occur only in test, so they cannot be learned: horse" in raw.notes
    assert "2 classes occur only in train, so nothing can be said of their score: cat, dog" in raw.notes


def test_labels_of_unlabeled_rows_are_ignored_and_noted(tmp_path):
    raw = read(table(tmp_path, GOOD.replace("d.png,unlabeled,", "d.png,unlabeled,zebra")))
    assert raw.classes == ["cat", "dog"] and raw.items[3].labels is None
    assert raw.notes[0] == "1 rows of split unlabeled name labels, which were ignored"


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
