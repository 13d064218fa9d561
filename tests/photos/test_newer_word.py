"""Who wins: imported labels, or the own labels of the data set that were corrected later."""

import os
import shutil

import pytest
from project import Project

from dicap.data.format import read_index, read_meta
from dicap.photos.readers.read import Given, added_before, photo_mark
from dicap.settings import Own, read_yaml
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
    from dicap.photos.readers.read import given_of

    _, raw = read_now(root, **own)
    given = {}
    for item, file in zip(raw.items, raw.images.paths, strict=True):
        if item.id in labels:
            said = given_of(item, raw.classes)
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
    assert any("so the imported labels count: 1 (the first: 00.png)" in note for note in raw.notes)
    corrected(
        labelled, {name: "dog" if i % 2 else "cat" for i, name in enumerate(NAMES[:8])} | {"01.png": "cat", "09.png": "cat;dog"}
    )
    found, raw = read_now(labelled, added=added)
    assert found["00.png"] == {"dog"}, "of which the table says what it said then"
    assert found["01.png"] == {"cat"} and found["09.png"] == {"cat", "dog"}
    assert any("so their own labels count: 2 (the first: 01.png)" in note for note in raw.notes)


def test_a_new_class_stays_unknown_when_the_table_names_it_once(labelled):
    added = imported(labelled, {"09.png": ["boat"]})
    labels = {name: "dog" if i % 2 else "cat" for i, name in enumerate(NAMES[:8])}
    corrected(labelled, labels | {"00.png": "cat;boat"})
    _, raw = read_now(labelled, added=added, new_classes=["boat"])
    boat = raw.classes.index("boat")
    known = {item.id for item in raw.items if item.labels is not None and (item.absent is None or boat in item.absent)}
    assert known <= {"00.png", "09.png"}, "nobody looked for it in the others"


class Days:
    """Twelve photographs, eight of them labelled in turn with three classes, and what is typed in a project of them."""

    def __init__(self, folder, classes):
        self.folder, self.lists = folder, 0
        self.labels = {name: classes[i % 3] for i, name in enumerate(NAMES[:8])}
        for i, name in enumerate(NAMES):
            picture(folder / "photos" / name, i)
        corrected(folder, self.labels)
        own = {"unlabeled_root": str(folder / "photos"), "test_share": 0.3, "names": classes, "words": "class"}
        self.project = Project.made(folder / "project", {"dataset": "table", "data_root": str(folder / "photos"), "own": own})
        self.project.done("convert")

    def given(self, text):
        """Import a list, and give the labels of now."""
        self.lists += 1
        (self.project.folder / f"{self.lists}.csv").write_text(text)
        self.said = self.project.done("import-labels", f"{self.lists}.csv", "--new-classes").splitlines()
        return self.now()

    def correct(self, name, label):
        """In the table."""
        corrected(self.folder, self.labels | {name: label})

    def now(self):
        self.project.done("convert")
        meta = read_meta(self.project.folder / "data/converted")
        rows = read_index(self.project.folder / "data/converted").to_pylist()
        return {row["id"]: row["labels"] and [meta["classes"][c] for c in row["labels"]] for row in rows}


@pytest.mark.parametrize("bird", ["bird", "NA", "none"])
def test_a_correction_counts_whatever_the_class_is_called_and_what_follows(tmp_path, bird):
    days = Days(tmp_path, [bird, "cat", "dog"])
    assert days.given("image,labels\n00.png,cat\n09.png,dog\n")["00.png"] == ["cat"]
    days.correct("00.png", "dog")
    assert days.now()["00.png"] == ["dog"]
    assert days.given(f"image,labels,absent\n00.png,,{bird}\n")["00.png"] == ["dog"], "of cat it says nothing"


def test_each_change_is_said_once_in_plain_words(tmp_path):
    """A list that was imported before a class was new says of it that it is absent, where nobody knew."""
    days, first = Days(tmp_path, ["bird", "cat", "dog"]), "image,labels\n00.png,cat\n09.png,dog\n"
    for text, said in (
        (first, ["00.png: - bird, + cat"]),
        (first, []),
        ("image,labels\n01.png,fox;cat\n", ["01.png: + fox"]),
        (first, ["00.png: fox absent (was unknown)", "09.png: fox absent (was unknown)"]),
        (first, []),
        ("image,labels,absent\n02.png,cat,-\n03.png,,bird\n", ["02.png: + cat", "03.png: - bird"]),
        ("image,labels\n02.png,cat\n", ["02.png: - dog, fox absent (was unknown)"]),
    ):
        days.given(text)
        assert [line for line in days.said if ".png: " in line] == said


@pytest.mark.parametrize("later", [None, "bird"])
def test_an_exchanged_photograph_inherits_no_imported_label(tmp_path, later):
    days = Days(tmp_path, ["bird", "cat", "dog"])
    assert days.given("image,labels\n09.png,cat\n")["09.png"] == ["cat"]
    picture(tmp_path / "photos" / "09.png", 99)
    now = days.now() if later is None else days.given(f"image,labels,absent\n09.png,,{later}\n")
    assert not now["09.png"]


def test_the_longest_list_brings_all_back_but_what_was_corrected(tmp_path):
    days = Days(tmp_path, ["bird", "cat", "dog"])
    for rows in ("00.png,cat\n09.png,cat", "10.png,bird", "10.png,dog\n09.png,dog\n11.png,cat"):
        days.given(f"image,labels\n{rows}\n")
    for i, path in enumerate(sorted((days.project.folder / "labels").glob("*.csv"), key=os.path.getmtime)):
        os.utime(path, (-i, -i))  # a fresh clone keeps no times
    days.correct("00.png", "dog")
    before = days.now()
    days.project.set({"own.added": None})
    remedies = [line for line in days.project.done("convert").splitlines() if "brings them back" in line]
    assert len(remedies) == 1
    days.project.done("import-labels", newest := remedies[0].split("import-labels ")[1].split()[0])
    assert days.now() == before and (before["00.png"], before["09.png"], before["10.png"]) == (["dog"], ["dog"], ["dog"])
    days.project.set({"own.added": None})
    days.given("image,labels\n09.png,bird\n")
    assert f"import-labels {newest} brings them back" in "\n".join(days.said)
    assert "brings them back" not in days.project.done("import-labels", newest)
    assert days.now() == before | {"09.png": ["bird"]}, "a list brings nothing back that was given otherwise since"
    for i, name in enumerate(NAMES):
        picture(tmp_path / "photos" / name, 50 + i)
    days.project.set({"own.added": None})
    assert "brings them back" not in days.project.done("convert"), "what was said of other photographs"


@pytest.mark.parametrize("folder", ["labels", "copies"])
def test_a_list_of_before_changes_nothing_wherever_it_lies(tmp_path, folder):
    days, lists = Days(tmp_path, ["bird", "cat", "dog"]), []
    for rows in ("00.png,cat\n09.png,dog", "09.png,cat", "01.png,fox;cat"):
        days.given(f"image,labels\n{rows}\n")
        lists.append(read_yaml(days.project.folder / "params.yaml")["own"]["added"])
    before = [days.now(), read_index(days.project.folder / "data/converted").to_pylist()]
    shutil.copytree(days.project.folder / "labels", days.project.folder / "copies", copy_function=shutil.copy)
    for path in lists[:2]:
        days.project.done("import-labels", path.replace("labels/", f"{folder}/"))
        assert [days.now(), read_index(days.project.folder / "data/converted").to_pylist()] == before
