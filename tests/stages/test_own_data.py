"""The practitioner's commands on the finished tiny project: look, predict, suggest, label, export, and how commands speak."""

import csv
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import tiny
from PIL import Image


def test_count_corrects_what_predict_says(project):
    """The count is between the labels' share and what the chances add up to; the project's own images are the default."""
    tiny.photographs(project.folder / "photos", {"test": 12})
    out = project.done("count", "photos")
    assert "95 % interval" in out and "counts.csv" in out
    table = pd.read_csv("counts.csv").set_index("class")
    assert (table["low"] <= table["count"]).all() and (table["count"] <= table["high"]).all() and (table["high"] <= 12).all()
    assert json.loads(project.done("--json", "count", "--out", "own.csv"))["images"] == 22
    project.done("count", "photos", "photos/*", "--out", "twice.csv")
    assert pd.read_csv("twice.csv").set_index("class").equals(table), "what is named twice counts once"


def test_from_no_label_at_all(bare_project, tmp_path):
    """`init-data` names `suggest`, whose list, filled in and put beside the photographs, is what `init-data` reads."""
    photos = tiny.photographs(tmp_path / "mine", {"train": 28})
    truth = {row["image"]: row["labels"] or "-" for row in csv.DictReader((photos / "labels.csv").open())}
    (photos / "labels.csv").unlink()
    (photos / "broken.png").write_text("<html>")
    bare_project.set({"backbone": "test_resnet", "backbone_weights": "random", "image_size": tiny.SIZE})
    assert bare_project.refused("init-data", photos)[1].endswith(f"dicap-stage suggest {photos}")
    for by in ("random", "spread"):
        out = bare_project.done("suggest", photos, "--count", "12", "--by", by, "--classes", "red;blue; green;red")
        assert f"dicap-stage init-data {photos}" in out
        rows = list(csv.DictReader((bare_project.folder / "suggest/labels.csv").open()))
        assert len({row["image"] for row in rows} & truth.keys()) == 12 == len(rows)
    text = (bare_project.folder / "suggest/index.html").read_text()
    assert '"extra":["red","blue","green"]' in text and str(photos) in text
    lines = [f"{row['image']},{truth[row['image']]}\n" for row in rows]
    (photos / "labels.csv").write_text("".join(["image,labels\n", *lines]))
    answer = json.loads(bare_project.done("--json", "init-data", photos))
    assert answer["images"] == "10 train, 2 test, 17 unlabeled"
    assert "labels exist already" in bare_project.refused("suggest", photos, "--out", "all")[1]
    (photos / "labels.csv").unlink()
    assert "cannot be the name of a class" in bare_project.refused("suggest", photos, "--classes", "red;-", "--out", "all")[1]
    out = bare_project.done("suggest", photos, "--count", "40", "--by", "random", "--out", "all")
    assert "29 have no labels: 28 are listed" in out


def given_in(added):
    """The first two columns of a file of imported labels."""
    return [line.rsplit(",", 3)[0] for line in added.read_text().splitlines()]


def test_suggest_label_import_and_run_again(project):
    before = json.loads((project.folder / "data/converted/meta.json").read_text())["counts"]
    project.done("suggest", "--count", "4")
    listing = project.folder / "suggest" / "labels.csv"
    rows = list(csv.DictReader(listing.open()))
    assert 1 <= len(rows) <= 4 and len({row["image"] for row in rows}) == len(rows)
    roles = pd.read_parquet(project.folder / "artifacts/split/split.parquet").set_index("id")["role"]
    assert all(roles[row["image"]] == "unlabeled" and row["image"].startswith("unlabeled") for row in rows)
    code, line = project.refused("import-labels", listing)
    assert code == 1 and "no row has labels" in line

    listing.write_text("image,labels\nunlabeled-000.png,red;blue\nunlabeled-001.png,-\nunlabeled-002.png,\n")
    project.done("import-labels", listing)
    project.done("suggest", "--count", "100", "--out", "again")  # what was labelled since the conversion is not asked again
    again = {row["image"] for row in csv.DictReader((project.folder / "again/labels.csv").open())}
    assert again and not again & {"unlabeled-000.png", "unlabeled-001.png"}
    project.done("convert")
    project.done("split")  # at ratio 0.5: labels given later count all the same
    roles = pd.read_parquet("artifacts/split/split.parquet").set_index("id")["role"]
    assert {roles["unlabeled-000.png"], roles["unlabeled-001.png"]} <= {"sup", "est"}
    assert roles["unlabeled-002.png"] == "unlabeled"
    after = json.loads((project.folder / "data/converted/meta.json").read_text())["counts"]
    assert after == {"train": before["train"] + 2, "test": before["test"], "unlabeled": before["unlabeled"] - 2}
    listing.write_text("image,labels\nunlabeled-002.png,green\n")
    out = project.done("import-labels", listing)
    (added,) = [path for path in (project.folder / "labels").iterdir() if len(path.read_text().splitlines()) == 4]
    assert added.name in out and added.name in (project.folder / "params.yaml").read_text()
    assert given_in(added) == ["image,labels", "unlabeled-000.png,blue;red", "unlabeled-001.png,-", "unlabeled-002.png,green"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,labels\nnobody.png,red\n", "'nobody.png' is not in the data set"),
        ("image,labels\nunlabeled-000.png,rad\n", "no image was labelled rad so far"),
        ("image,labels\nunlabeled-000.png,Red\n", "did you mean red?"),
    ],
)
def test_labels_that_do_not_fit_change_nothing(project, text, message):
    (project.folder / "new.csv").write_text(text)
    before = (project.folder / "params.yaml").read_text()
    _, line = project.refused("import-labels", "new.csv")
    assert message in line
    assert (project.folder / "params.yaml").read_text() == before and not (project.folder / "labels").exists()


def test_labels_of_another_photograph_of_the_name_are_left_out(project):
    """A list of imported labels knows its photographs: one of another folder is none for these."""
    elsewhere = "unlabeled-000.png,red,?,0123456789abcdef\n"
    (project.folder / "old.csv").write_text(f"image,labels,was,photo\n{elsewhere}")
    assert "given to other photographs" in project.refused("import-labels", "old.csv")[1]
    assert not (project.folder / "labels").exists()
    (project.folder / "old.csv").write_text(f"image,labels,was,photo\n{elsewhere}unlabeled-001.png,blue,?,\n")
    assert "left out" in project.done("import-labels", "old.csv")
    (added,) = (project.folder / "labels").iterdir()
    assert given_in(added) == ["image,labels", "unlabeled-001.png,blue"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_answers_of_a_model_are_labels_once_somebody_says_so(project, raw_photos, kind):
    """Of every photograph of the data set; a spreadsheet may have given capitals to the heads, and a copy other times."""
    project.done("predict", "artifacts/finetune", raw_photos, "--per-image", "--out", f"p.{kind}")
    read = {"csv": lambda path: pd.read_csv(path, keep_default_na=False), "parquet": pd.read_parquet}[kind]
    answers, before = read(project.folder / f"p.{kind}"), (project.folder / "params.yaml").read_text()
    answers.rename(columns=str.title).to_csv("copy.csv", index=False)
    for name in (f"p.{kind}", "copy.csv"):
        assert "answers of a model" in project.refused("import-labels", name)[1]
    assert (project.folder / "params.yaml").read_text() == before and not (project.folder / "labels").exists()
    answers.drop(columns="unsure").to_csv("corrected.csv", index=False)
    project.done("import-labels", "corrected.csv")


def test_init_data_looks_and_writes_settings_that_run(project, tmp_path):
    photos = tiny.photographs(tmp_path / "mine", {"train": 20})
    (photos / "more").mkdir()
    (photos / "train-019.png").rename(photos / "more" / "x.png")
    rows = [r for r in csv.reader((photos / "labels.csv").open()) if r[0] != "train-019.png"]
    csv.writer((photos / "labels.csv").open("w")).writerows(rows)
    (photos / "train-018.png").write_text("<html>")
    before = (project.folder / "params.yaml").read_text()
    out = project.done("init-data", photos, "--dry-run")
    assert "1 of 20 images cannot be read" in out and "fewer than 10" in out
    assert (project.folder / "params.yaml").read_text() == before
    answer = json.loads(project.done("--json", "init-data", photos))
    assert answer["format"] == "table" and answer["images"] == "15 train, 4 test, 1 unlabeled"
    # What the tiny project had set before is not what the recommended protocol asks for.
    own = dict.fromkeys(("head", "warmup.trainable", "train.trainable", "linear.solver", "linear.features"))
    project.set(own | {"convert.max_rejected": 0.2})
    project.done("convert")
    meta = json.loads((project.folder / "data/converted/meta.json").read_text())
    assert meta["counts"]["unlabeled"] == 1 and len(meta["rejected"]) == 1
    project.done("split")


def test_features_depend_on_the_test_split(bare_project, raw_photos, tmp_path):
    """Where there are strong views, test images have none."""
    photos, found = shutil.copytree(raw_photos, tmp_path / "photos"), Path("data/images.sha256")
    bare_project.set(tiny.CHANGES | {"data_root": str(photos), "features.views": 1})
    bare_project.done("convert")
    before, labels = found.read_text(), photos / "labels.csv"
    labels.write_text(labels.read_text().replace("test-000.png,test", "test-000.png,train"))
    bare_project.done("convert")
    assert found.read_text() != before


def test_doctor_says_what_it_found(project):
    facts = json.loads(project.done("--json", "doctor"))
    assert facts["images"]["train"] == 28 and facts["duplicates"] == []
    photos = tiny.photographs(project.folder / "photos", {"train": 8, "test": 4})
    with Image.open(photos / "train-003.png") as image:  # saved anew: of equal bytes would be one photograph
        image.save(photos / "test-001.png", compress_level=1)
    project.set({"data_root": "photos"})
    project.done("convert")
    assert "duplicate: test test-001.png = train train-003.png" in project.done("doctor")
