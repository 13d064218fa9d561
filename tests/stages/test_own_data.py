"""The practitioner's commands on the finished tiny project: look, predict, suggest, label, export, and how commands speak."""

import csv
import json

import pandas as pd
import pytest
import tiny
from PIL import Image

from stages.terminal import box


def test_predict_writes_and_says_where(project):
    tiny.photographs(project.folder / "photos", {"test": 5})
    (project.folder / "photos" / "bad.jpg").write_text("<html>")
    out = project.done("predict", "artifacts/finetune", "photos", "--out", "p.csv")
    assert "p.csv" in out and "p.unreadable.csv" in out and "Next:" in out
    assert len(pd.read_csv("p.csv")) == 5 * 3


def test_suggest_label_import_and_run_again(project):
    before = json.loads((project.folder / "data/table/meta.json").read_text())["counts"]
    project.done("suggest", "--count", "4")
    listing = project.folder / "suggest" / "labels.csv"
    with Image.open(project.folder / "suggest" / "sheet.png") as sheet:
        assert sheet.width > 160
    rows = list(csv.DictReader(listing.open()))
    assert 1 <= len(rows) <= 4 and len({row["image"] for row in rows}) == len(rows)
    roles = pd.read_parquet(project.folder / "artifacts/split/split.parquet").set_index("id")["role"]
    assert all(roles[row["image"]] == "unlabeled" for row in rows)
    code, line = project.refused("import-labels", listing)
    assert code == 1 and "no row has labels" in line

    listing.write_text("image,labels\nunlabeled-000.png,red;blue\nunlabeled-001.png,-\nunlabeled-002.png,\n")
    project.done("import-labels", listing)
    project.done("convert")
    after = json.loads((project.folder / "data/table/meta.json").read_text())["counts"]
    assert after == {"train": before["train"] + 2, "test": before["test"], "unlabeled": before["unlabeled"] - 2}
    listing.write_text("image,labels\nunlabeled-002.png,green\n")
    out = project.done("import-labels", listing)
    (added,) = [path for path in (project.folder / "labels").iterdir() if len(path.read_text().splitlines()) == 4]
    assert added.name in out and added.name in (project.folder / "params.yaml").read_text()
    assert added.read_text() == "image,labels\nunlabeled-000.png,blue;red\nunlabeled-001.png,-\nunlabeled-002.png,green\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,labels\nnobody.png,red\n", "'nobody.png' is not in the data set"),
        ("image,labels\nunlabeled-000.png,rad\n", "no image was labelled rad so far"),
        ("image\nunlabeled-000.png\n", "column labels is missing"),
    ],
)
def test_labels_that_do_not_fit_change_nothing(project, text, message):
    (project.folder / "new.csv").write_text(text)
    before = (project.folder / "params.yaml").read_text()
    _, line = project.refused("import-labels", "new.csv")
    assert message in line
    assert (project.folder / "params.yaml").read_text() == before and not (project.folder / "labels").exists()


def test_init_data_looks_and_writes_settings_that_run(project, tmp_path):
    photos = tmp_path / "mine"
    tiny.photographs(photos, {"train": 20})
    (photos / "more").mkdir()
    (photos / "train-019.png").rename(photos / "more" / "x.png")
    rows = [r for r in csv.reader((photos / "labels.csv").open()) if r[0] != "train-019.png"]
    csv.writer((photos / "labels.csv").open("w")).writerows(rows)
    (photos / "train-018.png").write_text("<html>")
    out = project.done("init-data", photos, "--dry-run")
    assert "1 of 20 images cannot be read" in out and "fewer than 10" in out
    answer = json.loads(project.done("--json", "init-data", photos))
    assert answer["format"] == "table" and answer["images"] == "15 train, 4 test, 1 unlabeled"
    project.set({"convert.max_rejected": 0.2})
    project.done("convert")
    meta = json.loads((project.folder / "data/table/meta.json").read_text())
    assert meta["counts"]["unlabeled"] == 1 and len(meta["rejected"]) == 1
    project.done("split")


def test_quiet_says_nothing_and_json_says_one_object(project):
    assert project.done("--quiet", "split") == ""
    assert project.done("--quiet", "suggest", "--count", "2") == ""
    answer = json.loads(project.done("--json", "suggest", "--count", "2"))
    assert answer["command"] == "suggest" and answer["of"] == 8  # not the 14 whose labels the ratio hides


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_the_program(project, shell):
    out = project.done("completion", shell)
    assert "_DICAP_STAGE_COMPLETE" in out and "dicap-stage" in out


def test_the_box_keeps_to_the_terminal():
    facts = {"where": "x" * 100, "mAP": 12.3456, "images": 7}
    lines = box("train", facts, ["dvc repro " + "y" * 100], width=40, colour=False)
    assert all(len(line) <= 40 for line in lines[: lines.index("Next:")])
    assert "".join(line[2:-2].strip() for line in lines if "x" in line).endswith("x" * 30)
    assert any("12.3456" in line for line in lines) and lines[-1].endswith("y" * 100)  # a command is whole, to be copied
    assert "\x1b" in "".join(box("train", facts, [], width=40, colour=True))
