"""Awkward inputs are read as their authors meant, or refused in one line that says what to do; docs/errors.md lists them."""

import os
import re

import pytest
import tiny

from dicap.data.sources.base import Rejected
from photos.awkward import BROKEN, CASES, GROUPS, PLAIN, SAME, TRUTH, labels_of, looked_at, refused, table

DOCUMENT = tiny.ROOT / "docs" / "errors.md"
TITLE = "## What people have on disk"
INTRODUCTION = f"""{TITLE}

Folders, tables and photographs as they are, tried by the tests (`tests/photos/awkward.py`): each is read as its author meant,
with a note where something was assumed, or refused in one line. `<folder>` is the folder that `dicap-stage init-data` is given.
"""


@pytest.fixture(scope="module")
def told():
    """What came of each input, by its name; written down at the end where that was asked for."""
    told: dict[str, str] = {}
    yield told
    if os.environ.get("WRITE_ERRORS") and len(told) == len(CASES):
        text = DOCUMENT.read_text(encoding="utf-8").partition(f"\n{TITLE}")[0] + "\n" + INTRODUCTION
        for title, cases in GROUPS.items():
            text += f"\n### {title}\n\n| what is there | what comes of it |\n| --- | --- |\n"
            text += "".join(f"| {case.what} | {told[case.what]} |\n" for case in cases)
        DOCUMENT.write_text(text, encoding="utf-8")


def documented():
    text = DOCUMENT.read_text(encoding="utf-8").partition(TITLE)[2]
    return dict(re.findall(r"^\| (.+?) \| (.+) \|$", text, re.MULTILINE))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.what)
def test_it_is_read_as_meant_or_refused_in_one_line(case, tmp_path, told, monkeypatch):
    folder = tmp_path / "folder"
    folder.mkdir()
    case.make(folder)
    monkeypatch.chdir(folder)
    options = {"test_share": 0.2} | case.options
    if case.refused:
        line = refused(folder / case.root, re.escape(case.refused), **options)
        told[case.what] = f"refused: `` {line.replace(str(folder), '<folder>')} ``"
    else:
        raw = looked_at(folder / case.root, **options)
        labels = {image.rpartition("/")[2]: labels for image, labels in labels_of(raw).items()}
        assert labels == case.meant and len(raw.items) == len(case.meant)
        assert raw.classes == sorted({name for names in labels.values() for name in names or ()})
        splits = {item.path.rpartition("/")[2]: item.split for item in raw.items}
        assert {name: splits[name] for name in case.splits} == case.splits
        reasons = [reason for i in range(len(raw.items)) if (reason := unreadable(raw, i))]
        assert len(reasons) == case.unreadable
        usual = ("drawn as the test split", "in both splits", "nothing can be said", "no image has two labels")  # of six images
        notes = [note for note in raw.notes if not any(words in note for words in usual)]
        notes += [f"rejected: {reason}" for reason in reasons]
        told[case.what] = "read" + "".join(f"; {note}" for note in notes).replace("|", "\\|").replace(str(folder), "<folder>")
    if not os.environ.get("WRITE_ERRORS"):
        assert documented()[case.what] == told[case.what]


def unreadable(raw, i):
    try:
        raw.images.read(i)
    except Rejected as reason:
        return str(reason)
    return None


@pytest.mark.skipif("WRITE_ERRORS" in os.environ, reason="it is being written")
def test_the_document_holds_every_input_and_no_other():
    names = [case.what for case in CASES]
    assert len(set(names)) == len(names) >= 40
    assert [name for name in documented() if name not in ("what is there", "---")] == names


@pytest.mark.parametrize("way", SAME)
@pytest.mark.parametrize("where", [".", "photos"])
def test_a_table_written_otherwise_says_the_same(tmp_path, way, where):
    table(SAME[way](PLAIN), where=where)(tmp_path)
    raw = looked_at(tmp_path)
    assert {image[-5:]: labels for image, labels in labels_of(raw).items()} == TRUTH


@pytest.mark.parametrize("words", BROKEN)
def test_what_is_wrong_is_said_in_one_line(tmp_path, words):
    BROKEN[words](tmp_path)
    refused(tmp_path, re.escape(words))
