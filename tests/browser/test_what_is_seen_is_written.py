"""Drawn names, keys and clicks on the page to label on: what was seen as on is what is written and imported."""

import csv

import numpy as np
import pytest
from photos.awkward import write
from project import Project

from data.raw import photo, save
from dicap.data.convert import convert
from dicap.data.sources.base import FileImages, Item, RawSet
from dicap.photos.pages.labelling import Question, write_labelling_page
from dicap.photos.readers.imported import photo_mark, with_added
from dicap.settings import Own, read_yaml

CLASSES = ["red car", "blue car", "red bus", "blue bus", "a, b", "a", "b"]
CLASSES += ['so "called"', "nan", "-1", "猫 кошка", "x|y", "=1+1", "N"]
FILES = ["a b.png", "été.png", "x,y.png", '"q".png', "one/1.png", "two/1.png", "nan.png", "-.png", "a;b.png", "=1.png", "T.PNG"]
KEYS = [" ", " ", "s", "s", "Home", "ArrowLeft", "ArrowRight", "u", "n", "Enter", "End", *"123456"]
LOOKS = {"true": 1, "false": 0, "mixed": -1}
OWN = {"format": "table", "image": "image", "split": "split", "labels": "labels", "absent": "absent", "words": "class"}
NEW = ["new, one", "a|b"]


def batch(rng, review):
    """Names, classes and (images, classes) of 1, 0 and, in a review, -1 for unknown."""
    classes = sorted(rng.permutation(CLASSES)[:6].tolist())
    names = rng.permutation(FILES)[:5].tolist()
    return names, classes, rng.choice([-1, 0, 1] if review else [0, 1], (len(names), len(classes)))


SEEN = """[document.querySelector('#name').textContent, document.querySelector('#state').textContent === 'decided',
[...document.querySelectorAll('.chip[data-class]')].map(c => [c.querySelector('bdi').textContent, c.ariaPressed])]"""


def seen(page):
    """Of the photograph in view: its name, whether it is decided, and how each class looks."""
    name, decided, chips = page.evaluate(SEEN)
    return name, decided, {title: LOOKS[pressed] for title, pressed in chips}


def drive(page, rng, new):
    """Press and click at random; whoever comes back to a photograph finds it as it was left."""
    left, now = {}, seen(page)
    for step in range(30):
        name, _, looks = now
        if name in left:
            assert {c: looks[c] for c in left[name]} == left[name], (name, step)
        if step == 15:  # a class that the page does not know
            page.fill("#search", new)
            page.locator(".more").last.click()
        elif rng.random() < 0.15:
            page.locator("#strip button").nth(int(rng.integers(5))).click()
        elif rng.random() < 0.15:
            page.locator(".chip").nth(int(rng.integers(6))).click()
        else:
            key = str(rng.choice(KEYS))
            page.keyboard.press(key)
            if key == "n":
                looks = dict.fromkeys(looks, 0)
            if key == "u":  # takes back what was done anywhere
                left, now = {}, seen(page)
                continue
        now = seen(page)
        left[name] = now[2] if now[0] == name else looks


def row_of(item, classes):
    """An item as a row of a table."""
    labels, absent = (";".join(classes[c] for c in some or ()) for some in (item.labels, item.absent))
    if item.labels is None:
        return [item.id, item.split, "", ""]
    return [item.id, item.split, labels, "*" if item.absent is None else absent or "-"]


def known(item, classes):
    """{class: there (1) or not (0)}; a class of which nothing is known is in neither."""
    there = {classes[c] for c in item.labels}
    absent = {*classes} - there if item.absent is None else {classes[c] for c in item.absent}
    return dict.fromkeys(there, 1) | dict.fromkeys(absent, 0)


@pytest.mark.promise(
    "A labelling page writes the labels that it showed when you left a photograph; `import-labels` imports exactly these",
    section="Your files and labels",
)
@pytest.mark.parametrize("seed", range(2))
def test_what_is_seen_is_what_is_written_and_imported(reader, tmp_path, seed):
    rng, review = np.random.default_rng(seed), seed % 2 == 1
    names, classes, state = batch(rng, review)
    rows = [[np.flatnonzero(row == value).tolist() for value in (1, 0, -1)] for row in state]
    project = Project.made(
        tmp_path / "project", {"dataset": "table", "data_root": str(tmp_path / "raw"), "own": OWN | {"names": classes}}
    )
    page_file = tmp_path / "page" / "index.html"

    def opened(questions, review):
        write_labelling_page(questions, map(photo, range(len(questions))), classes, page_file, review=review, measured=True)
        return reader.open(page_file)

    def imported(page):
        reader.download(page, project.folder / "mine.csv")
        new = ["--new-classes"] if "--new" in page.locator("#notice").text_content() else []
        for _ in range(2):  # what it wrote it reads
            project.done("import-labels", "mine.csv", *new)
        added = read_yaml(project.folder / "params.yaml")["own"]["added"]
        return with_added(raw, project.folder / added, Own())

    items = [  # five that are labelled with one class each, so that all are known; then those of the page
        *(Item(f"{k}.png", f"{k}.png", ("train", "test")[k % 2], (k,)) for k in range(len(classes))),
        *(
            Item(n, n, "train", tuple(on), absent=tuple(off) if unknown else None)
            if review and on + off
            else Item(n, n, "unlabeled", None)
            for n, (on, off, unknown) in zip(names, rows, strict=True)
        ),
    ]
    raw = RawSet("table", classes, items, FileImages(tmp_path / "raw", [item.path for item in items]))
    for k, item in enumerate(items):
        save(tmp_path / "raw" / item.path, k)
    write(tmp_path / "raw", [["image", "split", "labels", "absent"], *(row_of(item, classes) for item in items)])
    convert(raw, project.folder / "data/converted", image_size=16, workers=0)

    asked = zip(names, rows, strict=True)
    marks = {n: photo_mark(tmp_path / "raw" / n) for n in names}
    page = opened(
        [Question(n, rng.random(len(classes)), on, unknown=unknown, photo=marks[n]) for n, (on, _, unknown) in asked], review
    )
    drive(page, rng, NEW[seed])
    found = {}
    for k in range(5):
        page.locator("#strip button").nth(k).click()
        name, decided, looks = seen(page)
        if decided:
            found[name] = looks
    assert found
    after = imported(page)
    with (project.folder / "mine.csv").open(newline="") as file:
        assert {row["image"]: row["photo"] for row in csv.DictReader(file)} == marks
    for item, before in zip(after.items, items, strict=True):
        now = {} if item.labels is None else known(item, after.classes)
        if item.id in found:
            looks = {c: value for c, value in found[item.id].items() if c in after.classes}
            assert {c: now.get(c, -1) for c in after.classes} == looks, item.id
        elif item.labels is not None:
            assert now == known(before, classes), (item.id, "nothing else moves")
    # A page made before anybody knew of the new class: of that it asks nothing.
    page = opened([Question(f"{k}.png", rng.random(len(classes)), [k], odd=[k]) for k in range(len(classes))], True)
    for _ in classes:
        page.keyboard.press(" ")
    again = imported(page)
    assert [(item.labels, item.absent) for item in again.items] == [(item.labels, item.absent) for item in after.items]
