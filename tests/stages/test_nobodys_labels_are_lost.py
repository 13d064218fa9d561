"""Own photographs over days: labels imported, photographs added and removed, the folder looked at again.

A seed draws names and a sequence of commands; a model of what is known, kept beside it, is compared with the converted set.
"""

import csv

import numpy as np
import pytest
import tiny
from ruamel.yaml import YAML

from data.raw import photo
from dicap.data.format import is_partial, read_index, read_meta

CLASSES = ["red car", "blue car", "red bus", "blue bus", "person, standing", "salt|pepper"]
NAMES = ["a b{}.png", "été/{}.png", "x,y{}.png", "-{}.png", "nan{}.png", "images/IMG_{}.png", "holiday/IMG_{}.png", 'q"{}.png']


class Photographs:
    """A folder with a table, and what is known: {image: {class: there or not}}; a class that is not named is unknown."""

    def __init__(self, folder, rng):
        self.folder, self.rng, self.known, self.listed, self.count = folder, rng, {}, {}, 0
        for _ in range(24):
            self.add(labelled=True)
        for _ in range(10):
            self.add(labelled=False)
        self.write()

    def add(self, labelled):
        name = NAMES[self.count % len(NAMES)].format(self.count // len(NAMES))
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        photo(self.count, 16, 16).save(self.folder / name)
        shown = {CLASSES[self.count % len(CLASSES)], CLASSES[int(self.rng.integers(len(CLASSES)))]} if labelled else None
        self.listed[name] = shown
        if shown is not None:
            self.known[name] = {c: c in shown for c in CLASSES}
        self.count += 1

    def write(self):
        rows = [(name, ";".join(sorted(shown or ())), "" if shown else "unlabeled") for name, shown in self.listed.items()]
        self.rng.shuffle(rows)
        with (self.folder / "labels.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("image", "labels", "split"), *rows])

    def give(self, path, new=()):
        """A filled list of some photographs, a few of them labelled before; the classes it knows are all there are by then."""
        names = list(self.listed)
        chosen = [names[i] for i in self.rng.choice(len(names), 3, replace=False)]
        everything = sorted({c for known in self.known.values() for c in known} | {*new})
        lines = []
        for k, name in enumerate(chosen):
            shown = {*new} if k == 0 and new else {c for c in everything if self.rng.random() < 0.3}
            self.known[name] = {c: c in shown for c in everything}
            lines.append((name, ";".join(sorted(shown)) or "-"))
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("image", "labels"), *lines])
        return chosen

    def remove(self):
        name = list(self.listed)[int(self.rng.integers(len(self.listed)))]
        (self.folder / name).unlink()
        del self.listed[name]
        self.known.pop(name, None)
        self.write()


def converted(folder):
    """{image: {class: there or not}} of a converted set."""
    meta = read_meta(folder)
    classes = meta["classes"]
    rows = read_index(folder, ["id", "labels", *(["absent"] if is_partial(meta) else [])]).to_pylist()
    found = {}
    for row in rows:
        if row["labels"] is not None:
            absent = row.get("absent")
            absent = [c for c in range(len(classes)) if c not in row["labels"]] if absent is None else absent
            found[row["id"]] = {classes[c]: c in row["labels"] for c in (*row["labels"], *absent)}
    return found


@pytest.mark.promise(
    "Labels from `import-labels` survive a second `init-data`, further imports, and photographs that are added or removed",
    section="Your files and labels",
)
@pytest.mark.parametrize("seed", range(3))
def test_what_was_said_of_a_photograph_stays_said(bare_project, tmp_path, seed):
    rng = np.random.default_rng(seed)
    mine = Photographs(tmp_path / "mine", rng)
    project, tests, said = bare_project, None, []
    if seed == 1:  # as another editor leaves it
        values = YAML().load((project.folder / "params.yaml").read_text())
        values["own"] = None
        with (project.folder / "params.yaml").open("w") as file:
            YAML().dump(values, file)
    project.done("init-data", mine.folder, "--test-share", "0.25")
    project.done("convert", "--workers", "0")
    steps = ["import", "new class", "import", "remove", "add", "init-data"]
    steps += rng.permutation(["import", "remove", "add", "init-data"]).tolist()
    for k, step in enumerate(steps):
        if step == "init-data":
            project.done("init-data", mine.folder, "--test-share", "0.25")
        elif step == "remove":
            mine.remove()
        elif step == "add":
            mine.add(labelled=True)
            mine.write()
        else:
            new = [f"wheel, {k}"] if step == "new class" else []
            mine.give(project.folder / "filled.csv", new)
            out = project.done("import-labels", "filled.csv", *(["--new-classes"] if new else []))
            said.append((bool(new), "neither there nor absent" in out))
        if step != "import":  # two imports may follow one another
            project.done("convert", "--workers", "0")
            assert converted(project.folder / "data/converted") == mine.known, (k, step)
            test = set(read_index(project.folder / "data/converted", ["id", "split"]).to_pandas().query("split == 'test'")["id"])
            assert tests is None or len((tests - test) & mine.listed.keys()) <= 1
            tests = test
    assert all(told == new for new, told in said), "for how many images a new class is unknown"


def test_two_who_import_at_once_both_do(bare_project, tmp_path):
    mine, project = Photographs(tmp_path / "mine", np.random.default_rng(0)), bare_project
    project.done("init-data", mine.folder, "--test-share", "0.25")
    project.done("convert", "--workers", "0")
    unlabelled = [name for name, shown in mine.listed.items() if shown is None]
    for pair in (unlabelled[:2], unlabelled[2:4]):
        for number, name in enumerate(pair):
            with (project.folder / f"{number}.csv").open("w", newline="") as file:
                csv.writer(file).writerows([("image", "labels"), (name, "red car")])
        commands = [("import-labels", "0.csv"), ("init-data", mine.folder, "--test-share", "0.25"), ("import-labels", "1.csv")]
        assert [process.wait()[0] for process in [tiny.stage(project.folder, *words) for words in commands]] == [0, 0, 0]
    project.done("convert", "--workers", "0")
    assert {*unlabelled[:4]} <= converted(project.folder / "data/converted").keys()


@pytest.mark.promise(
    "A photograph never gets the labels of another photograph with the same name", section="Your files and labels"
)
def test_a_camera_that_counts_anew_gives_no_photograph_the_labels_of_another(bare_project, tmp_path):
    """IMG_1.png lies in the data set's folder, in one of it, and in two folders of unlabelled photographs, each another one."""
    mine, project = Photographs(tmp_path / "mine", np.random.default_rng(0)), bare_project
    folders = [tmp_path / name for name in ("first", "second", "elsewhere/second")]
    for k, folder in enumerate([mine.folder, mine.folder / "trip", *folders]):
        folder.mkdir(parents=True, exist_ok=True)
        photo(100 + k, 16, 16).save(folder / "IMG_1.png")
    first = {"first/IMG_1.png": {c: c == "red car" for c in CLASSES}}

    def given(name):
        (project.folder / "filled.csv").write_text(f"image,labels\n{name},red car\n")
        return "filled.csv"

    def known():
        project.done("convert", "--workers", "0")
        return {name: said for name, said in converted(project.folder / "data/converted").items() if name not in mine.known}

    project.done("init-data", mine.folder, "--unlabeled", folders[0])
    assert known() == {}
    project.done("import-labels", given("first/IMG_1.png"))
    assert known() == first
    mine.listed["IMG_1.png"], mine.known["IMG_1.png"] = {"blue bus"}, {c: c == "blue bus" for c in CLASSES}
    mine.write()
    assert known() == first and converted(project.folder / "data/converted")["IMG_1.png"] == mine.known["IMG_1.png"]
    project.done("init-data", mine.folder, "--unlabeled", folders[1])
    assert known() == {}
    project.done("import-labels", given("second/IMG_1.png"))
    project.done("init-data", mine.folder, "--unlabeled", folders[2])
    assert known() == {}
    project.done("init-data", mine.folder)  # and what no list names is unlabelled
    (mine.folder / "trip" / "IMG_1.png").unlink()
    assert known() == {}
    assert "not in the data set" in project.refused("import-labels", given("trip/IMG_1.png"))[1]
