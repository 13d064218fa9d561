"""Who wins: imported labels, or the own labels of the data set that were corrected later."""

import pytest

from dicap.photos.readers.read import Given, added_before
from dicap.settings import Own
from photos.awkward import labels_of, looked_at, picture, write
from stages.photos.import_labels import table_of

NAMES = [f"{i:02d}.png" for i in range(12)]


@pytest.fixture
def labelled(tmp_path, monkeypatch):
    """Twelve photographs, eight of them with labels, in a folder beside an empty project."""
    monkeypatch.chdir(tmp_path)
    for i, name in enumerate(NAMES):
        picture(tmp_path / "photos" / name, i)
    corrected(tmp_path, {name: "dog" if i % 2 else "cat" for i, name in enumerate(NAMES[:8])})
    return tmp_path


def corrected(root, labels):
    write(root / "photos", [["image", "labels"], *labels.items()])


def read_now(root, **own):
    raw = looked_at(root / "photos", Own(test_share=0.3, unlabeled_root=str(root / "photos"), **own))
    return labels_of(raw), raw


def imported(root, labels, **own):
    """As `import-labels` writes them, with the marks of now."""
    from dicap.photos.readers.read import given_of, photo_mark

    _, raw = read_now(root, **own)
    given = {}
    for item, file in zip(raw.items, raw.images.paths, strict=True):
        if item.id in labels:
            said = given_of(item.labels, item.absent, raw.classes)
            given[item.id] = Given(labels[item.id], None, "" if said is None else said.mark(), photo_mark(file))
    path = root / "labels" / "added-1.csv"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(",".join(row) for row in table_of(given)) + "\n")
    assert added_before(path) == given and [g.was for g in added_before(path).values()] == [g.was for g in given.values()]
    return str(path)


def test_an_import_counts_until_the_table_is_corrected(labelled):
    added = imported(labelled, {"00.png": ["dog"], "01.png": ["dog"], "09.png": ["cat"]})
    found, raw = read_now(labelled, added=added)
    assert found["00.png"] == {"dog"} and found["09.png"] == {"cat"} and not any("changed after" in note for note in raw.notes)
    corrected(
        labelled, {name: "dog" if i % 2 else "cat" for i, name in enumerate(NAMES[:8])} | {"01.png": "cat", "09.png": "cat;dog"}
    )
    found, raw = read_now(labelled, added=added)
    assert found["00.png"] == {"dog"}, "of which the table says what it said then"
    assert found["01.png"] == {"cat"} and found["09.png"] == {"cat", "dog"}
    assert any("changed after the import, and count: 2 (the first: 01.png)" in note for note in raw.notes)


def test_a_photograph_exchanged_under_its_name_has_no_imported_label(labelled):
    added = imported(labelled, {"09.png": ["cat"], "10.png": ["dog"]})
    picture(labelled / "photos" / "09.png", 99)
    found, raw = read_now(labelled, added=added)
    assert found["09.png"] is None and found["10.png"] == {"dog"}
    assert any("other photographs now, left out: 1 (the first: 09.png)" in note for note in raw.notes)


def test_a_new_class_stays_unknown_when_the_table_names_it_once(labelled):
    added = imported(labelled, {"09.png": ["boat"]})
    labels = {name: "dog" if i % 2 else "cat" for i, name in enumerate(NAMES[:8])}
    corrected(labelled, labels | {"00.png": "cat;boat"})
    _, raw = read_now(labelled, added=added, new_classes=["boat"])
    boat = raw.classes.index("boat")
    known = {item.id for item in raw.items if item.labels is not None and (item.absent is None or boat in item.absent)}
    assert known <= {"00.png", "09.png"}, "nobody looked for it in the others"


def test_a_list_that_params_yaml_forgot_is_named(labelled):
    first = imported(labelled, {"09.png": ["cat"]})
    (labelled / "labels" / "added-2.csv").write_text("image,labels\n09.png,cat\n10.png,dog\n")
    for own in ({"added": first}, {}):
        _, raw = read_now(labelled, **own)
        assert any("added-2.csv holds labels of" in note and "import-labels" in note for note in raw.notes)
    _, raw = read_now(labelled, added=str(labelled / "labels" / "added-2.csv"))
    assert not any("holds labels of" in note for note in raw.notes)


def test_a_deleted_photographs_labels_go_to_no_other_of_its_name(labelled):
    (labelled / "photos" / "new").mkdir()
    picture(labelled / "photos" / "new" / "00.png", 77)
    (labelled / "photos" / "00.png").unlink()
    found, _ = read_now(labelled)
    assert found["new/00.png"] is None
