"""The commands that write pages to label on: what they write, which images they take, what an import changes."""

import csv
import html
import json
import re
import shutil

import pandas as pd


def batch_of(page):
    """What a page asks: the JSON inside it."""
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'" in html.unescape(text)
    return json.loads(re.search(r'<script type="application/json" id="batch">(.*?)</script>', text)[1])


def listed(project, folder="review"):
    return list(csv.DictReader((project.folder / folder / "review.csv").open()))


def test_suggest_writes_a_page_beside_its_list(project):
    assert f"  open {project.folder / 'suggest' / 'index.html'} in a browser" in project.done("suggest", "--count", "4")
    rows = list(csv.DictReader((project.folder / "suggest" / "labels.csv").open()))
    batch = batch_of(project.folder / "suggest" / "index.html")
    assert [item["id"] for item in batch["items"]] == [row["image"] for row in rows]
    for item, row in zip(batch["items"], rows, strict=True):
        assert ";".join(batch["classes"][c] for c in item["on"]) == row["model_says"]


def test_review_ranks_what_was_not_trained_on_and_import_says_what_changes(project):
    out = project.done("review", "--count", "2")
    assert f"  open {project.folder / 'review' / 'index.html'} in a browser" in out
    rows = listed(project)
    index = pd.read_parquet("data/converted/index.parquet").set_index("id")
    assert {row["image"] for row in rows} == set(index.index[index["labels"].notna() & (index["split"] == "train")])
    assert [float(row["surprise"]) for row in rows] == sorted((float(row["surprise"]) for row in rows), reverse=True)
    batch = batch_of(project.folder / "review" / "index.html")
    assert [item["id"] for item in batch["items"]] == [row["image"] for row in rows][:2]
    assert all(item["odd"] for item in batch["items"])
    given = [";".join(batch["classes"][c] for c in item["on"]) or "-" for item in batch["items"]]
    assert given == [row["labels"] for row in rows[:2]]

    change = "red" if given[0] != "red" else "blue"
    (project.folder / "mine.csv").write_text(f"image,labels\n{rows[0]['image']},{change}\n{rows[1]['image']},{given[1]}\n")
    out = project.done("import-labels", "mine.csv")
    (line,) = [line for line in out.splitlines() if line.startswith(f"{rows[0]['image']}: ")]
    assert f"+ {change}" in line or change in given[0]
    assert "changed" in out and rows[1]["image"] not in out
    project.done("review", "--out", "again")
    left = {row["image"] for row in listed(project, "again")}
    assert left == {row["image"] for row in rows[2:]}, "what was looked at is not asked again"
    project.done("review", "--out", "again", "--again")
    assert {row["image"] for row in listed(project, "again")} == {row["image"] for row in rows}


def test_a_frozen_backbone_is_not_asked_again(project, monkeypatch):
    """Features that were computed once are read; they know no label, whatever the weights they came from."""
    project.set({"warmup.trainable": "head", "train.trainable": "head", "head": "linear"})
    project.done("features")
    monkeypatch.setattr("dicap.photos.predict.embeddings", None)
    out = project.done("review")
    assert "before training, each image scored out of fold" in out
    assert len(listed(project)) == (pd.read_parquet("data/converted/index.parquet")["split"] == "train").sum()
    shutil.rmtree("artifacts/features")
    _, line = project.refused("review")
    assert "dvc repro features" in line
