"""Labelling in the browser: what the page shows, what its keys do, what it keeps and what is downloaded."""

from unicodedata import normalize

import numpy as np
import pytest
from PIL import Image

from dicap.photos.pages.labelling import Question, batch_key, write_labelling_page
from dicap.photos.readers.imported import read_added

NAMES = ["<b>\"tag\" & 'co'</b>", "100 %", "猫 кошка قط", "a, b", "</script><script>alert(1)</script>", "plain", "p\u0301lain"]
FILES = ['we "are" <i>.png', "50%25.png", "dossier/été 猫.png", "a,b\nc.png", "&amp;.png", "=1+1.png"]


def page_of(folder, *, ids=FILES, classes=NAMES, review=False):
    """A page with a picture a file."""
    rng = np.random.default_rng(0)
    questions = [
        Question(
            name,
            chance := rng.random(len(classes)),
            np.flatnonzero(chance >= 0.5).tolist(),
            odd=[1, 0] if review else [],
        )
        for name in ids
    ]
    pictures = [Image.new("RGB", (300, 200), (40 * i % 255, 90, 120)) for i in range(len(ids))]
    write_labelling_page(questions, pictures, classes, folder / "index.html", review=review, measured=True)
    return folder / "index.html", questions


@pytest.mark.promise("Every download of a labelling page has its own name", section="Your files and labels")
def test_every_batch_and_download_has_a_name_of_its_own(reader, tmp_path):
    names = []
    for folder, ids in (("one", FILES), ("two", FILES[::-1])):
        path, _ = page_of(tmp_path / folder, ids=ids)
        page = reader.open(path)
        for key in (" ", "s", " "):
            page.keyboard.press(key)
            if key == "s":
                reader.go(page)
            names.append(reader.download(page, tmp_path / "labels.csv"))
            assert names[-1] in page.locator("#command").text_content().split()
    assert len({*names}) == 6


def test_a_key_that_is_held_decides_one_photograph(reader, tmp_path):
    path, _ = page_of(tmp_path / "page")
    page = reader.open(path)
    for key in (" ", "s", "n", "Enter"):
        page.keyboard.press("Home")
        for _ in range(3):  # the second and third as a keyboard repeats them
            page.keyboard.down(key)
        page.keyboard.up(key)
        assert page.locator("#strip .done, #strip .skip").count() == 1, key
        page.keyboard.press("u")
        page.locator("#accept").focus()
    page.locator("#accept").focus()
    for _ in range(3):
        page.keyboard.down("Enter")
    assert page.locator("#strip .done").count() == 1


@pytest.mark.promise(
    "Labels of a labelling page can still be downloaded after another batch replaced the page", section="Your files and labels"
)
def test_what_was_decided_on_a_page_that_another_replaced_is_downloaded(reader, tmp_path):
    path, questions = page_of(tmp_path / "page", review=True)
    page = reader.open(path)
    page.keyboard.press("1")
    on = page.locator(".chip[aria-pressed=true] bdi").all_text_contents()
    expected = {questions[0].id: sorted(normalize("NFC", name) for name in on)}
    page.keyboard.press(" ")
    page_of(tmp_path / "page", ids=FILES[::-1])
    for meant in (path, page_of(tmp_path / "elsewhere")[0]):
        reader.go(page, meant)
        assert page.locator("#tally").text_content().startswith("0 of")
        assert page.locator("#earlier").is_visible() == (meant == path)
    reader.go(page, path)
    beside = reader.open(path)
    assert reader.download(page, tmp_path / "labels.csv", "#earlier") in page.locator("#notice").text_content().split()
    assert {image: sorted(given.labels) for image, given in read_added(tmp_path / "labels.csv").items()} == expected
    reader.until(beside, "document.getElementById('earlier').hidden")
    reader.go(page)
    assert page.locator("#earlier").is_hidden()


@pytest.mark.promise("A labelling page keeps your labels when it is reloaded", section="Your files and labels")
@pytest.mark.parametrize(
    "locks",
    [
        "{query: () => new Promise((done) => setTimeout(() => { window.waiting = false; done({}); }, 500))}",
        "{query: () => Promise.reject(new DOMException('not here', 'SecurityError'))}",
        "undefined",
    ],
)
def test_what_is_kept_is_read_once_the_browser_has_answered_or_has_no_answer(reader, tmp_path, locks):
    path, _ = page_of(tmp_path / "page")
    page = reader.open(path)
    page.keyboard.press(" ")
    page.add_init_script(f"""
        window.waiting = {"true" if "waiting" in locks else "false"};
        window.early = 0;
        Object.defineProperty(navigator, "locks", {{value: {locks}}});
        const get = Storage.prototype.getItem;
        Storage.prototype.getItem = function (name) {{ window.early += window.waiting; return get.call(this, name); }};
    """)
    page.reload()
    page.keyboard.press(" ")  # not heard before the page is drawn: it would write over what is kept
    reader.until(page, "!document.querySelector('#name:empty')")
    page.keyboard.press(" ")
    assert page.locator("#strip .done").count() in (2, 3)
    assert not page.evaluate("early")
    page.evaluate('for (const [k, v] of Object.entries(localStorage)) localStorage[k] = v.replace(/"at":\\d/, \'"at":5\')')
    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")  # as Firefox goes back to a page
    assert page.locator("#name").text_content() == FILES[5]


def test_batches_are_kept_apart(tmp_path):
    _, questions = page_of(tmp_path)
    key = batch_key(questions, NAMES, review=False)
    assert key == batch_key(questions, NAMES, review=False)
    other = [Question(q.id, q.chance[::-1], []) for q in questions]
    assert key == batch_key(other, NAMES, review=False), "another model asks the same photographs: the decisions hold"
    assert len({key, batch_key(other, NAMES, review=True), batch_key(questions, NAMES, review=True)}) == 3
    assert key != batch_key(questions[1:], NAMES, review=False) and key != batch_key(questions, NAMES[1:], review=False)


def test_the_page_is_accessible(reader, tmp_path, accessible):
    path, _ = page_of(tmp_path / "page", review=True)
    page = reader.open(path)
    page.keyboard.press(" ")
    page.keyboard.press("s")
    page.keyboard.press("1")
    for scheme in reader.screens(page):
        if scheme == "dark":
            page.keyboard.press("?")
        assert accessible(page) == []
        page.keyboard.press("Escape")


def test_the_first_page_of_a_folder_begins_with_the_names_it_was_given(reader, tmp_path):
    questions = [Question(name, np.array([]), []) for name in FILES[:2]]
    pictures = [Image.new("RGB", (30, 20)) for _ in questions]
    out = tmp_path / "first" / "index.html"
    write_labelling_page(questions, pictures, ["red", "blue"], out, review=False, measured=False, folder="photos")
    page = reader.open(out)
    page.keyboard.press("1")
    page.keyboard.press("Space")
    page.keyboard.press("2")
    page.keyboard.press("Space")
    name = reader.download(page, tmp_path / "mine.csv")
    assert f"mv {name} photos/labels.csv && dicap-stage init-data photos" in page.locator("#notice").text_content()
    assert {image: (given.labels, given.absent) for image, given in read_added(tmp_path / "mine.csv").items()} == {
        FILES[0]: (["red"], ["blue"]),
        FILES[1]: (["blue"], ["red"]),
    }
