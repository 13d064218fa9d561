"""Who wins: imported labels, or the own labels of the data set that were corrected later."""

import os
import shlex
import shutil

import pytest
from project import Project

from dicap.data.format import read_index, read_meta
from dicap.settings import read_yaml
from photos.awkward import picture, pictures, write

NAMES = [f"{i:02d}.png" for i in range(12)]


class Days:
    """Twelve photographs, eight of them labelled in turn with three classes, and what is typed in a project of them."""

    def __init__(self, folder, classes):
        self.folder, self.lists = folder, 0
        self.labels = {name: classes[i % 3] for i, name in enumerate(NAMES[:8])}
        pictures(folder / "photos", NAMES)
        self.correct({})
        own = {"unlabeled_root": str(folder / "photos"), "test_share": 0.3, "names": classes, "words": "class"}
        self.project = Project.made(folder / "project", {"dataset": "table", "data_root": str(folder / "photos"), "own": own})
        self.project.done("convert")

    def given(self, text):
        """Import a list, and give the labels of now."""
        self.lists += 1
        (self.project.folder / f"{self.lists}.csv").write_text(text)
        self.said = self.project.done("import-labels", f"{self.lists}.csv", "--new-classes").splitlines()
        return self.now()

    def correct(self, labels):
        """In the table."""
        write(self.folder / "photos", [["image", "labels"], *(self.labels | labels).items()])

    def now(self):
        self.project.done("convert")
        self.meta = read_meta(self.project.folder / "data/converted")
        self.notes = "\n".join(self.meta["notes"])
        self.rows = read_index(self.project.folder / "data/converted").to_pylist()
        return {row["id"]: row["labels"] and [self.meta["classes"][c] for c in row["labels"]] for row in self.rows}


@pytest.mark.parametrize("bird", ["bird", "NA", "none"])
def test_an_import_counts_until_the_table_is_corrected_whatever_the_class_is_called_and_what_follows(tmp_path, bird):
    days = Days(tmp_path, [bird, "cat", "dog"])
    found = days.given("image,labels\n00.png,cat\n03.png,dog\n09.png,dog\n")
    assert found["00.png"] == ["cat"] and found["09.png"] == ["dog"] and "their own labels count" not in days.notes
    assert "so the imported labels count: 2 (the first: 00.png)" in days.notes
    days.correct({"00.png": "dog", "09.png": "cat;dog"})
    found = days.now()
    assert found["00.png"] == ["dog"] and found["09.png"] == ["cat", "dog"]
    assert found["03.png"] == ["dog"], "of which the table says what it said then"
    assert "so their own labels count: 2 (the first: 00.png)" in days.notes
    assert days.given(f"image,labels,absent\n00.png,,{bird}\n")["00.png"] == ["dog"], "of cat it says nothing"


def test_a_new_class_stays_unknown_when_the_table_names_it_once(tmp_path):
    days = Days(tmp_path, ["bird", "cat", "dog"])
    days.given("image,labels\n09.png,boat\n")
    days.correct({"00.png": "bird;boat"})
    days.now()
    boat = days.meta["classes"].index("boat")
    known = {row["id"] for row in days.rows if row["labels"] is not None and (row["absent"] is None or boat in row["absent"])}
    assert known <= {"00.png", "09.png"}, "nobody looked for it in the others"


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
    days.correct({"00.png": "dog"})
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
    before = [days.now(), days.rows]
    shutil.copytree(days.project.folder / "labels", days.project.folder / "copies", copy_function=shutil.copy)
    for path in lists[:2]:
        days.project.done("import-labels", path.replace("labels/", f"{folder}/"))
        assert [days.now(), days.rows] == before


@pytest.mark.parametrize("later", ["a word", "masks"])
def test_what_convert_proposes_answers_it_as_typed_and_keeps_what_was_said(tmp_path, later):
    rows = [[f"{i:02d}.png", "cat" if i % 2 else "dog", i // 2, i % 5] for i in range(12)]
    pictures(place := tmp_path / "my photographs", [row[0] for row in rows])
    write(place, [["image", "labels", "who", "mood"], *rows])
    project = Project.made(tmp_path / "project")
    project.done("init-data", "--group", "who", "--ignore", "mood", place)
    project.done("convert")
    if later == "a word":
        write(place, [["image", "labels", "who", "mood"], *rows[1:], ["00.png", "none", 0, 0]])
    else:
        pictures(place, [f"masks/{row[0]}" for row in rows])
    project.done(*shlex.split(project.refused("convert")[1].partition(" -- as it would be read: ")[2]))
    project.done("convert")
    own = read_yaml(project.folder / "params.yaml")["own"]
    assert own["group"] == "who" and own["ignore"] == ["mood", *["masks"] * (later == "masks")]
