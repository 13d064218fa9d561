"""Images that are labelled in part: the column `absent` of a table, COCO-style files with verified negatives, added labels."""

import numpy as np
import pytest

from dicap.data import format as files
from dicap.data.convert import convert
from dicap.data.doctor import examine
from dicap.data.labels import read_labels
from dicap.errors import DataError
from dicap.photos.readers import imported
from photos.awkward import SPLIT, coco, looked_at, pictures, refused

PARTIAL = (
    "image,split,labels,absent\na.png,train,cat;dog,*\nb.png,train,dog,owl\nc.png,test,cat,dog\nd.png,train,-,\n"
    "e.png,test,,cat\nf.png,unlabeled,,\ng.png,train,owl,-\n"
)
NAMES = [f"{letter}.png" for letter in "abcdefg"]


def listed(root, text, **changes):
    pictures(root, NAMES)
    (root / "labels.csv").write_text(text)
    return looked_at(root, **changes)


def known(raw):
    """{image: (labels, absent)} by name, of the labelled images."""
    return {
        item.id: tuple(None if part is None else {raw.classes[c] for c in part} for part in (item.labels, item.absent))
        for item in raw.items
        if item.labels is not None
    }


def converted(root, text, **changes):
    convert(listed(root / "raw", text, **changes), root / "set", image_size=16, workers=0)
    return root / "set"


def test_the_converted_set_holds_what_is_known(tmp_path):
    folder = converted(tmp_path, PARTIAL)
    meta = files.read_meta(folder)
    assert meta["classes"] == ["cat", "dog", "owl"] and meta["counts"] == {"train": 4, "test": 2, "unlabeled": 1}
    assert files.read_groups(folder) is None and "grouped" not in meta
    assert meta["unknown"] == {"train": 1 + 2, "test": 1 + 2} and files.is_partial(meta)
    rows = np.array([0, 1, 2, 3, 4, 6])
    expected = [[1, 1, 0], [-1, 1, 0], [1, 0, -1], [0, 0, 0], [0, -1, -1], [-1, -1, 1]]
    labels = read_labels(folder, rows, partial=True)
    assert labels.dtype == np.int8 and labels.tolist() == expected
    assert read_labels(folder, rows[[0, 3]]).dtype == np.uint8, "all of these is known"
    with pytest.raises(DataError, match="labelled in part, and here every label has to be known"):
        read_labels(folder, rows)
    assert not examine(folder).damage


@pytest.mark.parametrize(
    "absent",
    [
        ["owl", "cat;owl", "dog;owl", "", "cat;dog", ""],  # or all there is to say
        ["*", "*", "*", "-", "*", ""],
    ],
)
def test_where_all_is_known_the_index_is_the_same_bytes(tmp_path, absent):
    head, *lines = SPLIT.splitlines()
    text = "\n".join([f"{head},absent", *(f"{line},{cell}" for line, cell in zip(lines, absent, strict=True))])
    plain, partial = converted(tmp_path / "plain", SPLIT), converted(tmp_path / "partial", text)
    assert (plain / files.INDEX).read_bytes() == (partial / files.INDEX).read_bytes()
    metas = [files.read_meta(folder) for folder in (plain, partial)]
    assert metas[0].keys() == metas[1].keys() and files.identity(metas[0]) == files.identity(metas[1])


def test_empty_cells_are_unknown_or_absent_or_a_question(tmp_path):
    text = PARTIAL.replace("dog,owl\n", "dog,\n")
    with pytest.raises(DataError, match=r"line 3: absent: empty beside labels.*--empty-absent absent"):
        listed(tmp_path / "a", text)
    for k, (meaning, absent) in enumerate((("unknown", set()), ("absent", None))):
        assert known(listed(tmp_path / str(k), text, empty_absent=meaning))["b.png"] == ({"dog"}, absent)


def test_names_that_are_nowhere_a_label(tmp_path):
    raw = listed(tmp_path / "a", PARTIAL.replace("dog,owl\n", "dog,owl;zebra\n").replace(",,cat\n", ",,zebra\n"))
    assert raw.classes == ["cat", "dog", "owl"] and "e.png" not in known(raw)
    assert any("zebra" in note for note in raw.notes)
    only = PARTIAL.replace("dog,owl\n", "dog,yes\n").replace("cat,dog\n", "cat,no\n").replace(",,cat\n", ",,\n")
    with pytest.raises(DataError, match="column absent: 'no' is no label of any row"):
        listed(tmp_path / "b", only, empty="unlabeled")


@pytest.mark.parametrize("key", ["neg_category_ids", "not_exhaustive_category_ids"])
def test_coco_that_was_not_searched_for_every_category_is_refused(tmp_path, key):
    coco(tmp_path, images=[{"id": 0, "file_name": "a.png", key: [12]}], annotations=[])
    refused(tmp_path, rf"key {key} is of .* write labels.csv with the columns image, labels, absent")


def test_added_labels_may_say_what_is_absent(tmp_path):
    path = tmp_path / "added.csv"
    path.write_text("image,labels,absent\na.png,,cat\nb.png,cat,-\nc.png,owl,*\nf.png,dog,cat\nd.png,-,\ne.png,,\n")
    assert imported.read_added(path)["f.png"] == imported.Given(["dog"], ["cat"])
    raw = listed(tmp_path / "raw", PARTIAL, added=str(path))
    found = known(raw)
    assert found["a.png"] == ({"dog"}, None), "what was known of the other classes stays known"
    assert found["b.png"] == ({"cat", "dog"}, {"owl"}) and found["c.png"] == ({"owl"}, None)
    assert found["f.png"] == ({"dog"}, {"cat"}) and found["e.png"] == (set(), {"cat"})
    assert {item.id: item.added for item in raw.items}["f.png"] == "unlabeled"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,labels,absent\na.png,cat,cat\n", "line 2: absent: 'cat' is among the labels of this row too"),
        ("image,labels,absent\na.png,cat,\nb.png,dog,cat\n", r"line 2: absent: empty beside labels: .*, or absent \(`\*`\)\?$"),
        ("image,labels\na.png,cat\na.png,dog\n", "line 3: .* on an earlier line"),
        *((f"image,labels,{head}\na.png,cat,0\n", f"does not know column {head.lower()}") for head in ("Value", "split")),
    ],
)
def test_a_list_that_says_something_else_is_not_imported(tmp_path, text, message):
    (tmp_path / "more.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        imported.read_added(tmp_path / "more.csv")
    (tmp_path / "more.csv").write_text("Image,Labels,Absent,model_says,surprise,look_at\na.png,cat,*,dog,0.1,dog\n")
    assert imported.read_added(tmp_path / "more.csv") == {"a.png": imported.Given(["cat"])}
